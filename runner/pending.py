"""A batch that was launched: its results are on their way to the host."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlt_fsm.batch import BatchResult

Finish = Callable[..., BatchResult]  # from the outputs as lists


class Pending:
    """Outputs of one batch, copied behind its launches; `result` waits for nothing else.

    The copies are the batch's own: later batches may overwrite what they were made from.
    """

    def __init__(self, ticket: int, finish: Finish, *outputs: Tensor) -> None:
        self._ticket = ticket
        self._finish = finish
        is_cuda = any(output.is_cuda for output in outputs)
        if is_cuda:
            self._outputs = [output.to("cpu", non_blocking=True) for output in outputs]
        else:
            self._outputs = [output.clone() for output in outputs]
        self._copied: torch.cuda.Event | None = None
        if is_cuda:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            self._copied.record()

    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]  # torch's

    def result(self) -> BatchResult:
        """The batch's result, when it is there; an `error` where the device failed it."""
        try:
            if self._copied is not None:
                self._copied.synchronize()
        except RuntimeError as error:
            return BatchResult(self._ticket, error=f"device-error kind={type(error).__name__}")
        lists: list[list[Any]] = [output.tolist() for output in self._outputs]
        return self._finish(*lists)
