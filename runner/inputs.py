"""From a batch's rows to what one model call needs: spans, tokens, positions, state rows.

Host numbers in, small index tensors out. No model and no KV pool here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.batch import Row

from .kv_cache import Exited, Owner, Span


class Wave(NamedTuple):
    """Prompt positions that run through every loop together; `packed` are their packed rows."""

    packed: list[int]
    parts: list[tuple[Row, int, int]]  # row, positions [start, end)

    def spans(self, depth: int) -> list[Span]:
        """The spans of this wave at one depth."""
        return [
            Span(owner_of(row), row.block_table, depth, start, end)
            for row, start, end in self.parts
        ]


def owner_of(row: Row) -> Owner:
    """Whose KV a row reads and writes."""
    return row.spec.request_id, row.spec.generation


def prompt_tokens(rows: Iterable[Row]) -> list[int]:
    """The tokens of all prompt rows, packed in row order."""
    tokens: list[int] = []
    for row in rows:
        end = row.token_start + row.token_count
        assert end <= len(row.spec.prompt_token_ids), (row.spec.request_id, end)
        tokens.extend(row.spec.prompt_token_ids[row.token_start : end])
    return tokens


def prompt_waves(rows: Sequence[Row], *, one_position_each: bool) -> Iterator[Wave]:
    """How prompt rows go through the loops: all at once, or one position of each row at a time.

    With one shared plane a position must finish every loop before the next one of its request, for
    later positions read its final K and V at every depth. Rows of 3 and 1 tokens then make waves of
    2, 1 and 1 positions.
    """
    firsts = first_packed_rows(rows)
    if not one_position_each:
        packed = list(range(sum(row.token_count for row in rows)))
        yield Wave(packed, [(r, r.token_start, r.token_start + r.token_count) for r in rows])
        return
    for step in range(max(row.token_count for row in rows)):
        members = [(i, row) for i, row in enumerate(rows) if row.token_count > step]
        yield Wave(
            [firsts[i] + step for i, _ in members],
            [(r, r.token_start + step, r.token_start + step + 1) for _, r in members],
        )


def first_packed_rows(rows: Iterable[Row]) -> list[int]:
    """Where each row's positions begin among the packed ones: counts 3, 1, 2 give 0, 3, 4."""
    firsts: list[int] = []
    total = 0
    for row in rows:
        firsts.append(total)
        total += row.token_count
    return firsts


def last_packed_rows(rows: Sequence[Row]) -> list[int]:
    """Where each row's last position lies among the packed ones."""
    firsts = first_packed_rows(rows)
    return [first + row.token_count - 1 for first, row in zip(firsts, rows, strict=True)]


def decode_spans(rows: Iterable[Row]) -> list[Span]:
    """One position per DECODE_RECURRENT row, each at its own depth."""
    spans: list[Span] = []
    for row in rows:
        assert row.depth is not None, row.spec.request_id
        position = row.token_start
        spans.append(Span(owner_of(row), row.block_table, row.depth, position, position + 1))
    return spans


def exited_tokens(rows: Iterable[Row], depths: int) -> list[Exited]:
    """The tokens of DECODE_CODA rows that left the loop early."""
    return [
        Exited(owner_of(row), row.block_table, row.token_start, row.loops_done)
        for row in rows
        if row.loops_done < depths
    ]


def split_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Every position of `spans` as a span of its own, in order."""
    for span in spans:
        for position in range(span.start, span.end):
            yield span._replace(start=position, end=position + 1)


def positions_of(spans: Iterable[Span], device: torch.device) -> Tensor:
    """Token positions of all rows of a model call."""
    positions = [p for span in spans for p in range(span.start, span.end)]
    return index_tensor(positions, device)


def state_rows_of(rows: Iterable[Row], device: torch.device) -> Tensor:
    """The resident state row of every row."""
    return index_tensor([row.state_row for row in rows], device)


def index_tensor(values: Sequence[int], device: torch.device) -> Tensor:
    """Whole numbers as an int64 tensor on `device`."""
    return torch.tensor(values, dtype=torch.int64, device=device)
