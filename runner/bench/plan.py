"""What a benchmark is asked to measure, and what it measures unasked. Loads no torch."""

from typing import Final

import msgspec

IN_FLIGHT: Final = 6  # a tick of the device is a loop, a coda and a prelude: two ticks


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure. `requests`: so many per slot; `in_flight`: tickets, asynchronously;
    `seconds`: no further run begins after so long; `log_in`: the folder that logs are written to.
    """

    model: str = "ouro-1.4b"
    device: str = "auto"
    arms: tuple[str, ...] = ("eager", "graphed", "full", "adaptive")
    shapes: tuple[str, ...] = ("512/128", "mixed")
    widths: tuple[int, ...] = (1, 32, 128)
    repeats: int = 3
    requests: int = 4
    in_flight: int = IN_FLIGHT
    steps: bool = True
    seconds: float | None = None
    log_in: str | None = None
