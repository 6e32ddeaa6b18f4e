"""What a pass has in hand between two steps, as text, and how a later pass takes it up.

An invariant names what it keeps from step to step: `KEPT` (attribute, type) as it is,
`KEPT_BY_REF` and `KEPT_BY_TICKET` (attribute, type of the values) for live requests and unretired
tickets alone. What all of them count together is the recount's. Nothing of the engine's own state
is read here.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from rlt_fsm.errors import LogError
from rlt_fsm.machines import HELD, NULL, RETIRED
from rlt_fsm.states import RequestStatus, WorkKey

from .facts import Params
from .reader import RunLog
from .ready_work import KeyTally
from .recount import Recount, Request, Ticket
from .token_progress import TokenProgress

WAITING = RequestStatus.WAITING.value


class KeptProgress(msgspec.Struct, frozen=True):
    """`TokenProgress`, attribute by attribute."""

    prompt_end: int
    preluded: int
    done: list[int]
    position: int
    loops: int
    exits: list[int]
    was_rewound: bool
    is_replayed: bool
    last: tuple[int, int]


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A live request: its machines, what it has and what it has come to."""

    ref: int
    status: str
    work: str
    slot: str
    kv: str
    prompt_len: int
    params: Params
    submitted_seq: int
    latest_seq: int
    outputs: int
    scheduled_outputs: int
    progress: KeptProgress | None
    passes: int
    last_ticket: int
    blocks: list[int]
    host_blocks: int | None
    state_row: int | None


class KeptTicket(msgspec.Struct, frozen=True):
    """A ticket that is not retired, or the newest one."""

    number: int
    state: str
    submitted_seq: int
    refs: dict[int, int]


class KeptTally(msgspec.Struct, frozen=True, kw_only=True):
    """A work key's tally; its batches are counted from the oldest that somebody still waits for."""

    ready: dict[int, int]
    batches: int
    last_batch: int
    rows_at: list[int]
    ready_at: list[int]
    scarce: int


