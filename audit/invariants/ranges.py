"""S7: which positions are computed at which depth, and in what order."""

from rlt_fsm.states import WorkKey

from ..decode_streaks import DecodeStreaks
from ..facts import BlockData, decode
from ..legality import Move
from ..reader import EXTRA, REF, TICKET, A, B, C, D, E, Event
from ..streaks import Together
from ..token_progress import TokenProgress
from .base import Handler, Invariant

PROMPT_KEYS = ("PROMPT_ATOMIC", "PROMPT_RECURRENT")  # those that can end a prompt


class S7Ranges(Invariant):
    """Each depth below a token's exit depth is computed exactly once, in order.

    By request, counting a row when it is selected. Prompt: PROMPT_ATOMIC rows start where the last
    one ended, from the cached tokens on, and do not pass the prompt's end; with split prefill
    PROMPT_PRELUDE rows do so, and PROMPT_RECURRENT rows at depth d continue depth d's own range,
    never beyond what depth d - 1 (depth 0: the prelude) has done. The request goes on to
    DECODE_CODA only when the whole prompt is done at every depth, with the full depth as exit
    depth. Decode: PRELUDE, RECURRENT and CODA rows are one token at prompt_len - 1 + (codas so
    far); RECURRENT depths are 0, 1, 2 … without gap or repetition; `enqueue` to DECODE_CODA names
    as exit depth exactly the loops that were run; so does the `output` that comes of it.
    Exceptions: cached tokens are not computed; the rows of a failed batch count as not computed;
    after a `rewind` everything starts anew, prompt rows marked replay = 1 also cover the outputs
    but the last, and DECODE_PRELUDE follows them without a coda; late work that is dropped has no
    output. Rows of SPECULATIVE are not followed.
    """

    id = "S7"

    def prepare(self) -> None:
        """Nothing is computed."""
        self._depths = self.recount.model.depths
        self._progress = self.recount.progress

    def handler(self, move: Move) -> Handler | None:
        """By trigger, and for `select` and `enqueue` by work key."""
        handlers: dict[str, Handler] = {
            "admit": self._admitted,
            "activate": self._activated,
            "output": self._output,
            "fail_batch": self._failed,
            "retire": self._retired,
        }
        if move.trigger in ("select", "enqueue") and move.work is not None:
            source, dest = (state.partition(":")[2] for state in move.work)
            return self._select(dest) if move.trigger == "select" else self._enqueue(source, dest)
        return handlers.get(move.trigger)

    def _select(self, key: str) -> Handler | None:
        handlers: dict[str, Handler] = {
            WorkKey.PROMPT_ATOMIC: self._prompt_tokens,
            WorkKey.PROMPT_PRELUDE: self._prompt_tokens,
            WorkKey.PROMPT_RECURRENT: self._prompt_depth,
            WorkKey.DECODE_PRELUDE: self._decode_prelude,
            WorkKey.DECODE_RECURRENT: self._decode_depth,
            WorkKey.DECODE_CODA: self._coda,
        }
        return handlers.get(key)

    def _enqueue(self, source: str, dest: str) -> Handler | None:
        if dest == WorkKey.DECODE_CODA:
            return self._prompt_ends if source in PROMPT_KEYS else self._loops_end
        if dest in (WorkKey.DECODE_PRELUDE, WorkKey.SPECULATIVE) and source in PROMPT_KEYS:
            return self._coda_skipped
        return None

    def together(self, move: Move) -> Together | None:
        """Decode rows, the end of their loops, and outputs."""
        return DecodeStreaks(self._progress, self._depths).together(move)

    # ---- a request enters, leaves, starts anew -----------------------------------------------

    def _admitted(self, event: Event) -> None:
        ref = event[REF]
        request = self.recount.requests[ref]
        if request is None:  # no `submit`: S1 says so
            return
        cached_tokens = decode(event[EXTRA], BlockData).cached_tokens
        progress = TokenProgress(request.prompt_len, cached_tokens, self._depths)
        before = self._progress.get(ref)
        if before is not None:  # it was rewound: its outputs but the last are replayed
            progress.was_rewound = True
            progress.exits = before.exits[: self.recount.outputs[ref]]
            progress.prompt_end += max(0, len(progress.exits) - 1)
            progress.position += len(progress.exits)
        self._progress[ref] = progress

    def _activated(self, event: Event) -> None:
        """A peer computed the prompt."""
        request = self.recount.requests[event[REF]]
        if request is not None:
            progress = TokenProgress(request.prompt_len, request.prompt_len, self._depths)
            progress.exits.append(self._depths)
            self._progress[event[REF]] = progress

    def _retired(self, event: Event) -> None:
        self._progress.pop(event[REF], None)

    def _failed(self, event: Event) -> None:
        """Rows of a failed batch were not computed."""
        ticket = self.recount.tickets.get(event[TICKET])
        for ref in ticket.refs if ticket is not None else ():
            progress = self._progress.get(ref)
            if progress is None:
                continue
            depth, tokens = progress.last
            match self.recount.work[ref]:
                case "TAKEN:PROMPT_ATOMIC":
                    progress.preluded -= tokens
                    progress.done = [progress.preluded] * self._depths
                case "TAKEN:PROMPT_PRELUDE":
                    progress.preluded -= tokens
                case "TAKEN:PROMPT_RECURRENT":
                    progress.done[depth] -= tokens
                case "TAKEN:DECODE_RECURRENT":
                    progress.loops -= 1
                case "TAKEN:DECODE_CODA":
                    progress.position -= 1
                case _:
                    pass

    # ---- prompt rows -------------------------------------------------------------------------

    def _prompt_tokens(self, event: Event) -> None:
        """PROMPT_ATOMIC and PROMPT_PRELUDE: the next tokens."""
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        start, end = event[B], event[B] + event[C]
        if start != progress.preluded:
            self._wrong(event, f"starts at position {start}", f"{progress.preluded} is due")
        if end > progress.prompt_end:
            self._wrong(
                event, f"ends at position {end}", f"the prompt ends at {progress.prompt_end}"
            )
        if event[D] is not None:
            self._wrong(event, f"tells depth {event[D]}", "it has none")
        self._check_replay(event, progress)
        progress.preluded = end
        progress.last = (0, event[C])
        if self.recount.work[event[REF]] == "TAKEN:PROMPT_ATOMIC":
            progress.done = [end] * self._depths

    def _prompt_depth(self, event: Event) -> None:
        """PROMPT_RECURRENT: one depth of an interval."""
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        start, end, depth = event[B], event[B] + event[C], int(event[D] or 0)
        if not 0 <= depth < self._depths:
            self._wrong(event, f"runs depth {depth}", f"the model has {self._depths}")
            return
        ready = progress.done[depth - 1] if depth else progress.preluded
        if start != progress.done[depth]:
            self._wrong(event, f"starts at position {start}", f"{progress.done[depth]} is due")
        if end > ready:
            self._wrong(event, f"ends at position {end}", f"only {ready} are ready for it")
        self._check_replay(event, progress)
        progress.done[depth] = end
        progress.last = (depth, event[C])

    def _check_replay(self, event: Event, progress: TokenProgress) -> None:
        progress.is_replayed = bool(int(event[E]))  # NULL is neither
        if event[E] and not progress.was_rewound:
            self._wrong(event, "is marked as a replay", "nothing of it was lost")

    def _prompt_ends(self, event: Event) -> None:
        """A prompt goes on to its first coda."""
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        name = self.recount.name(event[REF])
        for depth, done in enumerate(progress.done):
            if done != progress.prompt_end:
                self.found(
                    event,
                    f"{name} goes on to its coda with {done} of {progress.prompt_end} prompt "
                    f"tokens computed at depth {depth}.",
                    depth=depth,
                    computed=done,
                    prompt_len=progress.prompt_end,
                )
                break
        if event[A] != self._depths:
            self._wrong_exit(event, event[A], self._depths)
        progress.exits.append(event[A])

    def _coda_skipped(self, event: Event) -> None:
        """A prompt goes on to decode: only after a replay, whose outputs exist already."""
        progress = self._progress.get(event[REF])
        if progress is not None and not (progress.is_replayed and progress.exits):
            self.found(
                event,
                f"{self.recount.name(event[REF])} goes from its prompt to decode without a coda, "
                "although it has no outputs to replay.",
                outputs=len(progress.exits),
            )

    # ---- decode rows -------------------------------------------------------------------------

    def _decode_prelude(self, event: Event) -> None:
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        progress.loops = 0
        if event[B] != progress.position or event[C] != 1 or int(event[E]) or event[D] is not None:
            self._wrong_token(event, progress)

    def _decode_depth(self, event: Event) -> None:
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        if event[B] != progress.position or event[C] != 1 or int(event[E]):
            self._wrong_token(event, progress)
        depth = event[D]
        if depth != progress.loops:
            self._wrong(event, f"runs depth {depth}", f"depth {progress.loops} is due")
        if progress.loops >= self._depths:
            self._wrong(event, f"runs depth {depth}", f"the model has {self._depths}")
        progress.loops += 1

    def _loops_end(self, event: Event) -> None:
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        if event[A] != progress.loops:
            self._wrong_exit(event, event[A], progress.loops)
        progress.exits.append(event[A])

    def _coda(self, event: Event) -> None:
        progress = self._progress.get(event[REF])
        if progress is None:
            return
        if event[B] != progress.position or event[C] != 1 or int(event[E]) or event[D] is not None:
            self._wrong_token(event, progress)
        progress.position += 1

    def _output(self, event: Event) -> None:
        progress = self._progress.get(event[REF])
        idx, exit_depth = event[A], event[C]
        if progress is None or not 0 <= idx < len(progress.exits):
            return  # the count of outputs is S8's
        if exit_depth != progress.exits[idx]:
            self._wrong_exit(event, exit_depth, progress.exits[idx])

    # ---- what to say -------------------------------------------------------------------------

    def _wrong(self, event: Event, does: str, but: str) -> None:
        self.found(
            event,
            f"Row {event[A]} of ticket {event[TICKET]}, {self.recount.name(event[REF])}, {does}, "
            f"but {but}.",
            ticket=event[TICKET],
            row=event[A],
            token_start=event[B],
            token_count=event[C],
            depth=event[D],
        )

    def _wrong_token(self, event: Event, progress: TokenProgress) -> None:
        if event[B] != progress.position or event[C] != 1:
            covers = f"covers positions {event[B]} to {event[B] + event[C]}"
            self._wrong(event, covers, f"the one token at {progress.position} is due")
        elif event[E]:
            self._wrong(event, "is marked as a replay", "only prompt rows replay")
        else:
            self._wrong(event, f"tells depth {event[D]}", "it has none")

    def _wrong_exit(self, event: Event, told: int, run: int) -> None:
        self.found(
            event,
            f"{self.recount.name(event[REF])} is told to exit at depth {told}; its token ran "
            f"{run} loops.",
            exit_depth=told,
            loops=run,
        )
