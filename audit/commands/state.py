"""`rlt-audit state`: everything that an engine held at one place of its log."""

from typing import Annotated

import typer

from audit.replay import replay
from audit.request_state import RequestState
from audit.run_state import RunState
from audit.words import VERDICTS, in_words, joined, shown
from rlt_fsm.errors import LogError

from .common import mistakes_in_one_sentence, print_json
from .tables import aligned

MAX_ROWS = 40  # of requests; --json has all
HEAD = ("request", "status", "work", "row", "kv", "blocks", "prefill", "outputs", "since", "")
HELP = """Show the state of an engine at one place of its log: queues, slots, blocks, requests.

Example: rlt-audit state run.db --step 12

Give --seq (after that event; 0 is before the first) or --step (after its last event), or neither
for the end of the log.

Exit status: 0, or 2 where the log cannot be read or has no such place.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="state", help=HELP)(_state)


def _state(
    db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
    seq: Annotated[int | None, typer.Option(help="After this event.", metavar="N")] = None,
    step: Annotated[int | None, typer.Option(help="After this step.", metavar="N")] = None,
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the state as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence():
        if seq is not None and step is not None:
            raise LogError("--seq and --step both name a place: give one of them")
        with replay(db, run) as opened:
            is_end = seq is None and step is None
            state = opened.end() if is_end else opened.at(seq=seq, step=step)
    if as_json:
        print_json(state.as_dict())
    else:
        typer.echo(render(state))


def render(state: RunState) -> str:
    """The state as text."""
    lines = [
        f"run {state.run_id} after seq {state.seq}, step {state.step}"
        + (f": closed, {state.outcome}" if state.outcome else ""),
        "",
        f"requests  {_requests(state)}",
        f"slots     {_slots(state)}",
        f"blocks    {_blocks(state)}",
        *(f"ticket    {line}" for line in _tickets(state)),
        *(f"waiting   {line}" for line in _waiting(state)),
        *(f"queued    {line}" for line in _queues(state)),
    ]
    if state.requests:
        lines += ["", *_table(state)]
    if state.notes:
        lines += ["", *(f"note: {note}" for note in state.notes)]
    return "\n".join(lines)


def _requests(state: RunState) -> str:
    gone = f"{state.submitted:,} submitted, {state.refused:,} refused, {state.retired:,} retired"
    return f"{gone}, {len(state.requests):,} alive"


def _slots(state: RunState) -> str:
    holders = state.slot_holders
    total = "" if state.slots is None else f" of {state.slots}"
    by = ": " + joined(shown(request.name) for request in holders) if holders else ""
    return f"{len(holders)}{total} held{by}"


def _blocks(state: RunState) -> str:
    referenced = len(state.references)
    if state.cache.num_blocks is None:
        return f"{referenced:,} referenced of an unknown number"
    return (
        f"{referenced:,} of {state.cache.num_blocks:,} referenced, {len(state.free_blocks):,} "
        f"free, {len(state.prefix_only):,} kept by the prefix cache alone; "
        f"{state.host_blocks:,} on the host"
    )


def _tickets(state: RunState) -> list[str]:
    lines = []
    for ticket in state.tickets.values():
        is_built = ticket.submitted_seq is None
        what = "being built" if is_built else f"{ticket.state}, {'+'.join(ticket.works)}"
        names = (
            shown(state.requests[ref].name) if ref in state.requests else f"ref {ref}"
            for ref in ticket.refs
        )
        lines.append(f"{ticket.number} ({what}): {joined(names)}")
    return lines


def _waiting(state: RunState) -> list[str]:
    waiting = state.waiting
    if not waiting:
        return ["nobody"]
    return [f"{len(waiting):,}, the best first: {joined(shown(r.name) for r in waiting)}"]


def _queues(state: RunState) -> list[str]:
    return [
        f"{key}: {joined(shown(request.name) for request in queue)}"
        for key, queue in state.queues.items()
        if queue
    ]


def _table(state: RunState) -> list[str]:
    rows: list[tuple[str, ...]] = [HEAD]
    first = dict.fromkeys(request.ref for request in (*state.slot_holders, *state.waiting))
    in_order = [state.requests[ref] for ref in {**first, **dict.fromkeys(state.requests)}]
    rows += [_row(request) for request in in_order[:MAX_ROWS]]
    lines = aligned(rows, right=(3, 5, 6, 7))
    if len(in_order) > MAX_ROWS:
        lines.append(f"… {len(in_order) - MAX_ROWS:,} more: --json has them all")
    return lines


def _row(request: RequestState) -> tuple[str, ...]:
    verdict = request.verdict
    done = request.frontiers[-1] if request.frontiers else 0
    return (
        shown(request.name),
        request.status,
        request.work,
        "" if request.state_row is None else str(request.state_row),
        request.kv,
        str(request.host_blocks or request.blocks),
        f"{done}/{request.prefill_tokens}",
        f"{len(request.outputs)}/{request.params.max_tokens}",
        f"step {request.queued_step}",
        "" if verdict is None else in_words(verdict.reason, VERDICTS),
    )
