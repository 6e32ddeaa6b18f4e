"""What a soak measures as it goes, and the verdict on it."""

import sqlite3
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

MIB: Final = 1 << 20
WARM_UP: Final = 5 / 30  # of the whole: 5 minutes of 30
MOST_GROWTH: Final = 0.05  # of resident memory after the warm-up
MOST_WAL_BYTES: Final = 64 * MIB
SIZE_TOLERANCE: Final = 0.10  # of bytes per event times events
LEAST_SECONDS: Final = 600  # of a soak that can say something of memory
LEAST_TURNS: Final = 10  # of a rotation whose file can be judged: the first begin late


class Sample(NamedTuple):
    """One look: seconds since the start, counts so far, sizes in bytes; `log` is what is used in
    the log's file and its archives, `file` the size of that file.
    """

    seconds: float
    events: int
    requests: int
    resident: int
    wal: int
    log: int
    file: int

    @property
    def bytes_per_event(self) -> float:
        """Of the log, header and empty pages included."""
        return self.log / max(1, self.events)


def resident_bytes(process: int | str = "self") -> int:
    """The memory that a process has in RAM, by default this one."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux tells VmRSS")


def log_bytes(path: Path) -> tuple[int, int]:
    """The size that the log's file has once the WAL is copied into it, and what of it is in use."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        ((free,),) = connection.execute("PRAGMA freelist_count").fetchall()
        ((page_size,),) = connection.execute("PRAGMA page_size").fetchall()
    return pages * page_size, (pages - free) * page_size


def size_of(path: Path) -> int:
    """Of a file in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


HEAD: Final = (
    "   min       events   requests   RSS MiB   WAL MiB    log MiB   file MiB   bytes/event"
)


def row(sample: Sample) -> str:
    """A line of the table under HEAD."""
    return (
        f"{sample.seconds / 60:6.1f} {sample.events:12,} {sample.requests:10,} "
        f"{sample.resident / MIB:9.1f} {sample.wal / MIB:9.1f} {sample.log / MIB:10.1f} "
        f"{sample.file / MIB:10.1f} {sample.bytes_per_event:13.2f}"
    )


class Judgement(NamedTuple):
    """One thing that must hold; `holds` None: the soak was too short to say."""

    holds: bool | None
    sentence: str


def judge(samples: Sequence[Sample]) -> list[Judgement]:
    """What the samples say of memory, WAL and size."""
    whole = samples[-1].seconds
    warm = [sample for sample in samples if sample.seconds >= WARM_UP * whole]
    first, last = warm[0], samples[-1]
    growth = max(sample.resident for sample in warm) / first.resident - 1
    largest_wal = max(sample.wal for sample in samples)
    # Of several: events may just be in their archive already and in the log still.
    usual = statistics.median(sample.bytes_per_event for sample in warm[:5])
    due = usual * last.events
    off = last.log / due - 1
    return [
        Judgement(
            growth <= MOST_GROWTH if whole >= LEAST_SECONDS else None,
            f"resident memory grew by {growth:+.1%} at most after {first.seconds / 60:.1f} min "
            f"({first.resident / MIB:.1f} MiB); {MOST_GROWTH:.0%} are allowed",
        ),
        Judgement(
            largest_wal < MOST_WAL_BYTES,
            f"the WAL had {largest_wal / MIB:.1f} MiB at most; {MOST_WAL_BYTES // MIB} are allowed",
        ),
        Judgement(
            abs(off) <= SIZE_TOLERANCE,
            f"the log has {last.log / MIB:.1f} MiB, {off:+.1%} of {usual:.2f} "
            f"bytes/event x {last.events:,} events; {SIZE_TOLERANCE:.0%} are allowed",
        ),
    ]


def judge_file(samples: Sequence[Sample], every_s: float, keep_events: int) -> Judgement:
    """Whether a log that is archived every so often stays as large as what is not old."""
    last = samples[-1]
    due_events = keep_events + 3 * every_s * last.events / last.seconds
    due = due_events * last.bytes_per_event
    largest = max(sample.file for sample in samples)
    return Judgement(
        largest <= due if last.seconds >= LEAST_TURNS * every_s else None,
        f"the log's file had {largest / MIB:.1f} MiB at most, of {last.log / MIB:.1f} that were "
        f"written; {due / MIB:.1f} are allowed: {keep_events:,} events and those of 3 x "
        f"{every_s:g} s",
    )
