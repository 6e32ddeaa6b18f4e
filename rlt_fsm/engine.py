"""Engine: add_request, abort_request, step, close. Each step: plan, commit, execute, interpret.

The engine owns the order of things; what is decided lives in `door`, `scheduler` and `interpret`,
what is on its way in `flight`, what happened in the log. Synchronously a step submits one batch and
waits for its result. Asynchronously it submits one if there is room for one more in flight, and
takes in what has been completed meanwhile.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Self

from . import config as configs
from . import given, oplog, recovery
from .batch import Batch, RequestSpec, Runner
from .clock import wall_time
from .config import EngineConfig
from .door import refusal
from .errors import EngineClosed, RequestRefused, RltError
from .events import Aborted, Refused, RunClosed, RunOpened, Submitted
from .flight import Flight, output_of
from .log import EventLog
from .log.port import EventCells, LogWriter
from .outputs import RequestOutput
from .params import SamplingParams
from .recorder import Recorder
from .recovery import Crashed
from .run_header import new_header
from .scheduler import LastSchedule, Scheduler
from .state import EngineState, Request
from .states import Outcome


class Engine:
    """Serves requests on one runner and records everything it does in one log.

    The log stays open after `close`: who opened it closes it. See also `recover`.

    Args:
        runner: computes batches; started here, closed by `close`.
        config: how to schedule; validated here.
        log: where events go; in memory unless given.
        workload: the `rlt-workload/1` text that drives this run, kept in the `run` view.
        verdicts: record why requests wait.

    Raises:
        ConfigError: a field or a combination that cannot work, or an argument of another kind.
        LogError: the log cannot be written.
    """

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig | None = None,
        log: EventLog | None = None,
        *,
        workload: str | None = None,
        verdicts: bool = True,
    ) -> None:
        given.require_parts(runner, log, workload, verdicts)
        config = configs.validate(config if config is not None else EngineConfig())
        oplog.settings()  # what the environment asks for is refused before anything is begun
        model, config = runner.start(config)
        log = log if log is not None else EventLog.memory()
        writer = log.begin_run(new_header(model, config, workload))
        self._set_up(runner, log, EngineState(config, model), writer, verdicts=verdicts)
        self._recorder.record(RunOpened(config, model, runner.fallback))
        self._recorder.commit()
        self._log.info("run started", model=model.name, slots=config.scheduler.max_num_seqs)

    def _set_up(
        self,
        runner: Runner,
        log: EventLog,
        state: EngineState,
        writer: LogWriter,
        *,
        verdicts: bool,
    ) -> None:
        self._runner = runner
        self.model, self.config, self.log = state.model, state.config, log
        self._state, self._writer, self._verdicts = state, writer, verdicts
        if self.config.execution.durability != "off":
            state.generations.leave_to(log.generation_lookup(writer.run_id))
        self._recorder = Recorder(state, writer, durability=self.config.execution.durability)
        self._scheduler = Scheduler(state, self._recorder, runner, verdicts=verdicts)
        self._log = oplog.logger(run_id=writer.run_id)
        self._slow_steps = oplog.SlowSteps(self._log)
        self._flight = Flight(state, self._recorder, runner, self._log)
        self._pending: list[RequestOutput] = []  # last outputs of aborted requests
        self._stopped: str | None = None
        self._is_called = False  # a call is under way
        self._owns_log = False  # closes it at the end
        self.last_schedule: LastSchedule | None = None

    @classmethod
    def recover(
        cls,
        db: EventLog | str | PathLike[str],
        runner: Runner,
        *,
        run: int | None = None,
        verdicts: bool = True,
    ) -> Self:
        """Go on with a run whose process ended without `close`; what was committed is kept.

        Everybody waits again; whoever had begun is replayed and gets the tokens it would have got.

        Args:
            db: the log; a path or URL is opened here, and closed with the engine.
            runner: the model of that run; started here with the run's config.
            run: its number; None: the newest run that has not ended.
            verdicts: record why requests wait.

        Raises:
            LogError: the log cannot be opened or read, or no such run broke off.
            ConfigError: the runner's model or memory is not that of the run.
        """
        given.require_parts(runner, None, None, verdicts)
        crashed = recovery.take_up(db, runner, run)
        engine = cls.__new__(cls)
        engine._go_on(crashed, runner, verdicts=verdicts)  # noqa: SLF001  # in place of __init__
        return engine

    def _go_on(self, crashed: Crashed, runner: Runner, *, verdicts: bool) -> None:
        self._set_up(runner, crashed.log, crashed.state, crashed.writer, verdicts=verdicts)
        self._owns_log = crashed.owns_log
        with self._running():
            recovery.record(crashed, self._recorder)
        self._log.warning("recovered", requests=self._state.unfinished)

    # ---- requests ----------------------------------------------------------------------------

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
    ) -> None:
        """Accept a request; it is durable when this returns (but with durability `off`).

        Raises:
            RequestRefused: it can never be served; the refusal is recorded, nothing else changes.
            EngineClosed: the engine is closed or has stopped.
            RltError: another call is under way, as for every method; nothing changes.
        """
        name, tokens, own, refused = given.read(request_id, prompt_token_ids, params)
        with self._running():
            spec = RequestSpec(name, self._state.next_generation(name), tokens, own)
            refused = refused or refusal(self._state, spec)
            ref = self._state.next_ref
            fact = Submitted(ref, spec) if refused is None else Refused(ref, spec, refused.reason)
            self._recorder.record(fact)
            self._recorder.commit()
        if refused is not None:
            self._log.info(
                "refused", step=self.current_step, request_id=name, reason=refused.reason
            )
            raise RequestRefused(name, refused.code, refused.sentence)

    def abort_request(self, request_id: str) -> bool:
        """End a request; False and no event where the id is unknown or has finished.

        Its last RequestOutput (`finish_reason` abort) comes with the next `step()`.
        """
        with self._running():
            request = self._state.by_id.get(request_id) if isinstance(request_id, str) else None
            if request is None or request.status == "FINISHED":
                return False
            self._abort(request)
            self._recorder.commit()
            return True

    def _abort(self, request: Request) -> None:
        self._recorder.record(Aborted(request.ref))
        self._pending.append(output_of(request))
        self._flight.end(request)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything left to do or to return."""
        return bool(self._state.by_ref or self._pending)  # live until the last ticket is retired

    # ---- stepping ----------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Run one batch; return the outputs it brought, and those of requests aborted before it.

        Raises:
            EngineClosed: the engine is closed or has stopped.
            LogError: the log cannot be written; the engine stops.
        """
        with self._running():
            outputs, self._pending = self._pending, []
            if not self._state.by_ref:
                return outputs
            self._slow_steps.begin()
            batch = None if self._flight.is_full else self._scheduler.plan()
            self.last_schedule = LastSchedule(self._recorder.step, batch)
            if batch is not None:
                self._flight.launch(batch)
            self._recorder.commit_gathered()  # of earlier steps, while the device computes
            outputs += self._land(batch)
            self._recorder.end_step(batch.ticket if batch is not None else None)
            if not self._state.unfinished:
                self._recorder.commit()
            self._slow_steps.end(self.current_step - 1, batch)
            return outputs

    def _land(self, batch: Batch | None) -> list[RequestOutput]:
        """Take results in: those that are there; or wait, where nothing else could be planned."""
        flight = self._flight
        if not len(flight):
            return []
        outputs = flight.land(wait=batch is None or flight.is_full)
        # The next loop's batch shall be full, and who is held for a better one waits little.
        while len(flight) and (flight.is_undecided or self._scheduler.waits_for_victims):
            outputs += flight.land(wait=True)
        return outputs

    @property
    def current_step(self) -> int:
        """The number that the next step with a live request takes."""
        return self._recorder.step

    def advance_to(self, step: int) -> None:
        """Let the step counter of an idle engine jump forward to `step`."""
        assert not self._state.by_ref, "the counter jumps only while nothing is live"
        assert step >= self.current_step, f"the counter is at {self.current_step}: it never falls"
        with self._running():
            self._recorder.jump_to(step)

    # ---- looking -----------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """The engine's state, to read."""
        return self._state

    @property
    def last_events(self) -> Sequence[EventCells]:
        """The rows of the last step that ended, in `EventRow` order, arrivals included."""
        return self._recorder.last_rows

    @property
    def run_id(self) -> int:
        """This run's number in the log."""
        return self._writer.run_id

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Abort what is live, seal the run, release the runner. May be called twice."""
        if self._stopped is not None:
            return
        with self._running():
            outcome = Outcome.CLOSED if self._state.unfinished else Outcome.DRAINED
            for request in list(self._state.by_ref.values()):
                if request.finish_reason is None:
                    self._abort(request)
            while len(self._flight):
                self._flight.land(wait=True)
            self._recorder.record(RunClosed(outcome))
            self._recorder.end_step(None)
            self._recorder.end_run(outcome, wall_time())
        self._log.info("run ended", step=self._recorder.step, outcome=outcome.value)
        self._stopped = "the engine is closed; make a new one"
        self._release()

    def _release(self) -> None:
        self._runner.close()
        if self._owns_log:
            self.log.close()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """One call on a live engine; an error inside it (never a caller's) stops the engine."""
        if self._stopped is not None:
            raise EngineClosed(self._stopped)
        if self._is_called:  # by its runner, or by another thread
            raise RltError("the engine is in the middle of a call: make one call at a time")
        self._recorder.tick()
        self._is_called = True
        try:
            yield
        except BaseException as error:
            self._stopped = f"the engine stopped at step {self._recorder.step}: {error!r}"
            self._log.error("engine stopped", step=self._recorder.step, error=repr(error))
            self._release()
            raise
        finally:
            self._is_called = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
