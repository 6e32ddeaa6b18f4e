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

from .archivist import Archivist
from .load import CONFIG, Load, sim
from .samples import HEAD, Judgement, Sample, judge, log_bytes, resident_bytes, row, size_of

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
    parser.add_argument("--no-audit", action="store_true", help="do not verify the log in the end")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "soak.db"
        archivist = Archivist(path) if options.archive_every else None
        seconds = options.minutes * 60
        samples = soak(path, options.seed, seconds, archivist, options.archive_every or 0)
        judgements = judge(samples)
        if not options.no_audit:
            judgements.append(_audited(path))
    for holds, sentence in judgements:
        _say(f"{'?' if holds is None else 'ok' if holds else 'NO':>2}  {sentence}")
    return int(any(holds is False for holds, _ in judgements))


def soak(
    path: Path, seed: int, seconds: float, archivist: Archivist | None, archive_every_s: float
) -> list[Sample]:
    """Serve for a time; the samples, of which the last comes after `close`."""
    next_archive_s = archive_every_s
    wal = path.with_name(f"{path.name}-wal")
    started, samples = time.monotonic(), []

    def look(load: Load, engine: Engine) -> None:
        file, used = log_bytes(path)
        samples.append(
            Sample(
                seconds=time.monotonic() - started,
                events=engine.state.seq,
                requests=load.added + load.refused,
                resident=resident_bytes(),
                wal=size_of(wal),
                log=used + (archivist.archived_bytes if archivist is not None else 0),
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
                    look(load, engine)
                if archivist is not None and now >= next_archive_s:
                    archivist.begin(engine.current_step)
                    next_archive_s = now + archive_every_s
                for _ in range(STEPS_BETWEEN_CLOCKS):
                    load.step()
        if archivist is not None:
            archivist.wait()
            _say(f"{len(archivist.archives)} archives, each verified")
        log.close()
        look(load, engine)
    _say(row(samples[-1]))
    _say(
        f"{load.added:,} requests, {load.refused:,} refused, {load.aborted:,} aborted, "
        f"{engine.current_step:,} steps"
    )
    return samples


def _audited(path: Path) -> Judgement:
    report = audit.verify(path)
    return Judgement(
        report.ok, f"{report.verdict}: {report.events:,} events in {report.seconds:.0f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
