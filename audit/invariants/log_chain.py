"""S13: the log itself is whole: every row is there, in order, readable and sealed."""

from itertools import groupby, islice
from operator import lt

from ..chain import GENESIS, step_digest
from ..facts import CloseData, OpenData, decode
from ..legality import Move
from ..reader import CAUSE, EXTRA, MOVE, REF, SEQ, STEP, Event
from ..recount import Step
from ..streaks import Together
from .base import Handler, Invariant
from .causes import Causes
from .headers import first_difference, without_name
from .step_order import PHASES, first_out_of_order


class S13Log(Invariant):
    """The log is gap-free, in order, sealed, and tells its run's beginning and end.

    (a) seq is 1, 2, 3 … without gap; steps never fall; every event has a move and, if it is one of
    a request, a request that the log knows, and the columns and data that its trigger must tell.
    (b) A `cause`, where one is told, is an earlier seq, and the event that led to this one: what
    queued the work for `select`, `grow`, `admit` and `resume`; the ticket's `submit_batch` for its
    completion or failure, and this for `output`, `drop` and `retire_batch`; either this or the
    request's output for `enqueue` and `finish` (an asynchronous `enqueue`: its ticket's
    `submit_batch`, too, or what settled an unretired ticket with a row of the request); the
    request's end for `retire`. (c) The events of a step come in their order: arrivals and aborts
    (with the retires of these), admission and selection, `submit_batch`, its completion or failure,
    outputs, what follows from the rows, `retire_batch`, retires. Asynchronously, what follows from
    results may come at any time after the arrivals and aborts, but not between the rows of a batch
    and its submission. (d) The first event is `open`, and its config and model are those of the
    run's header (but for the model's name); it comes once, and nothing comes after `close`;
    `recover` comes first in its step. (e) Every step has its row, whose first_seq, last_seq and
    digest are those of its events; the chain goes on from the recorded digest, so that each broken
    link is one finding; a last step that was cut off has no row yet. (f) The run's own digest is
    the last step's, its last_seq the last event's, its outcome the one that `close` tells. (g)
    `transition` shows the edges of every event's move, and no others. A log without `close` is not
    a finding but inconclusive.
    """

    id = "S13"
    KEPT = (("_digest", bytes), ("_due_seq", int), ("_last_step", int | None))

    def prepare(self) -> None:
        """Nothing is read; the chain begins at 32 zero bytes."""
        self._digest = GENESIS
        self._due_seq = self._first_seq = 1  # the first: of the step being read
        self._last_step: int | None = None
        self._names: dict[int | None, str | None] = {None: None}
        self.causes = Causes(self.recount, self._wrong_cause)
        self._is_async = self.recount.config.execution.async_scheduling
        self._phases: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self._misshown: set[int] = set()
        self.close_seq: int | None = None
        self.learn()

    def learn(self) -> None:
        """Take up the requests and moves that the run has named since."""
        run = self.recount.run
        for ref in islice(reversed(run.requests), len(run.requests) + 1 - len(self._names)):
            row = run.requests[ref]
            self._names[ref] = f"{row.request_id}#{row.generation}"
        for number in run.moves.keys() - self._texts.keys():
            move = run.moves[number]
            self._texts[number] = move.text()
            if run.shown[number] != move:
                self._misshown.add(number)
            if move.trigger in PHASES:
                self._phases[number] = PHASES[move.trigger]

    def handler(self, move: Move) -> Handler | None:
        """The run's own events, and the causes of all others."""
        match move.trigger:
            case "open":
                return self._opened
            case "close":
                return self._closed
            case "recover":
                return self._recovered
            case _:
                return self.causes.handler(move)

    def together(self, move: Move) -> Together | None:
        """Causes; see there."""
        return self.causes.together(move)

    def _wrong_cause(self, event: Event, due: list[int | None]) -> None:
        known = " or ".join(f"seq {seq}" for seq in due if seq is not None) or "nothing"
        self.found(
            event,
            f"Seq {event[SEQ]} tells as its cause seq {event[CAUSE]}; {known} led to it.",
            cause=event[CAUSE],
            due=[seq for seq in due if seq is not None],
        )

    # ---- the rows of a step, before anyone else reads them -----------------------------------

    def readable(self, step: Step) -> list[Event] | None:
        """Check the rows as rows; those that the other invariants can read, None if all can."""
        columns, first_due = step.columns, self._due_seq
        if step.last_seq is None:
            return None
        if self._last_step is not None and step.number < self._last_step:
            first = step.events(0, 1)[0]
            self._row(first, f"step {step.number} follows step {self._last_step}")
        self._last_step = step.number
        self._due_seq = step.last_seq + 1
        self._first_seq = columns[SEQ][0]
        self._check_frame(step)
        self._check_order(step, self._phases)
        if self._misshown:
            self._check_projection(step)
        seqs = columns[SEQ]
        is_whole = (
            seqs == list(range(first_due, first_due + len(seqs)))
            and self._names.keys() >= set(columns[REF])
            and self._texts.keys() >= set(columns[MOVE])
            and all(map(lt, [cause or 0 for cause in columns[CAUSE]], seqs))
        )
        if is_whole:
            return None
        readable = []
        for event in step.events():
            if self._is_readable(event, first_due):
                readable.append(event)
            first_due = event[SEQ] + 1
        return readable

    def _check_order(self, step: Step, phase_of: dict[int, int]) -> None:
        turns = [phase_of[move] for move, _ in groupby(step.columns[MOVE]) if move in phase_of]
        if first_out_of_order(turns, is_async=self._is_async) is None:
            return
        events = [event for event in step.events() if event[MOVE] in phase_of]
        phases = [phase_of[event[MOVE]] for event in events]
        place = first_out_of_order(phases, is_async=self._is_async)
        if place is not None:
            late, before = events[place], events[place - 1]
            moves = self.recount.run.moves
            self.found(
                late,
                f"`{moves[late[MOVE]].trigger}` (seq {late[SEQ]}) comes after "
                f"`{moves[before[MOVE]].trigger}` in step {step.number}; its place is before it.",
                after_seq=before[SEQ],
            )

    def _check_projection(self, step: Step) -> None:
        run = self.recount.run
        for event in step.events():
            if event[MOVE] in self._misshown:
                shown, told = run.shown[event[MOVE]].text(), run.moves[event[MOVE]].text()
                self.found(
                    event,
                    f"Seq {event[SEQ]} is {shown} in `transition`, {told} in `event`.",
                    transition=shown,
                    event=told,
                )

    def _is_readable(self, event: Event, due: int) -> bool:
        """Say everything that is wrong with a row; False if no invariant can read it."""
        seq, cause = event[SEQ], event[CAUSE]
        if seq != due:
            gap = (
                f"seq {due} is missing" if seq == due + 1 else f"seq {due} to {seq - 1} are missing"
            )
            self._row(event, gap if seq > due else f"seq {seq} comes where {due} is due", due=due)
        if cause is not None and not 0 < cause < seq:
            self.found(event, f"Seq {seq} tells as its cause seq {cause}, which is not before it.")
        if event[REF] not in self._names:
            self._row(event, f"seq {seq} is of ref {event[REF]}, which the log does not name")
            return False
        if event[MOVE] not in self._texts:
            self._row(event, f"seq {seq} has move {event[MOVE]}, which the log does not define")
            return False
        return True

    def _check_frame(self, step: Step) -> None:
        """`open` comes first, and nothing comes after `close`."""
        if self.close_seq is None and step.columns[SEQ][0] != 1:
            return
        (first,) = step.events(0, 1)
        if self.close_seq is not None:
            self._row(first, f"seq {first[SEQ]} comes after `close` (seq {self.close_seq})")
        move = self.recount.run.moves.get(first[MOVE])
        if first[SEQ] == 1 and move is not None and move.trigger != "open":
            self._row(first, f"the run begins with `{move.trigger}`, not with `open`")

    def _row(self, event: Event, what: str, **evidence: object) -> None:
        self.found(event, f"{what[0].upper()}{what[1:]}.", part="row", **evidence)

    def malformed(self, event: Event, what: str) -> None:
        """A row that another invariant could not read; `what` says why."""
        self._row(event, f"seq {event[SEQ]} cannot be read: {what}")

    # ---- the run's own events ----------------------------------------------------------------

    def _opened(self, event: Event) -> None:
        if event[SEQ] != 1:
            self._row(event, f"the run is opened again at seq {event[SEQ]}")
            return
        if event[EXTRA] is None and self.recount.run.is_foreign:
            return
        told = decode(event[EXTRA], OpenData)
        info = self.recount.run.info
        for name, text, raw in (
            ("config", info.config, told.config),
            ("model", info.model, told.model),
        ):
            recorded, opened = without_name(text), without_name(bytes(raw))
            if recorded != opened:
                where = first_difference(recorded, opened)
                self.found(
                    event,
                    f"The run's header and its `open` differ in {name}{where[0]}: {where[1]} and "
                    f"{where[2]}.",
                    field=f"{name}{where[0]}",
                    header=where[1],
                    open=where[2],
                )

    def _recovered(self, event: Event) -> None:
        if event[SEQ] != self._first_seq:
            self.found(
                event,
                f"`recover` (seq {event[SEQ]}) comes within step {event[STEP]}, which begins with "
                f"seq {self._first_seq}; it must be the first.",
            )

    def _closed(self, event: Event) -> None:
        if self.close_seq is not None:
            self._row(event, f"the run is closed again at seq {event[SEQ]}")
            return
        self.close_seq = event[SEQ]
        outcome = decode(event[EXTRA], CloseData).outcome
        recorded = self.recount.run.info.outcome
        if recorded != outcome:
            self.found(
                event,
                f"The run's outcome is recorded as {recorded}; its `close` tells {outcome}.",
                recorded=recorded,
                outcome=outcome,
            )

    # ---- the seal of a step ------------------------------------------------------------------

    def after_step(self, step: Step) -> None:
        """Compare the row with the events; the chain goes on from the recorded digest."""
        row = step.row
        if step.has_close and step.last_seq != self.close_seq:
            (after,) = step.events(step.length - 1)
            self._row(after, f"seq {after[SEQ]} comes after `close` (seq {self.close_seq})")
        if row is None:
            is_due = "step" not in self.recount.run.absent
            if is_due and step.has_ended and not step.is_before_recovery:
                self.found_in_step(
                    step, f"Step {step.number} has {step.length} events, but no row in `step`."
                )
            return
        last = row.last_seq if step.last_seq is None else step.last_seq
        first = step.columns[SEQ][0] if step.length else last + 1
        self.compare_row(step, row, "first_seq", first)
        self.compare_row(step, row, "last_seq", last)
        if not row.digest and self.recount.run.is_foreign:
            return
        digest = step_digest(self._digest, step.number, step.columns, self._names, self._texts)
        self._digest = row.digest
        if digest != row.digest:
            self.found_in_step(
                step,
                f"Step {step.number} is sealed with digest {row.digest.hex()[:16]}…; its "
                f"{step.length} events (seq {first} to {last}) give {digest.hex()[:16]}….",
                recorded=row.digest.hex(),
                recomputed=digest.hex(),
                first_seq=first,
                last_seq=last,
            )

    def at_end(self, last: Step) -> None:
        """Compare the header's digest and last_seq with those of the last step."""
        info = self.recount.run.info
        if self.close_seq is None:
            return
        is_sealed = self._digest != GENESIS or not self.recount.run.is_foreign
        if is_sealed and info.digest is not None and info.digest != self._digest.hex():
            self.found_in_step(
                last,
                f"The run's digest is recorded as {info.digest[:16]}…; its last step's is "
                f"{self._digest.hex()[:16]}….",
                recorded=info.digest,
                last_step=self._digest.hex(),
            )
        if info.last_seq != self._due_seq - 1:
            self.found_in_step(
                last,
                f"The run's last_seq is recorded as {info.last_seq}; its last event is seq "
                f"{self._due_seq - 1}.",
                recorded=info.last_seq,
                last_event=self._due_seq - 1,
            )