class KeptRecount(msgspec.Struct, frozen=True, kw_only=True):
    """The recount, without those who are gone."""

    requests: list[KeptRequest]
    tickets: list[KeptTicket]
    prefix_blocks: list[int]
    prompt_batches: int
    tallies: dict[WorkKey, KeptTally]
    batches: int
    latest_seq: int | None  # of an event of a ticket or the run


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A pass after a step; `rules` by the id of the invariant, or of a part of one."""

    recount: KeptRecount
    rules: dict[str, dict[str, msgspec.Raw]]


def kept_in(run: RunLog) -> Kept | None:
    """What an earlier pass left in the checkpoint with which the run begins here.

    Raises:
        LogError: it cannot be read.
    """
    if run.checkpoint is None:
        return None
    try:
        return msgspec.json.decode(run.checkpoint.audit, type=Kept)
    except msgspec.MsgspecError as error:
        raise LogError(
            f"run {run.info.run_id}: what the auditor left in its checkpoint cannot be read "
            f"({error}): verify it along with its archives"
        ) from error


# ---- what invariants keep ------------------------------------------------------------------------


def keep_attributes(
    rule: object, refs: Container[int], tickets: Container[int]
) -> dict[str, msgspec.Raw]:
    """What an invariant, or a part of one, has in hand."""
    kept = {name: getattr(rule, name) for name in _named(rule, "KEPT")}
    for attribute, wanted in (("KEPT_BY_REF", refs), ("KEPT_BY_TICKET", tickets)):
        for name in _named(rule, attribute):
            every = getattr(rule, name)
            kept[name] = {number: every[number] for number in every if number in wanted}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in kept.items()}


def take_up_attributes(rule: object, kept: Mapping[str, msgspec.Raw]) -> None:
    """Go on with it; before the invariant is asked for its handlers, which hold on to parts."""
    types = _named(rule, "KEPT") | {
        name: dict[int, values]  # type: ignore[valid-type]  # a type made of one that is data
        for attribute in ("KEPT_BY_REF", "KEPT_BY_TICKET")
        for name, values in _named(rule, attribute).items()
    }
    for name, of in types.items():
        setattr(rule, name, msgspec.json.decode(kept[name], type=of))


def _named(rule: object, attribute: str) -> dict[str, Any]:
    return dict(getattr(rule, attribute, ()))


# ---- the recount ---------------------------------------------------------------------------------


def live_refs(recount: Recount) -> frozenset[int]:
    """Who is there: submitted and not retired."""
    return frozenset(ref for ref, status in enumerate(recount.status) if status != NULL)


def keep_recount(recount: Recount, live: Iterable[int]) -> KeptRecount:
    """The recount between two steps."""
    newest = next(reversed(recount.tickets.values()), None)
    tickets = dict(recount.in_flight)
    if newest is not None:
        tickets[newest.number] = newest
    return KeptRecount(
        requests=[_keep_request(recount, ref) for ref in sorted(live)],
        tickets=[
            KeptTicket(ticket.number, ticket.state, ticket.submitted_seq, ticket.refs)
            for ticket in sorted(tickets.values(), key=lambda ticket: ticket.number)
        ],
        prefix_blocks=recount.blocks.prefix_blocks,
        prompt_batches=recount.prompt_batches,
        tallies={key: _keep_tally(tally) for key, tally in recount.ready.by_key.items()},
        batches=recount.ready.batches,
        latest_seq=recount.latest_seq.get(None),
    )


def _keep_request(recount: Recount, ref: int) -> KeptRequest:
    request, ledger = recount.requests[ref], recount.blocks
    progress = recount.progress.get(ref)
    assert request is not None, "who is there was submitted"
    return KeptRequest(
        ref=ref,
        status=recount.status[ref],
        work=recount.work[ref],
        slot=recount.slot[ref],
        kv=recount.kv[ref],
        prompt_len=request.prompt_len,
        params=request.params,
        submitted_seq=request.submitted_seq,
        latest_seq=recount.latest_seq[ref],
        outputs=recount.outputs[ref],
        scheduled_outputs=recount.scheduled_outputs[ref],
        progress=None
        if progress is None
        else KeptProgress(*(getattr(progress, name) for name in KeptProgress.__struct_fields__)),
        passes=recount.passes.get(ref, 0),
        last_ticket=recount.last_ticket[ref],
        blocks=sorted(ledger.owned[ref]),
        host_blocks=ledger.host.get(ref),
        state_row=next((row for row, own in ledger.state_rows.items() if own == ref), None),
    )


def _keep_tally(tally: KeyTally) -> KeptTally:
    oldest = min([*tally.ready.values(), tally.batches])
    return KeptTally(
        ready={ref: since - oldest for ref, since in tally.ready.items()},
        batches=tally.batches - oldest,
        last_batch=tally.last_batch,
        rows_at=[rows - tally.rows_at[oldest] for rows in tally.rows_at[oldest:]],
        ready_at=tally.ready_at[oldest:],
        scarce=max(0, tally.scarce - oldest),
    )


def take_up_recount(recount: Recount, kept: KeptRecount) -> None:
    """Go on with a recount; before any invariant is made, since they hold on to parts of it."""
    for request in kept.requests:
        _take_up_request(recount, request)
    for ticket in kept.tickets:
        own = recount.tickets[ticket.number] = Ticket(ticket.number)
        own.state, own.submitted_seq, own.refs = ticket.state, ticket.submitted_seq, ticket.refs
        if ticket.state != RETIRED:
            recount.in_flight[ticket.number] = own
    recount.blocks.keep_prefixes(kept.prefix_blocks)
    recount.prompt_batches, recount.ready.batches = kept.prompt_batches, kept.batches
    for key, tally in kept.tallies.items():
        own_tally = recount.ready.by_key[key]
        for name in KeptTally.__struct_fields__:
            setattr(own_tally, name, getattr(tally, name))
    if kept.latest_seq is not None:
        recount.latest_seq[None] = kept.latest_seq


def _take_up_request(recount: Recount, kept: KeptRequest) -> None:
    ref, ledger = kept.ref, recount.blocks
    recount.status[ref], recount.work[ref] = kept.status, kept.work
    recount.slot[ref], recount.kv[ref] = kept.slot, kept.kv
    recount.requests[ref] = Request(kept.prompt_len, kept.params, kept.submitted_seq)
    recount.latest_seq[ref] = kept.latest_seq
    recount.outputs[ref] = kept.outputs
    recount.scheduled_outputs[ref] = kept.scheduled_outputs
    recount.last_ticket[ref] = kept.last_ticket
    if kept.passes:
        recount.passes[ref] = kept.passes
    if kept.progress is not None:
        progress = recount.progress[ref] = TokenProgress(kept.prompt_len, 0, recount.model.depths)
        for name in KeptProgress.__struct_fields__:
            setattr(progress, name, getattr(kept.progress, name))
    ledger.hold(ref, kept.blocks)
    if kept.host_blocks is not None:
        ledger.host[ref] = kept.host_blocks
    if kept.state_row is not None:
        ledger.seat(ref, kept.state_row, None)
    if kept.slot == HELD:
        recount.slot_holders.add(ref)
    if kept.status == WAITING:
        recount.waiting.add(ref)
        recount.line.join(ref, recount.order_key(ref))
