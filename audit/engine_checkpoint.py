"""The auditor's own reading of what an engine left in a checkpoint, held against the recount.

`recover` goes on from that text, so it must tell of the state that the events led to. Only what a
recount knows is compared; nothing of the engine's fold is used.
"""

from typing import Any

import msgspec

from .recount import Recount


class _Request(msgspec.Struct, frozen=True):
    ref: int
    outputs: list[int]
    block_table: tuple[tuple[int, ...], ...]
    host_blocks: int


class _Told(msgspec.Struct, frozen=True):
    seq: int
    requests: list[_Request]
    waiting: list[int]
    tickets: dict[int, Any]
    free_blocks: list[int]
    slots_held: int


def difference(text: str, seq: int, recount: Recount, live: frozenset[int]) -> str | None:
    """The first thing that the text tells otherwise than the events up to `seq`; None: nothing."""
    try:
        told = msgspec.json.decode(text, type=_Told)
    except msgspec.MsgspecError as error:
        return f"it cannot be read ({error})"
    ledger = recount.blocks
    pairs: list[tuple[str, object, object]] = [
        ("seq", told.seq, seq),
        ("live requests", [request.ref for request in told.requests], sorted(live)),
        ("the waiting line", told.waiting, recount.line.refs),
        ("tickets in flight", sorted(told.tickets), sorted(recount.in_flight)),
        ("slots held", told.slots_held, len(recount.slot_holders)),
        ("free blocks", len(told.free_blocks), ledger.free),
    ]
    for name, theirs, counted in pairs:
        if theirs != counted:
            return f"{name}: {theirs}, the events make it {counted}"
    for request in told.requests:
        found = _difference_of(request, recount)
        if found is not None:
            return f"{recount.name(request.ref)}, {found}"
    return None


def _difference_of(request: _Request, recount: Recount) -> str | None:
    ref, ledger = request.ref, recount.blocks
    blocks = {block for plane in request.block_table for block in plane}
    pairs: list[tuple[str, object, object]] = [
        ("outputs", len(request.outputs), recount.outputs[ref]),
        ("blocks", sorted(blocks), sorted(ledger.owned[ref])),
        ("host blocks", request.host_blocks, ledger.host.get(ref, 0)),
    ]
    for name, theirs, counted in pairs:
        if theirs != counted:
            return f"{name}: {theirs}, the events make it {counted}"
    return None
