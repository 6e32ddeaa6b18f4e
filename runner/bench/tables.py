"""The tables of a benchmark's result: medians over repeats, and ratios within each repeat."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from .arms import ArmLine, BenchResult, StepLine

PAIRS: Final = (  # name, over, under, whether steady decoding is compared or all of the run
    ("fewer loops over all, decoding", "adaptive", "full", True),
    ("asynchronous over synchronous, decoding", "full", "full-sync", True),
    ("in step over as they come", "full-in-step", "full", False),
    ("log on over off, all loops", "full", "full-log-off", False),
    ("log on over off, fewer loops", "adaptive", "log-off", False),
)


def as_text(result: BenchResult) -> str:
    """Two tables and what was wrong."""
    head = f"{result.card}, torch {result.torch}, {result.model} with random weights"
    if result.copy_tb_per_s is not None:
        head += f", copy {result.copy_tb_per_s:.2f} TB/s"
    parts = [f"{head}, revision {result.revision or 'unknown'}"]
    if result.steps:
        parts.append(steps_table(result.steps))
    if result.arms:
        parts.append(arms_table(result.arms))
        if pairs := pairs_of(result):
            parts.append(_table(["workload", "width", "pair", "ratio", "of its bound"], pairs))
    problems = [
        f"{line.shape}, width {line.width}, {line.arm}: {problem}"
        for line in result.arms
        for problem in line.problems
    ]
    parts.append("\n".join(problems) if problems else "self-checks: all well")
    return "\n\n".join(parts)


def steps_table(steps: Sequence[StepLine]) -> str:
    """One row per batch size and context, plain beside batch-invariant."""
    plain = [line for line in steps if not line.batch_invariant]
    invariant = {(line.rows, line.length): line for line in steps if line.batch_invariant}
    rows = []
    for line in plain:
        other = invariant.get((line.rows, line.length))
        rows.append(
            [
                line.rows, line.length, f"{line.floor_ms:.2f} ms", f"{line.loop_ms:.2f} ms",
                f"{line.ratio:.2f}", f"{line.coda_ms:.3f} ms",
                "" if other is None else f"{other.loop_ms / line.loop_ms:.2f}",
            ]
        )  # fmt: skip
    head = ["rows", "context", "floor", "loop", "loop / floor", "coda", "invariant / plain"]
    return _table(head, rows)


def arms_table(arms: Sequence[ArmLine]) -> str:
    """One row per workload and arm: medians, and the speed-up over each baseline by repeat."""
    groups: dict[tuple[str, int, str], list[ArmLine]] = {}
    for line in arms:
        groups.setdefault((line.shape, line.width, line.arm), []).append(line)
    rows = []
    for (shape, width, arm), own in groups.items():
        versus = [_versus(own, groups.get((shape, width, base))) for base in ("eager", "graphed")]
        rows.append(
            [
                shape, width, arm,
                f"{median(line.tokens_per_second for line in own):,.0f}",
                _decoding(own),
                _median_of(line.of_roofline for line in own),
                _median_of(line.idle_share for line in own),
                _median_of(_log_share(line) for line in own),
                _median_of(line.mean_depth for line in own),
                *versus,
            ]
        )  # fmt: skip
    head = [
        "workload", "width", "arm", "tokens/s", "decode tokens/s", "of roofline", "idle", "log",
        "depth", "vs eager", "vs graphed",
    ]  # fmt: skip
    return _table(head, rows)


def _log_share(line: ArmLine) -> float | None:
    """The part of a run that the engine's thread spent in the log."""
    return None if line.log_seconds is None else line.log_seconds / line.seconds


def pairs_of(result: BenchResult) -> list[list[object]]:
    """Ratios of two arms, each within its repeat; the bound is what their depths allow."""
    lines = {(line.shape, line.width, line.arm, line.repeat): line for line in result.arms}
    rows: list[list[object]] = []
    for shape, width in dict.fromkeys((line.shape, line.width) for line in result.arms):
        for name, over, under, is_decoding in PAIRS:
            both = [
                (line, lines[shape, width, under, repeat])
                for (*place, arm, repeat), line in lines.items()
                if place == [shape, width] and arm == over
                if (shape, width, under, repeat) in lines
            ]
            ratios = [_ratio(*pair, is_decoding=is_decoding) for pair in both]
            known = [ratio for ratio in ratios if ratio is not None]
            if known:
                share = _of_bound(result, width, *both[0], median(known)) if is_decoding else ""
                rows.append([shape, width, name, f"{median(known):.2f}", share])
    return rows


def _ratio(over: ArmLine, under: ArmLine, *, is_decoding: bool) -> float | None:
    if not is_decoding:
        return over.tokens_per_second / under.tokens_per_second
    if not under.decode_tokens_per_second or not over.decode_tokens_per_second:
        return None
    return over.decode_tokens_per_second / under.decode_tokens_per_second


def _of_bound(result: BenchResult, width: int, over: ArmLine, under: ArmLine, ratio: float) -> str:
    """The ratio over (coda + full depth loops) / (coda + mean depth loops), as measured alone."""
    step = next((s for s in result.steps if s.rows == width and not s.batch_invariant), None)
    depths = under.mean_depth, over.mean_depth
    if step is None or depths[0] is None or depths[1] is None:
        return ""
    times = [step.coda_ms + depth * step.loop_ms for depth in depths if depth is not None]
    return f"{ratio * times[1] / times[0]:.2f}"


def _decoding(own: Sequence[ArmLine]) -> str:
    """Median of the steady rate; nothing where too few requests left no steady window."""
    known = [line.decode_tokens_per_second for line in own if line.decode_tokens_per_second]
    return f"{median(known):,.0f}" if known else "no window"


def _median_of(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.2f}" if known else ""


def _versus(own: Sequence[ArmLine], base: Sequence[ArmLine] | None) -> str:
    """Medians of end-to-end speed over a baseline's, each within its repeat."""
    if base is None:
        return ""
    of_repeat = {line.repeat: line.tokens_per_second for line in base}
    shared = [
        line.tokens_per_second / of_repeat[line.repeat] for line in own if line.repeat in of_repeat
    ]
    return f"{median(shared):.2f}" if shared else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    lines = [texts[0], ["-" * width for width in widths], *texts[1:]]
    return "\n".join(f"| {' | '.join(_right(line, widths))} |" for line in lines)


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
