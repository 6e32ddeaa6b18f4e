"""Calls on one device of possibly several: where they go, and what it means that one fails."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import torch

from rlt_fsm.errors import DeviceLost

# What a lost device holds: giving memory back there would end the process.
_ABANDONED: Final[list[object]] = []


def is_lost(device: torch.device) -> bool:
    """Whether every further call on `device` fails in this process, as after a failed assertion in
    a kernel or an address out of range. Waits for the device.
    """
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def chosen(device: torch.device) -> AbstractContextManager[object]:
    """`device` is this thread's current one meanwhile: kernels, events and graphs go there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def computing(device: torch.device) -> Iterator[None]:
    """Calls on a device, without autograd.

    Raises:
        DeviceLost: it failed for good. Other errors pass as they are.
    """
    try:
        with chosen(device), torch.inference_mode():
            yield
    except RuntimeError as error:
        if not is_lost(device):
            raise
        raise lost(device, error) from error


def lost(device: torch.device, error: Exception) -> DeviceLost:
    """What to raise in place of `error`, of which the first line is told."""
    reason = str(error).partition("\n")[0]
    return DeviceLost(
        f"{device} failed for good ({reason}): nothing runs on it in this process any more; "
        "start another and go on with Engine.recover"
    )


def abandon(*held: object) -> None:
    """Keep what lies on a lost device until the process ends."""
    _ABANDONED.extend(held)
