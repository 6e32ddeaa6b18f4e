"""Rotations for tests: a rotator, the parts that it leaves, and what comes in between."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from threading import Event

import pytest
from recovery.scenes import config_of, serve, sim, wanted, whole_run

import audit
from audit.cli import _engine_state
from audit.reader import open_log
from audit.rotation import rotate
from audit.rotator import Rotator
from rlt_fsm import Engine, EventLog
from rlt_fsm.log import archiving
from rlt_fsm.log.presence import holds_something

RUN_SHIFT = 40
KEEP = 100
# Serves requests that come one by one, slowly, until a line comes in.
SERVER = """
import sys, threading, time
from rlt_fsm import Engine, EventLog, SamplingParams
from runner.sim import SimRunner
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
with EventLog.open(sys.argv[1]) as log, Engine(SimRunner(), log=log) as engine:
    while not over.is_set():
        engine.add_request(f"r{engine.current_step}", [1, 2, 3], SamplingParams(max_tokens=2))
        for _ in range(3):
            engine.step()
        time.sleep(0.001)
"""


@contextmanager
def serving(path):
    """A process that serves; its run is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, path],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        while not holds_something(path) or not audit.open_log(path).runs():
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def rotator(path, into, keep_events=KEEP, run=1):
    return Rotator(path, into, keep_events=keep_events, engine_state=_engine_state, run=run)


def archives_in(folder):
    return sorted(folder.iterdir())


def events_of(parts, run=1):
    with open_log(parts) as log:
        return list(log.run(run).events())


def left_in(path, run=1):
    with open_log(path) as log:
        return len(list(log.run(run, from_checkpoint=True).events()))


def changed(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


def meanwhile(monkeypatch, module, name, act):
    """Let something happen once, before a call of a module's function."""
    called = getattr(module, name)

    def after_it(*arguments, **options):
        monkeypatch.setattr(module, name, called)
        act()
        return called(*arguments, **options)

    monkeypatch.setattr(module, name, after_it)


def interrupted_before_letting_go(monkeypatch, turns):
    """A turn that ends where its archive has its name and the log has the events still."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_begin_at", interrupt)
        with pytest.raises(KeyboardInterrupt):
            turns.turn()


def served(path, scene, most_steps):
    """An open log and an engine that is in the middle of a scene."""
    log = EventLog.open(path)
    engine = Engine(sim(), config_of(scene, durability="step"), log)
    with pytest.raises(AssertionError, match="not done"):
        serve(engine, wanted(), most_steps=most_steps)
    return log, engine


def rotated(path, folder, *, told=None, troubled=None, stop=None, keep_events=KEEP, patience_s=9):
    """A rotation of the newest run to its end."""
    return rotate(
        rotator(path, folder, keep_events, run=None),
        every_s=0.02,
        stop=stop or Event(),
        told=told or (lambda _: None),
        troubled=troubled or (lambda trouble: pytest.fail(str(trouble))),
        patience_s=patience_s,
    )


def parts_of(path, folder):
    """The archives in order, then the log."""
    return [*sorted(folder.glob("*.db")), path]


def whole_log(path, scene="preempting"):
    """A log of one run that has ended."""
    with EventLog.open(path) as log:
        whole_run(scene, log)


def spoil(path):
    """Let an early event tell something wrong."""
    changed(path, f"UPDATE event_log SET blocks = 99 WHERE key = {1 << RUN_SHIFT | 9}")


def command(path, folder, *more):
    """`rlt-audit archive --into` in a process of its own."""
    words = ["archive", path, "--into", folder, "--keep-events", "100", *more]
    return subprocess.Popen(
        [sys.executable, "-c", "from audit.cli import main; main()", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
