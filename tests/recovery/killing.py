"""Ends a serving process at a random moment, again and again, and lets the last one finish.

Every life is a fork of this process, so that a life costs milliseconds and dies in the middle of
its work. Most are killed: from outside after a random time, or by themselves at a random moment
inside SQLite, so inside a statement or a commit. Some find that their files may not grow beyond a
random size, some that another process locks the log for about as long as they would wait. A life
after the first recovers what the one before left; it ends in the same ways, often while it
recovers.
"""

import os
import resource
import signal
import sqlite3
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import sqlalchemy
from recovery.scenes import SCENES, Outputs, Wanted, config_of, outputs_in, serve, sim, wanted
from told import triggers

import audit
from rlt_fsm import Engine, EventLog, Runner
from rlt_fsm.config import EngineConfig
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log import sql_transactions
from rlt_fsm.log.port import RunInfo

MOST_LIVES = 4  # but for the last
LOCKED_S = (4.5, 6.5)  # a log waits 5 s
LEAST_FILE = 40_000  # bytes: below that no log can be made
SQL_STEPS = 25  # of SQLite's virtual machine between two moments at which it may be killed
EXIT_FAILED = 3
EXIT_STOPPED = 4  # the log could not be written


class Victim(NamedTuple):
    """What is served, by which runner, and whether a thread stores commits, as on slow disks."""

    name: str
    config: EngineConfig
    runner: Callable[[], Runner]
    requests: Sequence[Wanted]
    commits_beside: bool = False


class Ended(NamedTuple):
    """What came of one victim: which ends cut its lives short, how many recoveries there were,
    how many lives ended before the recovery that they had begun was there, and how many outlived a
    lock.
    """

    name: str
    ends: tuple[str, ...]
    recovered: int
    in_recovery: int
    waited: int
    events: int


def sim_victim(seed: int) -> Victim:
    """The seed's scene on SimRunner; every second with `step`, a quarter with commits beside it."""
    scene = list(SCENES)[seed % len(SCENES)]
    turn = seed // len(SCENES) % 4
    durability = "step" if turn % 2 else "group"
    requests = [
        request._replace(name=f"{request.name}{turn or ''}", at=request.at + 12 * turn)
        for turn in range(4)
        for request in wanted(seed)
    ]
    config = config_of(scene, durability=durability)
    return Victim(scene, config, sim, requests, commits_beside=turn == 2)


# ---- one life ------------------------------------------------------------------------------------


def live(path: Path, victim: Victim) -> None:
    """Serve to the end, going on with what is there. In a process of its own."""
    if victim.commits_beside:
        sql_transactions.SLOW_IN_A_ROW = 0
    runs = _runs_in(path)
    if not runs:
        with EventLog.open(path) as log, Engine(victim.runner(), victim.config, log) as engine:
            serve(engine, victim.requests)
    elif runs[0].ended_at is None:
        with Engine.recover(path, victim.runner()) as engine:
            serve(engine, victim.requests)


def _runs_in(path: Path) -> list[RunInfo]:
    """Opened for writing: a journal that a killed process left is rolled back."""
    if not path.exists():
        return []
    with EventLog.open(path) as log:
        return log.reader().runs()


def _in_a_fork(do: Callable[[], None]) -> int:
    """The id of a process that does this and nothing else."""
    child = os.fork()
    if child:
        return child
    try:
        do()
    except LogUnavailable:
        os._exit(EXIT_STOPPED)
    except BaseException:  # noqa: BLE001  # a fork must not go on as its parent
        traceback.print_exc()
        os._exit(EXIT_FAILED)
    os._exit(0)


def _was_cut_short(child: int, *, may_stop: bool = False) -> bool:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, os.WTERMSIG(status)
        return True
    if may_stop and os.WEXITSTATUS(status) == EXIT_STOPPED:
        return True
    assert os.WEXITSTATUS(status) == 0, "a life failed: its error is above"
    return False


