"""EngineThread: the one thread that drives an engine; commands go in, unread outputs come out.

Everything that both sides touch is guarded by one lock, held for moments only: never while a batch
is planned, computed or recorded. What waits for outputs on the other side is in `async_engine.py`.
"""

import enum
from asyncio import Event
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread

from .engine import Engine
from .errors import EngineClosed
from .flight import output_of
from .outputs import RequestOutput
from .params import SamplingParams
from .states import FinishReason


class Closing(enum.IntEnum):
    """How the thread is asked to end; a later call may only be less patient."""

    NO = 0
    DRAIN = 1  # once every request has ended
    ABORT = 2  # now


class Stream:
    """What the reader of one request has not taken yet; `ready` is set once there is more."""

    __slots__ = ("error", "ready", "request_id", "unread")

    def __init__(self, request_id: str, ready: Event) -> None:
        self.request_id = request_id
        self.ready = ready
        self.unread: deque[RequestOutput] = deque()
        self.error: Exception | None = None


class EngineThread:
    """Drives an engine that nobody else touches from now on, and closes it.

    Its methods are for the other thread; none of them waits for the engine, but for `join`.

    Args:
        engine: made by the caller; its log stays the caller's to close.
        max_unread: outputs that a stream may hold.
        waits_for_readers: make no step while a stream is full; else the newest output, which holds
            all tokens of those before, takes the last one's place.
        on_news: called from the engine's thread when `take_news` or `is_over` has changed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_unread: int,
        waits_for_readers: bool,
        on_news: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._max_unread = max_unread
        self._waits_for_readers = waits_for_readers
        self._on_news = on_news
        self._streams: dict[str, Stream] = {}  # of unfinished requests; the engine's thread only
        self._changed = Condition()  # guards what follows
        self._commands: list[Callable[[], None]] = []
        self._closing = Closing.NO
        self._refusal: str | None = None  # why no further request is taken
        self._cause: BaseException | None = None  # what stopped the engine
        self._open: dict[Stream, None] = {}  # those that still await their last output
        self._full: dict[Stream, None] = {}  # those that hold the engine up
        self._news: dict[Stream, None] = {}
        self.is_over = False
        self.close_error: BaseException | None = None
        # A daemon: a program that forgets to close its engine still ends.
        self._thread = Thread(target=self._run, name="rlt-fsm engine", daemon=True)
        self._thread.start()

    # ---- for the other thread ----------------------------------------------------------------

    def submit(
        self, stream: Stream, prompt_token_ids: Sequence[int], params: SamplingParams | None
    ) -> None:
        """Add a request; whatever comes of it, a refusal too, comes through its stream.

        Raises:
            EngineClosed: the engine is closed, is about to be, or has stopped.
        """
        with self._changed:
            if self._refusal is not None:
                raise EngineClosed(self._refusal) from self._cause
            self._open[stream] = None
            self._command(partial(self._add, stream, prompt_token_ids, params))

    def abandon(self, stream: Stream) -> None:
        """Nobody reads this stream any more: abort its request, unless that has ended."""
        with self._changed:
            stream.unread.clear()
            self._read_on(stream)
            if stream in self._open:
                del self._open[stream]
                self._command(partial(self._abort_abandoned, stream))

    def abort(self, request_id: str) -> None:
        """End a request with one last output; nothing where the id is unknown or has finished."""
        with self._changed:
            self._command(partial(self._abort, request_id))

    def take(self, stream: Stream) -> RequestOutput | None:
        """The oldest unread output; None where there is none yet: `ready` will be set.

        Raises:
            RltError: why there will be none.
        """
        with self._changed:
            if stream.unread:
                output = stream.unread.popleft()
                self._read_on(stream)
                return output
            if stream.error is not None:
                raise stream.error
            stream.ready.clear()
            return None

    def take_news(self) -> list[Stream]:
        """The streams that have more to read since the last call."""
        with self._changed:
            news, self._news = self._news, {}
            return list(news)

    def stop(self, closing: Closing) -> None:
        """Take no further request, end as asked, and close the engine; do not wait for it."""
        with self._changed:
            self._closing = max(self._closing, closing)
            if self._refusal is None:
                self._refusal = "the engine is being closed; make a new one"
            self._changed.notify()

    def join(self) -> None:
        """Wait for the end of the thread; at once where `is_over`."""
        self._thread.join()

    def _command(self, command: Callable[[], None]) -> None:
        if not self.is_over:
            self._commands.append(command)
            self._changed.notify()

    def _read_on(self, stream: Stream) -> None:
        if stream in self._full and len(stream.unread) < self._max_unread:
            del self._full[stream]
            self._changed.notify()

    # ---- the engine's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001  # whatever it is, every reader must hear of it
            self._fail(error)
        try:
            self._close_engine()
        except BaseException as error:  # noqa: BLE001  # the same, and whoever closes
            self._fail(error)
            self.close_error = error
        with self._changed:
            self._refusal = self._refusal or "the engine is closed; make a new one"
            self.is_over = True
            self._commands.clear()
        self._on_news()

    def _turn(self) -> bool:
        """Wait for something to do, and do it; False when it is time to close."""
        with self._changed:
            self._changed.wait_for(self._is_due)
            commands, self._commands = self._commands, []
            closing, may_step = self._closing, self._may_step()
        for command in commands:
            command()
        if closing is Closing.ABORT:
            return False
        if not self._engine.has_unfinished_requests():
            return closing is Closing.NO
        if may_step:
            self._deliver(self._engine.step())
        return True

    def _is_due(self) -> bool:
        if self._commands or self._closing is not Closing.NO:
            return True
        return self._may_step() and self._engine.has_unfinished_requests()

    def _may_step(self) -> bool:
        """Whether no reader holds the engine up; none does while it drains: it may be gone."""
        return not self._full or self._closing is not Closing.NO

    def _add(
        self, stream: Stream, prompt_token_ids: Sequence[int], params: SamplingParams | None
    ) -> None:
        try:
            self._engine.add_request(stream.request_id, prompt_token_ids, params)
        except Exception as error:  # noqa: BLE001  # it is the caller's, whatever it is
            with self._changed:
                self._break(stream, error)
        else:
            self._streams[stream.request_id] = stream

    def _abort_abandoned(self, stream: Stream) -> None:
        if self._streams.get(stream.request_id) is stream:  # the id may be another's by now
            del self._streams[stream.request_id]
            self._engine.abort_request(stream.request_id)

    def _abort(self, request_id: str) -> None:
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            request = self._engine.state.by_id[request_id]
            self._engine.abort_request(request_id)
            with self._changed:
                self._put(stream, output_of(request))

    def _deliver(self, outputs: Sequence[RequestOutput]) -> None:
        with self._changed:
            for output in outputs:
                if output.finish_reason == FinishReason.ABORT:
                    continue  # its stream has it, or is gone; the id may be another's by now
                stream = self._streams.get(output.request_id)
                if stream is not None:
                    self._put(stream, output)
                    if output.finished:
                        del self._streams[output.request_id]

    def _close_engine(self) -> None:
        """Close the engine; whoever still has a stream gets the abort as its last output."""
        by_id = self._engine.state.by_id
        live = [(stream, by_id[request_id]) for request_id, stream in self._streams.items()]
        self._engine.close()
        with self._changed:
            for stream, request in live:
                self._put(stream, output_of(request))

    # ---- filling streams: the lock is held ---------------------------------------------------

    def _put(self, stream: Stream, output: RequestOutput) -> None:
        if stream not in self._open:
            return  # abandoned meanwhile
        is_full = len(stream.unread) >= self._max_unread
        if is_full and (not self._waits_for_readers or self._closing is not Closing.NO):
            stream.unread[-1] = output
        else:
            stream.unread.append(output)
        if output.finished:
            del self._open[stream]
            self._full.pop(stream, None)
        elif self._waits_for_readers and len(stream.unread) >= self._max_unread:
            self._full[stream] = None
        self._tell(stream)

    def _break(self, stream: Stream, error: Exception) -> None:
        """The stream ends with an error, once its reader has read what came before."""
        self._open.pop(stream, None)
        self._full.pop(stream, None)
        stream.error = error
        self._tell(stream)

    def _fail(self, error: BaseException) -> None:
        """The engine has stopped: every reader gets an error of its own that says why."""
        why = f"the engine stopped at step {self._engine.current_step}: {error!r}"
        if isinstance(error, EngineClosed):
            why = str(error)  # it stopped before, and says so
        with self._changed:
            self._refusal, self._cause = why, error
            for stream in list(self._open):
                closed = EngineClosed(why)
                closed.__cause__ = error
                self._break(stream, closed)
        self._streams.clear()

    def _tell(self, stream: Stream) -> None:
        is_first = not self._news
        self._news[stream] = None
        if is_first:  # the others are taken together with it
            self._on_news()
