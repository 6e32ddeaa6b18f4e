"""AsyncEngine: an engine behind `async for`, for programs that run an asyncio event loop.

Only waiting lives here; the engine runs in a thread of its own, see `engine_thread.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Literal, Self, get_args

from .arguments import of_kind, one_of, whole, yes_or_no
from .engine import Engine
from .engine_thread import Closing, EngineThread, Stream
from .errors import RltError
from .outputs import RequestOutput
from .params import SamplingParams

WhenFull = Literal["merge", "wait"]


class AsyncEngine:
    """Serves any number of tasks of one event loop from one engine, which it closes in the end.

    Made inside the loop that will use it. From then on the engine is its thread's: nobody else
    calls it. The log stays open, as with `Engine`.

    Args:
        engine: what serves.
        max_unread: how many outputs a stream keeps for a reader that is behind.
        when_full: `merge` lets the newest output take the place of the last one kept: no token is
            missing, for outputs are cumulative, and no reader slows another one down. `wait` makes
            no step until every reader has room, so that each sees every output by itself.
        drain_on_exit: leaving `async with` waits for live requests instead of aborting them; never
            where an exception leaves it.

    Raises:
        ConfigError: `max_unread` or `when_full` cannot work.
        RltError: no event loop is running here.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_unread: int = 16,
        when_full: WhenFull = "merge",
        drain_on_exit: bool = False,
    ) -> None:
        of_kind("engine", engine, Engine, "an Engine")
        max_unread = whole("max_unread", max_unread, least=1)
        one_of("when_full", when_full, get_args(WhenFull))
        yes_or_no("drain_on_exit", drain_on_exit)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RltError("no event loop is running: make an AsyncEngine in a coroutine") from None
        self._drain_on_exit = drain_on_exit
        self._over = asyncio.Event()
        self._thread = EngineThread(
            engine,
            max_unread=max_unread,
            waits_for_readers=when_full == "wait",
            on_news=self._call_loop,
        )

    async def generate(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Serve one request; yield its outputs so far, each with more tokens than the one before.

        Nothing is submitted before the first output is asked for. Closing the generator, or
        cancelling the task that waits for it, aborts the request.

        Raises:
            RequestRefused: it can never be served; the refusal is recorded.
            EngineClosed: the engine is closed or has stopped; what came before was yielded.
        """
        self._require_own_loop()
        stream = Stream(request_id, asyncio.Event())
        self._thread.submit(stream, tuple(prompt_token_ids), params)
        try:
            while True:
                output = await self._next(stream)
                yield output
                if output.finished:
                    return
        finally:
            self._thread.abandon(stream)

    def abort(self, request_id: str) -> None:
        """End a request; its generator yields one last output, `finish_reason` abort.

        Nothing happens where the id is unknown or has finished.
        """
        self._thread.abort(request_id)

    async def close(self, *, drain: bool = False) -> None:
        """Take no further request, end the live ones, close the engine. May be called again.

        Args:
            drain: wait until live requests have ended by themselves; else they are aborted, and
                their generators yield one last output. A later call may abort what an earlier one
                is waiting for.

        Raises:
            LogError: the run could not be sealed.
        """
        self._require_own_loop()
        self._thread.stop(Closing.DRAIN if drain else Closing.ABORT)
        await self._over.wait()
        self._thread.join()
        if self._thread.close_error is not None:
            raise self._thread.close_error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            await self.close(drain=self._drain_on_exit and kind is None)
        except asyncio.CancelledError:
            await self.close()  # the log may be closed next: the engine must be done with it
            raise

    # ---- small parts -------------------------------------------------------------------------

    async def _next(self, stream: Stream) -> RequestOutput:
        await asyncio.sleep(0)  # also a reader with much to read gives others their turn
        while (output := self._thread.take(stream)) is None:
            await stream.ready.wait()
        return output

    def _call_loop(self) -> None:
        """From the engine's thread: have `_spread` called in the loop's."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits for anything any more
            self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        for stream in self._thread.take_news():
            stream.ready.set()
        if self._thread.is_over:
            self._over.set()

    def _require_own_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RltError("this AsyncEngine belongs to another event loop: make one for each loop")
