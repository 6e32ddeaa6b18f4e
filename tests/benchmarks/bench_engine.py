"""What the engine itself costs: by batch width and log, with and without verdicts."""

from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import table

from .bench_runs import Logs, Timing, interleaved, median, run

LOGS = ("off", "memory", "sqlite")


class Size(NamedTuple):
    """How much to measure."""

    widths: tuple[int, ...] = (8, 64, 256, 1024)
    outputs: int = 64
    repeats: int = 5


QUICK = Size(widths=(2, 4, 8), outputs=2, repeats=1)


def tables(folder: Path, size: Size) -> dict[str, str]:
    """Every block of this file."""
    logs = Logs(folder)

    def measure(width: int, kind: str) -> Timing:
        with logs.open(kind) as log:
            return run(log, rows=width, outputs=size.outputs)

    cases = [(width, kind) for width in size.widths for kind in LOGS]
    results = interleaved(cases, measure, size.repeats)
    return {
        "engine": _by_width(size, results),
        "engine-fit": _fits(size, results),
        "verdicts": _verdicts(logs, size),
    }


def _us_per_row(timing: Timing) -> float:
    return 1e6 * timing.cpu_seconds / timing.row_steps


def _by_width(size: Size, results: dict[tuple[object, ...], list[Timing]]) -> str:
    rows = []
    for kind in LOGS:
        costs = {w: median(map(_us_per_row, results[w, kind])) for w in size.widths}
        widest, middle = size.widths[-1], size.widths[-2]
        events = median(t.events / t.seconds for t in results[middle, kind])
        rows.append(
            [
                kind,
                *(f"{costs[w]:.1f}" for w in size.widths),
                f"{costs[widest] / costs[middle]:.2f}",
                f"{events / 1e3:,.0f} k",
            ]
        )
    head = [
        "log",
        *(f"{w:,} rows" for w in size.widths),
        f"{size.widths[-1]:,} vs {size.widths[-2]:,}",
        f"events/s at {size.widths[-2]:,}",
    ]
    return table(head, rows, numbers=range(1, len(head)))


def _fits(size: Size, results: dict[tuple[object, ...], list[Timing]]) -> str:
    """A batch's time as fixed + rows · each."""
    rows = []
    for kind in LOGS:
        points = []
        for width in size.widths:
            timings = results[width, kind]
            per_batch = median(1e6 * t.cpu_seconds / t.batches for t in timings)
            points.append((timings[0].row_steps / timings[0].batches, per_batch))
        fixed, each = _line(points)
        rows.append([kind, f"{fixed:.0f}", f"{each:.1f}"])
    return table(["log", "µs per batch", "µs per row"], rows, numbers=[1, 2])


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(fixed, each) with the least squared *relative* error, so that small batches count too."""
    weights = [1 / y**2 for _, y in points]
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / sum(weights)
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / sum(weights)
    pairs = list(zip(weights, points, strict=True))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in pairs)
    slope /= sum(w * (x - mean_x) ** 2 for w, (x, _) in pairs)
    return mean_y - slope * mean_x, slope


def _verdicts(logs: Logs, size: Size) -> str:
    """A queue four times as long as there are slots, verdicts recorded or not."""
    width = size.widths[-2]

    def measure(is_on: bool) -> Timing:  # noqa: FBT001  # one case of two
        with logs.open("sqlite") as log:
            return run(
                log, rows=width, outputs=size.outputs // 2, requests=4 * width, verdicts=is_on
            )

    results = interleaved([(True,), (False,)], measure, size.repeats)
    totals = {is_on: [timing.cpu_seconds for timing in results[is_on,]] for is_on in (True, False)}
    ratio = median(on / off for on, off in zip(totals[True], totals[False], strict=True))
    on, off = median(totals[True]), median(totals[False])
    extra = results[True,][0].events - results[False,][0].events
    row = [f"{on:.2f} s", f"{off:.2f} s", f"{ratio - 1:+.1%}", f"{extra:,}"]
    return table(["on", "off", "on vs off", "verdicts"], [row], numbers=range(4))
