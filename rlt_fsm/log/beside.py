"""Work that a thread does beside its caller; where no thread can be had, the caller does it.

None can be had while the interpreter ends, from when the main thread is done: threads that still
serve, and what is called at exit, write their logs then. Nor where the system gives no more.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Beside:
    """One thread, made for the first thing to do; what it is given it does in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None

    def do(self, work: Callable[[], None]) -> Future[None]:
        """Have it done; the future tells when it is, or what it raised."""
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
            return self._pool.submit(work)
        except RuntimeError:  # it is the pool's: what `work` raises goes into the future
            self._pool = None  # it may hold `work`, which no thread may do a second time
            return _done(work)

    def close(self) -> None:
        """End the thread when all is done."""
        if self._pool is not None:
            self._pool.shutdown()


def _done(work: Callable[[], None]) -> Future[None]:
    outcome: Future[None] = Future()
    try:
        work()
    except Exception as error:  # noqa: BLE001  # the future's to tell
        outcome.set_exception(error)
    else:
        outcome.set_result(None)
    return outcome
