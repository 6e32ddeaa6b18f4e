"""S8: which outputs a request may have."""

from typing import NamedTuple

from rlt_fsm.states import FinishReason, WorkKey

from ..facts import FinishData, decode
from ..legality import Move
from ..reader import EXTRA, REF, SEQ, A, B, C, D, Event
from ..recount import Request
from ..streaks import Streak, Together
from .base import Handler, Invariant


class _Bounds(NamedTuple):
    """What a request's own parameters let its outputs be; loop counts are 1-based."""

    outputs: int
    full: int
    least: int
    most: int
    exit_depths: tuple[int, ...] | None
    stops: frozenset[int]
    may_tell_logprob: bool


class S8Outputs(Invariant):
    """Outputs are numbered without gap, within their limits, and end where the request says.

    By request: idx is 0, 1, 2 …; at most max_tokens of them, and at most max_model_len - prompt_len
    + 1; none after one that stops the request (an EOS unless ignore_eos, or a stop id, each from
    output number min_tokens on). Output 0 is at full depth, every other within [min_loops,
    max_loops] (max_loops null: full depth), at its own entry of exit_depths where these are given,
    and at max_loops where exit_threshold is 1. Token ids are in the vocabulary; a logprob is there
    only when asked for. `finish` tells `stop` after an output that stops, `length` after the last
    that the limits allow (`error` and `transferred` any time). Synchronously, decoding goes on only
    after an output that does not end the request, one for each coda; asynchronously a coda is
    selected only when the output of the one before is there, so that nothing is sampled twice. A
    coda whose output a crash took is run again after the `rewind`.
    """

    id = "S8"
    KEPT_BY_REF = (("_stopped", int), ("_codas", int))

    def prepare(self) -> None:
        """Nobody has stopped."""
        self._stopped: dict[int, int] = {}  # ref → seq of the output that stopped it
        self._bounds: dict[int, _Bounds] = {}  # by ref, for streaks
        self._codas: dict[int, int] = {}  # ref → codas selected
        self._is_async = self.recount.config.execution.async_scheduling

    def handler(self, move: Move) -> Handler | None:
        """Outputs, the end, and the way on: synchronously to the next token, else to its coda."""
        match move.trigger:
            case "select" if move.work is not None and self._is_async:
                is_coda = move.work[1] == f"TAKEN:{WorkKey.DECODE_CODA}"
                return self._samples if is_coda else None
            case "output":
                return self._output
            case "finish":
                return self._finish
            case "rewind":
                return self._rewound
            case "enqueue" if move.work is not None and not self._is_async:
                is_next_token = move.work == (
                    f"TAKEN:{WorkKey.DECODE_CODA}",
                    f"QUEUED:{WorkKey.DECODE_PRELUDE}",
                )
                return self._goes_on if is_next_token else None
            case _:
                return None

    def together(self, move: Move) -> Together | None:
        """Outputs that nothing is wrong with and that stop nobody, and what goes on after them."""
        match move.trigger:
            case "output":
                return Together(self._are_plain, self._note_outputs)
            case "enqueue":
                return Together(self._go_on, self._note_codas)
            case "select":
                return Together(self._may_sample, self._note_samples)
            case _:
                return None

    def _are_plain(self, streak: Streak) -> bool:
        outputs, requests, stopped = self.recount.outputs, self.recount.requests, self._stopped
        vocab_size = self.recount.model.vocab_size
        most = 1 << 62 if vocab_size is None else vocab_size
        if not 0 <= min(streak.b) <= max(streak.b) < most:
            return False
        for ref, idx, token, exit_depth, logprob in zip(
            streak.refs, streak.a, streak.b, streak.c, streak.d, strict=True
        ):
            request = requests[ref]
            if request is None or idx != outputs[ref] or ref in stopped:
                return False
            bounds = self._bounds.get(ref) or self._note_bounds(ref, request)
            is_plain = (
                idx < bounds.outputs
                and token not in bounds.stops
                and (logprob is None or bounds.may_tell_logprob)
                and (
                    bounds.least <= exit_depth <= bounds.most if idx else exit_depth == bounds.full
                )
            )
            if not is_plain or bounds.exit_depths is not None:
                return False
        return True

    def _note_bounds(self, ref: int, request: Request) -> _Bounds:
        params, model = request.params, self.recount.model
        most = model.depths if params.max_loops is None else params.max_loops
        stops = {*params.stop_token_ids, *(() if params.ignore_eos else model.eos_token_ids)}
        bounds = self._bounds[ref] = _Bounds(
            outputs=self._limit(request),
            full=model.depths,
            least=most if params.exit_threshold >= 1.0 else params.min_loops,
            most=most,
            exit_depths=params.exit_depths,
            stops=frozenset(stops),
            may_tell_logprob=params.logprobs is not None,
        )
        return bounds

    def _note_outputs(self, streak: Streak) -> None:
        outputs, scheduled = self.recount.outputs, self.recount.scheduled_outputs
        for ref in streak.refs:
            outputs[ref] = scheduled[ref] = outputs[ref] + 1

    def _go_on(self, streak: Streak) -> bool:
        outputs, codas, stopped = self.recount.outputs, self._codas, self._stopped
        return all(
            ref not in stopped and codas.get(ref, 0) < outputs[ref] < self._bounds[ref].outputs
            for ref in streak.refs
        )

    def _note_codas(self, streak: Streak) -> None:
        codas = self._codas
        for ref in streak.refs:
            codas[ref] = codas.get(ref, 0) + 1

    def _may_sample(self, streak: Streak) -> bool:
        outputs, scheduled = self.recount.outputs, self.recount.scheduled_outputs
        return all(scheduled[ref] <= outputs[ref] for ref in streak.refs)

    def _note_samples(self, streak: Streak) -> None:
        outputs, scheduled = self.recount.outputs, self.recount.scheduled_outputs
        for ref in streak.refs:
            scheduled[ref] = outputs[ref] + 1

    def _output(self, event: Event) -> None:
        ref, idx = event[REF], event[A]
        outputs = self.recount.outputs
        due = outputs[ref]
        outputs[ref] = max(due, idx) + 1 if idx >= 0 else due
        self.recount.scheduled_outputs[ref] = outputs[ref]
        request = self.recount.requests[ref]
        if request is None:
            return
        if idx != due:
            self._wrong(event, f"output {idx} where output {due} is due", due=due)
        if ref in self._stopped:
            seq = self._stopped[ref]
            self._wrong(event, f"output {idx} after the one that stopped it (seq {seq})", stop=seq)
        if idx >= (limit := self._limit(request)):
            self._wrong(event, f"output {idx}, but may have {limit} outputs", limit=limit)
        self._check_depth(event, request)
        self._check_token(event, request)
        if self._stops(request, event):
            self._stopped.setdefault(ref, event[SEQ])

    def _limit(self, request: Request) -> int:
        max_model_len = self.recount.model.max_model_len
        if max_model_len is None:
            return request.params.max_tokens
        return min(request.params.max_tokens, max_model_len - request.prompt_len + 1)

    def _stops(self, request: Request, event: Event) -> bool:
        params, token = request.params, event[B]
        is_eos = not params.ignore_eos and token in self.recount.model.eos_token_ids
        return event[A] + 1 >= params.min_tokens and (is_eos or token in params.stop_token_ids)

    def _check_depth(self, event: Event, request: Request) -> None:
        idx, exit_depth, params = event[A], event[C], request.params
        full = self.recount.model.depths
        least, most = params.min_loops, full if params.max_loops is None else params.max_loops
        if idx == 0:
            least = most = full
        elif params.exit_depths is not None and idx < len(params.exit_depths):
            least = most = params.exit_depths[idx]
        elif params.exit_threshold >= 1.0:
            least = most
        if not least <= exit_depth <= most:
            allowed = str(most) if least == most else f"{least} to {most}"
            self._wrong(
                event,
                f"output {idx} at exit depth {exit_depth}, where {allowed} is due",
                exit_depth=exit_depth,
                allowed=[least, most],
            )

    def _check_token(self, event: Event, request: Request) -> None:
        vocab_size = self.recount.model.vocab_size
        if vocab_size is not None and not 0 <= event[B] < vocab_size:
            self._wrong(
                event,
                f"output {event[A]} with token {event[B]}, outside a vocabulary of {vocab_size}",
                token_id=event[B],
            )
        if event[D] is not None and request.params.logprobs is None:
            self._wrong(event, f"output {event[A]} with a logprob that was not asked for")

    def _wrong(self, event: Event, what: str, **evidence: object) -> None:
        evidence["idx"] = event[A]
        self.found(event, f"{self.recount.name(event[REF])} has {what}.", part="", **evidence)

    def _finish(self, event: Event) -> None:
        ref = event[REF]
        request = self.recount.requests[ref]
        reason = decode(event[EXTRA], FinishData).finish_reason
        if request is None:
            return
        outputs, limit = self.recount.outputs[ref], self._limit(request)
        ends = {
            FinishReason.STOP.value: ref in self._stopped,
            FinishReason.LENGTH.value: outputs >= limit,
        }
        if not ends.get(reason, reason in (FinishReason.ERROR, FinishReason.TRANSFERRED)):
            self.found(
                event,
                f"{self.recount.name(ref)} finishes with `{reason}` after {outputs} of {limit} "
                f"outputs, {'one of which' if ref in self._stopped else 'none of which'} stops it.",
                finish_reason=reason,
                outputs=outputs,
                limit=limit,
                stop=self._stopped.get(ref),
            )

    def _samples(self, event: Event) -> None:
        """Asynchronously: a coda is submitted, the outputs of the earlier ones are there."""
        ref = event[REF]
        outputs, codas = self.recount.outputs[ref], self.recount.scheduled_outputs[ref]
        self.recount.scheduled_outputs[ref] = max(codas, outputs) + 1
        if codas > outputs:
            self.found(
                event,
                f"A coda of {self.recount.name(ref)} is selected while the output of the one "
                f"before is under way: {codas} codas, {outputs} outputs.",
                codas=codas,
                outputs=outputs,
            )

    def _rewound(self, event: Event) -> None:
        """What was under way comes no more."""
        ref, outputs = event[REF], self.recount.outputs[event[REF]]
        self.recount.scheduled_outputs[ref] = outputs
        self._codas[ref] = min(self._codas.get(ref, 0), outputs)

    def _goes_on(self, event: Event) -> None:
        """Synchronously: a token's coda is over, its output is there, and it was not the last."""
        ref = event[REF]
        request = self.recount.requests[ref]
        if request is None:
            return
        outputs = self.recount.outputs[ref]
        codas = self._codas[ref] = self._codas.get(ref, 0) + 1
        if codas > outputs:
            self._codas[ref] = outputs
            self.found(
                event,
                f"{self.recount.name(ref)} goes on to its next token after {codas} codas, but has "
                f"{outputs} outputs.",
                codas=codas,
                outputs=outputs,
            )
        elif ref in self._stopped or outputs >= self._limit(request):
            self.found(
                event,
                f"{self.recount.name(ref)} goes on to its next token after output {outputs - 1}, "
                "which ended it.",
                outputs=outputs,
                stop=self._stopped.get(ref),
            )
