"""Serves random load for a long time and watches memory, WAL and log.

    python -m tests.soak --minutes 30

Prints a table while it goes, then what must hold and whether it does: resident memory flat, WAL
small, the log as large as its events, and the log audited clean. Exit status 1 where one does not.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import structlog

import audit
from rlt_fsm import Engine, EventLog

from .load import CONFIG, Load, sim
from .rotation import KEEP_EVENTS, Rotation
from .samples import (
    HEAD,
    MIB,
    Judgement,
    Sample,
    judge,
    judge_file,
    log_bytes,
    resident_bytes,
    row,
    size_of,
)

LOOKS = 180  # in the whole soak
STEPS_BETWEEN_CLOCKS = 50


def main() -> int:
    """Soak, judge, print, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the load (default 0)")
    parser.add_argument("--folder", help="where the log goes (default: a temporary one)")
    parser.add_argument(
        "--archive-every", type=float, metavar="S", help="archive what is old every so many seconds"
    )
    parser.add_argument(
        "--most-events", type=float, metavar="N", default=1e9, help="per second (default: no limit)"
    )
    parser.add_argument("--no-audit", action="store_true", help="do not verify the log in the end")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "soak.db"
        rotation = Rotation(path, options.archive_every) if options.archive_every else None
        samples = soak(path, options.seed, options.minutes * 60, options.most_events, rotation)
        judgements = judge(samples)
        parts = [path]
        if rotation is not None:
            judgements.append(judge_file(samples, rotation.every_s, KEEP_EVENTS))
            parts = [*rotation.archives, path]
        if not options.no_audit:
            judgements.append(_audited(parts))
    for holds, sentence in judgements:
        _say(f"{'?' if holds is None else 'ok' if holds else 'NO':>2}  {sentence}")
    return int(any(holds is False for holds, _ in judgements))


def soak(
    path: Path, seed: int, seconds: float, most_events: float, rotation: Rotation | None
) -> list[Sample]:
    """Serve for a time, at most so many events per second; the samples, the last after `close`."""
    wal = path.with_name(f"{path.name}-wal")
    started, samples = time.monotonic(), []

    def look(load: Load, engine: Engine, archived: int) -> None:
        file, used = log_bytes(path)
        samples.append(
            Sample(
                seconds=time.monotonic() - started,
                events=engine.state.seq,
                requests=load.added + load.refused,
                resident=resident_bytes(),
                wal=size_of(wal),
                log=used + archived,
                file=file,
            )
        )
        if len(samples) % (LOOKS // 30) == 1:
            _say(row(samples[-1]))

    _say(HEAD)
    with EventLog.open(path) as log:
        with Engine(sim(), CONFIG, log) as engine:
            load = Load(engine, seed)
            while (now := time.monotonic() - started) < seconds:
                if now >= len(samples) * seconds / LOOKS:
                    look(load, engine, rotation.look() if rotation is not None else 0)
                for _ in range(STEPS_BETWEEN_CLOCKS):
                    load.step()
                time.sleep(max(0.0, engine.state.seq / most_events - now))
        log.close()
        if rotation is not None:
            _say(f"{rotation.end()}; {rotation.most_resident / MIB:.1f} MiB at most for that")
        look(load, engine, rotation.archived_bytes if rotation is not None else 0)
    _say(row(samples[-1]))
    _say(
        f"{load.added:,} requests, {load.refused:,} refused, {load.aborted:,} aborted, "
        f"{engine.current_step:,} steps"
    )
    return samples


def _audited(parts: list[Path]) -> Judgement:
    report = audit.verify(parts)
    return Judgement(
        report.ok, f"{report.verdict}: {report.events:,} events in {report.seconds:.0f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
