"""The tickets in flight: submitted, settled, applied, retired. Decides nothing about scheduling.

Batches are settled in the order in which the runner completes them, and the log keeps that order.
A result is applied once no earlier ticket in flight has a row of the same request, so that every
request sees its results in the order of submission. Synchronously one ticket is in flight.
"""

from collections.abc import Iterator

from structlog.typing import FilteringBoundLogger

from .batch import Batch, BatchResult, Runner
from .errors import DeviceLost
from .events import BatchRetired, Retired
from .interpret import Interpreter
from .outputs import RequestOutput
from .recorder import Recorder
from .state import EngineState, Request


class _Entry:
    """A ticket in flight; `result` is None until it is settled."""

    __slots__ = ("batch", "refs", "result")

    def __init__(self, batch: Batch, refs: list[int]) -> None:
        self.batch = batch
        self.refs = refs
        self.result: BatchResult | None = None


class Flight:
    """Hands batches to the runner and takes their results back."""

    def __init__(
        self,
        state: EngineState,
        recorder: Recorder,
        runner: Runner,
        log: FilteringBoundLogger,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._runner = runner
        self._log = log
        self._interpreter = Interpreter(state, recorder)
        self._entries: dict[int, _Entry] = {}  # by ticket, in the order of submission
        self._refused: list[BatchResult] = []  # of batches that the device did not even take
        execution = state.config.execution
        self._is_async = state.is_async
        self._most = execution.max_in_flight if self._is_async else 1

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        """Whether nothing can be submitted until something has landed."""
        return len(self._entries) >= self._most

    @property
    def _known(self) -> str:
        return " or ".join(map(str, self._entries))

    @property
    def is_undecided(self) -> bool:
        """Whether the next loop of some request waits for a result in flight."""
        return self._interpreter.is_undecided

    # ---- up ----------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> None:
        """Submit a planned batch; with durability `step` its plan is durable before."""
        self._recorder.intent()
        self._entries[batch.ticket] = _Entry(batch, self._state.tickets[batch.ticket].refs)
        try:
            self._runner.submit(batch)
        except (AssertionError, DeviceLost):  # we are wrong, or nothing more can run: stop
            raise
        except Exception as error:  # noqa: BLE001  # whatever the device raises fails the batch alone
            self._refused.append(self._failure(batch, error))
            return
        if self._is_async:
            self._interpreter.advance(batch)

    # ---- down --------------------------------------------------------------------------------

    def land(self, *, wait: bool) -> list[RequestOutput]:
        """Take in what the runner has completed (with `wait`: at least one batch) and record what
        it means; the outputs it brought.
        """
        results = self._results(wait=wait)
        if results:
            self._recorder.tick()
        outputs: list[RequestOutput] = []
        for result in results:
            entry = self._entries.get(result.ticket)
            assert entry is not None, f"ticket {result.ticket} where {self._known} was due"
            assert entry.result is None, f"ticket {result.ticket} is settled twice"
            entry.result = result
            self._interpreter.settle(entry.batch, result)
            for due, its_result in self._due():
                outputs += self._apply(due, its_result)
        return outputs

    def _results(self, *, wait: bool) -> list[BatchResult]:
        results, self._refused = self._refused, []
        if len(results) == sum(1 for entry in self._entries.values() if entry.result is None):
            return results
        try:
            results += self._runner.collect() if wait and not results else self._runner.poll()
        except (AssertionError, DeviceLost):
            raise
        except Exception as error:  # noqa: BLE001  # the device as a whole: all it had fails
            known = {result.ticket for result in results}
            results += [
                self._failure(entry.batch, error)
                for ticket, entry in self._entries.items()
                if entry.result is None and ticket not in known
            ]
        return results

    def _failure(self, batch: Batch, error: Exception) -> BatchResult:
        """A failed batch's result: a code and the error's class; its text may name paths."""
        self._log.error("batch failed", step=batch.step, ticket=batch.ticket, exc_info=error)
        return BatchResult(batch.ticket, error=f"device-error kind={type(error).__name__}")

    def _due(self) -> Iterator[tuple[_Entry, BatchResult]]:
        """Take out the settled tickets that no unsettled one before them holds back."""
        if len(self._entries) == 1:
            (entry,) = self._entries.values()
            due = [entry]
        else:
            held: set[int] = set()  # refs that earlier tickets still have a row of
            due = []
            for entry in self._entries.values():
                if entry.result is not None and held.isdisjoint(entry.refs):
                    due.append(entry)
                else:
                    held.update(entry.refs)
        for entry in due:
            if entry.result is not None:
                del self._entries[entry.batch.ticket]
                yield entry, entry.result

    def _apply(self, entry: _Entry, result: BatchResult) -> list[RequestOutput]:
        """Record what a ticket's result means, retire it, and those that ended with it."""
        state, ticket = self._state, entry.batch.ticket
        advanced = self._interpreter.complete(entry.batch, result)
        outputs = [output_of(request) for request in advanced]
        settled = state.tickets[ticket].settled_seq
        self._recorder.record(BatchRetired(), ticket=ticket, cause=settled)
        touched = advanced
        if self._is_async:  # it may have been the last ticket of a request that ended before
            touched = [state.by_ref[ref] for ref in entry.refs if ref in state.by_ref]
        for request in touched:
            if request.finish_reason is not None:
                self.end(request)
        return outputs

    # ---- the end of a request ----------------------------------------------------------------

    def end(self, request: Request) -> None:
        """A request has ended: retire it, unless a ticket in flight still has a row of it."""
        self._interpreter.forget(request)
        if request.tickets_in_flight:
            return
        if request.blocks or request.host_blocks:
            self._runner.release(request.spec)
        self._recorder.record(Retired(request.ref, request.block_ids), cause=request.ended_seq)


def output_of(request: Request) -> RequestOutput:
    """What the caller sees of a request now."""
    wants_logprobs = request.spec.params.logprobs is not None
    return RequestOutput(
        request_id=request.spec.request_id,
        prompt_token_ids=request.spec.prompt_token_ids,
        token_ids=list(request.outputs),
        exit_depths=list(request.exit_depths),
        finished=request.finish_reason is not None,
        finish_reason=request.finish_reason,
        logprobs=list(request.logprobs) if wants_logprobs else None,
    )