def _in_sql(do: Callable[[], object]) -> None:
    """From now on do this at every moment of SQLite's work in this process."""

    def tick() -> int:
        do()
        return 0

    def watch(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(tick, SQL_STEPS)

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", watch)


# ---- one victim ----------------------------------------------------------------------------------


class _Whole(NamedTuple):
    """A life that nobody cut short: what the requests got, how long, how many moments of SQL, and
    the size of the log.
    """

    outputs: Outputs
    seconds: float
    moments: int
    file_size: int


def undisturbed(path: Path, victim: Victim) -> _Whole:
    """Let the victim live."""
    told = path.with_suffix(".moments")

    def counting() -> None:
        moments: list[None] = []
        _in_sql(lambda: moments.append(None))
        live(path, victim)
        told.write_text(str(len(moments)), encoding="utf-8")

    started = time.perf_counter()
    assert not _was_cut_short(_in_a_fork(counting))
    seconds = time.perf_counter() - started
    with EventLog.open_for_reading(path) as log:
        moments = int(told.read_text(encoding="utf-8"))
        return _Whole(outputs_in(log), seconds, moments, path.stat().st_size)


def _suicide(moment: int) -> Callable[[], None]:
    left = iter(range(moment, 0, -1))

    def tick() -> None:
        if next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return tick


def end_and_recover(folder: Path, victim: Victim, seed: int) -> Ended:
    """End the victim up to MOST_LIVES times, let it live to its end, and compare.

    Raises:
        AssertionError: a committed event is missing or changed, a request did not get what it gets
            undisturbed, or the auditor finds something.
    """
    random = Random(seed)
    expected = undisturbed(folder / f"{seed}-whole.db", victim)
    path = folder / f"{seed}.db"
    ends: list[str] = []
    before, recoveries, in_recovery, waited = b"", 0, 0, 0
    for life in range(1 + random.randrange(MOST_LIVES)):
        name = random.choices(list(_ENDS), _WEIGHTS)[0]
        if not _ENDS[name](path, victim, random, expected):
            waited += name == "locked out"
            continue
        ends.append(name)
        before = _still_begins_with(path, before)
        now = _recoveries_in(path)
        in_recovery += life > 0 and bool(before) and now == recoveries
        recoveries = now
    assert not _was_cut_short(_in_a_fork(lambda: live(path, victim)))
    _still_begins_with(path, before)
    with EventLog.open_for_reading(path) as log:
        (run,) = log.reader().runs()
        got = outputs_in(log)
    assert got == expected.outputs, f"{victim.name}, seed {seed}: {got} for {expected.outputs}"
    report = audit.verify(path)
    assert report.ok, f"{victim.name}, seed {seed}: {report.findings[:3]}"
    return Ended(
        name=victim.name,
        ends=tuple(ends),
        recovered=_recoveries_in(path),
        in_recovery=in_recovery,
        waited=waited,
        events=run.last_seq,
    )


# ---- ends: each tells whether it cut the life short ----------------------------------------------


def _in_a_statement(path: Path, victim: Victim, random: Random, whole: _Whole) -> bool:
    moment = random.randint(1, whole.moments)

    def dying() -> None:
        _in_sql(_suicide(moment))
        live(path, victim)

    return _was_cut_short(_in_a_fork(dying))


def _from_outside(path: Path, victim: Victim, random: Random, whole: _Whole) -> bool:
    child = _in_a_fork(lambda: live(path, victim))
    time.sleep(random.uniform(0, whole.seconds))
    os.kill(child, signal.SIGKILL)
    return _was_cut_short(child)


def _on_a_full_disk(path: Path, victim: Victim, random: Random, whole: _Whole) -> bool:
    """A limit of the system on what any file of the life may grow to."""
    limit = random.randint(LEAST_FILE, 2 * whole.file_size)

    def cramped() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        live(path, victim)

    return _was_cut_short(_in_a_fork(cramped), may_stop=True)


def _locked_out(path: Path, victim: Victim, random: Random, whole: _Whole) -> bool:
    begins_s, lasts_s = random.uniform(0, whole.seconds), random.uniform(*LOCKED_S)

    def lock() -> None:
        time.sleep(begins_s)
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(lasts_s)
            connection.rollback()

    locker = _in_a_fork(lock)
    was_cut_short = _was_cut_short(_in_a_fork(lambda: live(path, victim)), may_stop=True)
    assert not _was_cut_short(locker)
    return was_cut_short


End = Callable[[Path, Victim, Random, _Whole], bool]
_ENDS: dict[str, End] = {
    "killed in a statement": _in_a_statement,
    "killed": _from_outside,
    "disk full": _on_a_full_disk,
    "locked out": _locked_out,
}
_WEIGHTS = (40, 36, 18, 6)


# ---- what is left --------------------------------------------------------------------------------


def _recoveries_in(path: Path) -> int:
    if not _runs_in(path):
        return 0
    with EventLog.open(path) as log:
        return triggers(log).count("recover")


def _still_begins_with(path: Path, before: bytes) -> bytes:
    """All committed events as text: whatever was there must still be, unchanged."""
    now = b""
    if _runs_in(path):
        with EventLog.open(path) as log:
            now = b"".join(repr(tuple(event)).encode() for event in log.reader().events(1))
    assert now.startswith(before), "a committed event is missing or changed"
    return now
