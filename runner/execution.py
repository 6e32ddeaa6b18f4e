"""Executing one batch: which states go through the model, at which depth, and where they go then.

Tensors in, tensors out, and the result. Memory is taken elsewhere, and nothing is decided here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.batch import Batch, BatchResult, Row
from rlt_fsm.states import WorkKey

from . import inputs
from .attention import AttentionBackend
from .ends import Ends
from .inputs import Piece
from .kv_cache import KVCache, Span
from .models.parts import LoopedModel
from .pending import Pending, behind_launches
from .resident import ResidentState
from .sampler import Draw, sample


class Options(NamedTuple):
    """What of a config changes how batches are computed."""

    one_row_per_call: bool  # results that do not depend on batch mates, bit by bit
    prefix_caching: bool
    keeps_tokens: bool  # for preludes that are submitted before their token is known to the engine
    max_in_flight: int = 1  # batches whose results were not yet read


class Executor:
    """Computes batches of one model over one pool and one set of state rows."""

    def __init__(
        self,
        model: LoopedModel,
        ends: Ends,
        cache: KVCache,
        attention: AttentionBackend,
        resident: ResidentState,
        options: Options,
    ) -> None:
        self._model = model
        self._ends = ends
        self._cache = cache
        self._attention = attention
        self._resident = resident
        self._options = options
        self._device = cache.device
        self._full_depth = cache.geometry.depths

    def start(self, batch: Batch) -> Pending:
        """Begin a batch; here it is launched, and on a CPU computed, when this returns.

        Its rows share one operation; their works may differ in one way only: prompt rows beside
        decode rows.
        """
        result = self._run(batch)
        return Pending(batch.ticket, lambda: result, behind_launches(self._device))

    def _run(self, batch: Batch) -> BatchResult:
        works = frozenset(batch.works)
        if works == {WorkKey.PROMPT_ATOMIC}:
            self._prompt(batch.rows)
        elif works <= {WorkKey.DECODE_PRELUDE, WorkKey.PROMPT_PRELUDE}:
            self._prelude(batch.rows)
        elif works <= {WorkKey.DECODE_RECURRENT, WorkKey.PROMPT_RECURRENT}:
            return BatchResult(batch.ticket, exits=self._recurrent(batch.rows))
        elif works == {WorkKey.DECODE_CODA}:
            token_ids, logprobs = self._coda(batch.rows)
            return BatchResult(batch.ticket, token_ids=token_ids, logprobs=logprobs)
        else:
            raise NotImplementedError(f"a batch of {'+'.join(batch.works)} does not run here")
        return BatchResult(batch.ticket)

    # ---- prompts, all depths at once ---------------------------------------------------------

    def _prompt(self, rows: Sequence[Row]) -> None:
        """Embed a chunk of every row and take it through all loops; keep each last position."""
        self._begin(rows)
        tokens = [token for row in rows for token in inputs.tokens_of(row)]
        hidden = self._ends.embed(rows, self._index(tokens))
        pieces = inputs.whole_pieces(rows)
        shares_a_plane = self._cache.geometry.loop_planes < self._full_depth
        for wave in inputs.position_waves(pieces) if shares_a_plane else [pieces]:
            for depth in range(self._full_depth):
                self._advance(hidden, wave, depth)
        self._ends.settle(rows, hidden)
        last = [piece.first_packed + piece.row.token_count - 1 for piece in pieces]
        self._resident.hidden[self._state_rows(rows)] = hidden[self._index(last)]

    def _advance(self, hidden: Tensor, pieces: Sequence[Piece], depth: int) -> None:
        """Take the packed states of `pieces` through one loop, in place."""
        spans: list[Span] = []
        packed: list[int] = []
        for piece in pieces:
            own_spans, own_packed = inputs.prompt_spans(piece, depth)
            spans += own_spans
            packed += own_packed
        if not spans:
            return
        index = self._index(packed)
        hidden[index] = self._prompt_loop(hidden[index], spans)
        self._fill_replayed(pieces, [depth] * len(pieces))

    def _fill_replayed(self, pieces: Sequence[Piece], depths: Sequence[int]) -> None:
        self._cache.fill_exits(
            [
                token
                for piece, depth in zip(pieces, depths, strict=True)
                for token in inputs.exits_after(piece, depth, self._full_depth)
            ]
        )

    def _begin(self, rows: Sequence[Row]) -> None:
        """Prompt rows arrive. The first of a request may start behind pages it shares."""
        for row in rows:
            if not self._cache.knows(inputs.owner_of(row)):
                cached = row.token_start if self._options.prefix_caching else 0
                self._cache.begin(inputs.owner_of(row), cached)

    # ---- one operation at a time -------------------------------------------------------------

    def _prelude(self, rows: Sequence[Row]) -> None:
        """Embed the last output of decode rows, whose gates start afresh, and chunks of prompts."""
        decode, prompt = _split(rows, WorkKey.DECODE_PRELUDE)
        self._begin(prompt)
        state_rows = self._state_rows(decode)
        tokens = self._index(
            [row.last_token for row in decode]
            + [token for row in prompt for token in inputs.tokens_of(row)]
        )
        if any(row.last_token < 0 for row in decode):  # sampled by a batch still in flight
            told = tokens[: len(decode)]
            tokens[: len(decode)] = torch.where(told < 0, self._resident.tokens[state_rows], told)
        hidden = self._ends.embed([*decode, *prompt], tokens)
        self._resident.hidden[state_rows] = hidden[: len(decode)]
        self._resident.gate.reset(state_rows)
        start = len(decode)
        for row in prompt:
            states = hidden[start : start + row.token_count].clone()
            self._resident.append(inputs.owner_of(row), row.token_start, states)
            start += row.token_count

    def _recurrent(self, rows: Sequence[Row]) -> list[bool]:
        """One loop of every row at its own depth; may each decode row leave?"""
        decode, prompt = _split(rows, WorkKey.DECODE_RECURRENT)
        state_rows, spans = self._state_rows(decode), inputs.decode_spans(decode)
        hidden = [self._resident.hidden[state_rows]]
        pieces = inputs.whole_pieces(prompt)
        depths = [_depth(row) for row in prompt]
        for piece, depth in zip(pieces, depths, strict=True):
            own_spans, _ = inputs.prompt_spans(piece, depth)
            spans += own_spans
            hidden += [
                self._resident.read(inputs.owner_of(piece.row), span.start, span.end)
                for span in own_spans
            ]
        exits = [False] * len(rows)
        if spans:
            if decode:
                states, logits = self._loop(torch.cat(hidden), spans)
                self._resident.hidden[state_rows] = states[: len(decode)]
                left = iter(self._gate(decode, state_rows, logits[: len(decode)]))
                exits = [row.work is WorkKey.DECODE_RECURRENT and next(left) for row in rows]
            else:
                states = self._prompt_loop(torch.cat(hidden), spans)
            self._keep(spans[len(decode) :], states[len(decode) :])
        self._fill_replayed(pieces, depths)
        self._leave(prompt)
        return exits

    def _gate(self, rows: Sequence[Row], state_rows: Tensor, logits: Tensor) -> list[bool]:
        thresholds = [row.spec.params.exit_threshold for row in rows]
        return self._resident.gate.after_loop(state_rows, logits, thresholds)

    def _keep(self, spans: Sequence[Span], states: Tensor) -> None:
        """Put the states of split prompts back into their windows."""
        start = 0
        for span in spans:
            count = span.end - span.start
            self._resident.write(span.owner, span.start, states[start : start + count])
            start += count

    def _leave(self, rows: Sequence[Row]) -> None:
        """Split prompts whose rows have finished the last depth keep their last state only."""
        for row in rows:
            if _depth(row) == self._full_depth - 1:
                owner, end = inputs.owner_of(row), row.token_start + row.token_count
                states = self._resident.read(owner, row.token_start, end)
                self._ends.settle([row], states)
                self._resident.hidden[row.state_row] = states[-1]
                self._resident.leave(owner, end)

    def _coda(self, rows: Sequence[Row]) -> tuple[list[int], list[float | None]]:
        """Sample every row, after filling its exit: `loops_done` is its token's exit depth.

        The deeper planes of that position are first read by the request's next token.
        """
        self._cache.fill_exits(inputs.exited_tokens(rows, self._full_depth))
        state_rows = self._state_rows(rows)
        logits = self._ends.logits(rows, self._resident.hidden[state_rows])
        sampled = sample(logits, [Draw(row.spec.params, row.output_idx) for row in rows])
        if self._options.keeps_tokens:
            self._resident.tokens[state_rows] = self._index(sampled.token_ids)
        return sampled

    # ---- model calls -------------------------------------------------------------------------

    def _loop(self, hidden: Tensor, spans: list[Span]) -> tuple[Tensor, Tensor]:
        """One pass through the layers: hidden [N, H] and gate logits [N] of all positions."""
        if not self._options.one_row_per_call:
            attend = self._attention.prepare(spans)
            return self._model.recurrent(hidden, inputs.positions_of(spans, self._device), attend)
        parts = [
            self._model.recurrent(
                hidden[i : i + 1],
                inputs.positions_of([span], self._device),
                self._attention.prepare([span]),
            )
            for i, span in enumerate(inputs.split_spans(spans))
        ]
        return torch.cat([state for state, _ in parts]), torch.cat([gate for _, gate in parts])

    def _prompt_loop(self, hidden: Tensor, spans: list[Span]) -> Tensor:
        """`_loop` of prompt rows alone, whose gates nobody asks; valid until the next call."""
        return self._loop(hidden, spans)[0]

    def _state_rows(self, rows: Sequence[Row]) -> Tensor:
        return inputs.state_rows_of(rows, self._device)

    def _index(self, values: list[int]) -> Tensor:
        return inputs.index_tensor(values, self._device)


def _split(rows: Sequence[Row], work: WorkKey) -> tuple[list[Row], list[Row]]:
    """Rows of `work`, and the others, each in order."""
    return [r for r in rows if r.work is work], [r for r in rows if r.work is not work]


def _depth(row: Row) -> int:
    assert row.depth is not None, row.spec.request_id
    return row.depth
