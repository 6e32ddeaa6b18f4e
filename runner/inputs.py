"""From a batch's rows to what one model call needs: spans, tokens, positions, state rows.

Host numbers in, small index tensors out. No model and no KV pool here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlt_fsm.batch import Row

from .kernels.tables import upload
from .kv_cache import Exited, Span
from .written import Owner


class Piece(NamedTuple):
    """Positions [start, end) of a prompt row, and where the first lies among the packed ones."""

    row: Row
    start: int
    end: int
    first_packed: int


def owner_of(row: Row) -> Owner:
    """Whose KV a row reads and writes."""
    return row.spec.request_id, row.spec.generation


def tokens_of(row: Row) -> tuple[int, ...]:
    """The tokens of a prompt row; a replayed one may reach into the outputs."""
    if row.replay:
        return row.replay_tokens
    end = row.token_start + row.token_count
    assert end <= len(row.spec.prompt_token_ids), (row.spec.request_id, end)
    return row.spec.prompt_token_ids[row.token_start : end]


def whole_pieces(rows: Iterable[Row]) -> list[Piece]:
    """Every row as one piece, packed in row order."""
    pieces: list[Piece] = []
    packed = 0
    for row in rows:
        start = row.token_start
        pieces.append(Piece(row, start, start + row.token_count, packed))
        packed += row.token_count
    return pieces


def position_waves(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """One position of each piece at a time: pieces of 3 and 1 make waves of 2, 1 and 1.

    With one shared plane a position must finish every loop before the next one of its request, for
    later positions read its final K and V at every depth.
    """
    for step in range(max(piece.end - piece.start for piece in pieces)):
        yield [
            Piece(p.row, p.start + step, p.start + step + 1, p.first_packed + step)
            for p in pieces
            if p.start + step < p.end
        ]


def runs_at(piece: Piece, depth: int) -> list[tuple[int, int]]:
    """The runs [start, end) of a piece's positions that compute loop `depth`.

    All of them, but in a replay, where a token computes only the loops that it once ran: with
    loops 4, 2, 4 positions 0 and 2 compute depth 2, as two runs.
    """
    if not piece.row.replay:
        return [(piece.start, piece.end)]
    runs: list[tuple[int, int]] = []
    for position in range(piece.start, piece.end):
        if _replayed_loops(piece.row, position) <= depth:
            continue
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return runs


def exits_after(piece: Piece, depth: int, full_depth: int) -> list[Exited]:
    """The replayed tokens of a piece that leave the loop after `depth`, short of full depth."""
    loops = depth + 1
    if not piece.row.replay or loops == full_depth:
        return []
    return [
        Exited(owner_of(piece.row), piece.row.block_table, position, loops)
        for position in range(piece.start, piece.end)
        if _replayed_loops(piece.row, position) == loops
    ]


def _replayed_loops(row: Row, position: int) -> int:
    return row.replay_depths[position - row.token_start]


def prompt_spans(piece: Piece, depth: int) -> tuple[list[Span], list[int]]:
    """A piece's spans at one depth, and the packed rows of their positions."""
    owner, table = owner_of(piece.row), piece.row.block_table
    runs = runs_at(piece, depth)
    offset = piece.first_packed - piece.start
    packed = [offset + position for start, end in runs for position in range(start, end)]
    state_row = piece.row.state_row
    return [Span(owner, table, depth, start, end, state_row) for start, end in runs], packed


def decode_spans(rows: Iterable[Row]) -> list[Span]:
    """One position per DECODE_RECURRENT row, each at its own depth."""
    spans: list[Span] = []
    for row in rows:
        assert row.depth is not None, row.spec.request_id
        position = row.token_start
        own = (row.block_table, row.depth, position, position + 1, row.state_row)
        spans.append(Span(owner_of(row), *own))
    return spans


def depths_of(rows: Iterable[Row]) -> list[int]:
    """The 0-based loop of every RECURRENT row."""
    return [_depth(row) for row in rows]


def _depth(row: Row) -> int:
    assert row.depth is not None, row.spec.request_id
    return row.depth


def exited_tokens(rows: Iterable[Row], full_depth: int) -> list[Exited]:
    """The tokens of DECODE_CODA rows that left the loop early."""
    return [
        Exited(owner_of(row), row.block_table, row.token_start, row.loops_done)
        for row in rows
        if row.loops_done < full_depth
    ]


def split_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Every position of `spans` as a span of its own, in order."""
    for span in spans:
        for position in range(span.start, span.end):
            yield span._replace(start=position, end=position + 1)


def positions_of(spans: Iterable[Span], device: torch.device) -> Tensor:
    """Token positions of all rows of a model call."""
    return index_tensor([p for span in spans for p in range(span.start, span.end)], device)


def state_rows_of(rows: Iterable[Row], device: torch.device) -> Tensor:
    """The resident state row of every row."""
    return index_tensor([row.state_row for row in rows], device)


def index_tensor(values: Sequence[int], device: torch.device) -> Tensor:
    """Whole numbers as an int64 tensor on `device`, without waiting for what it computes."""
    return upload(np.array(values, dtype=np.int64), device)
