"""A batch that was launched: over when the device has come past it."""

from collections.abc import Callable

import torch

from rlt_fsm.batch import BatchResult

Finish = Callable[[], BatchResult]


def _nothing() -> None:
    pass


class Pending:
    """The result of batch `ticket`: what `finish` makes once the event `done` has happened, at once
    where there is none. `release` is called behind it, also where it fails.
    """

    def __init__(
        self,
        ticket: int,
        finish: Finish,
        done: torch.cuda.Event | None = None,
        release: Callable[[], None] = _nothing,
    ) -> None:
        self.ticket = ticket
        self._finish = finish
        self._done = done
        self._release = release

    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self._done is None or bool(self._done.query())  # type: ignore[no-untyped-call]  # torch's

    def result(self) -> BatchResult:
        """The batch's result, when it is there.

        Raises:
            RuntimeError: the device failed.
        """
        try:
            if self._done is not None:
                self._done.synchronize()
            return self._finish()
        finally:
            self._release()


def behind_launches(device: torch.device) -> torch.cuda.Event | None:
    """An event behind all that was launched; None on a CPU, where it has been computed."""
    if device.type != "cuda":
        return None
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
    done.record()
    return done
