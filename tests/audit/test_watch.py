"""`audit.watch`: a run is checked while it is written, to its end or to its writer's."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from foreign import foreign_copy
from random_runs import any_config
from reseal import Tampered
from typer.testing import CliRunner

import audit
from audit.cli import app
from audit.follow import Follower
from rlt_fsm import ConfigError, Engine, EventLog, LogError, SamplingParams
from rlt_fsm.config import from_mapping, validate
from runner.sim import SimRunner

HERE = Path(__file__).parent
# Serves requests that come one by one; goes on when a line comes in, where it is told to wait.
SERVER = """
import sys, time
from rlt_fsm import Engine, EventLog, SamplingParams
from runner.sim import SimRunner
path, steps, waits_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
time.sleep(0.3)
with EventLog.open(path) as log, Engine(SimRunner(), log=log) as engine:
    for step in range(steps):
        if step % 3 == 0:
            engine.add_request(f"r{step}", [1, 2, 3], SamplingParams(max_tokens=2))
        engine.step()
        if step == waits_at:
            print("waiting", flush=True)
            sys.stdin.readline()
"""
# Writes a step with a fault in it, and closes only when it is told to.
FAULTY = """
import sys
from handmade import Handmade
from rlt_fsm import EventLog
with EventLog.open(sys.argv[1]) as store:
    log = Handmade(store, cache={"num_blocks": 60, "block_size": 2})
    ref = log.submit("a", 1)
    log.step_events[-1] = log.step_events[-1]._replace(blocks=7)
    log.abort(ref)
    log.retire(ref)
    log.end_step()
    store_commits = log.writer.commit()
    sys.stdin.readline()
    log.begin_step(1)
    log.close()
"""


@pytest.fixture
def start() -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def same_but_for_time(report: audit.Report) -> object:
    run = msgspec.to_builtins(report.runs[0])
    return {key: value for key, value in run.items() if key not in ("seconds", "why")}


# ---- a look at a time ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_looks_in_between_come_to_the_report_of_one_reading(tmp_path: Path, seed: int) -> None:
    random, path = Random(seed), tmp_path / "run.db"
    config = any_config(random)
    config["execution"] |= {"durability": random.choice(["step", "group"])}
    try:
        validate(from_mapping(config))
    except ConfigError:
        pytest.skip("a configuration that is refused")
    follower = Follower(str(path), None, lambda finding: pytest.fail(finding.message))
    with EventLog.open(path) as log, Engine(SimRunner(), from_mapping(config), log) as engine:
        for number in range(60):
            if random.random() < 0.2:
                params = SamplingParams(max_tokens=3, priority=random.randint(0, 2))
                engine.add_request(f"r{number}", [7] * random.randint(1, 9), params)
            engine.step()
            if random.random() < 0.5:
                follower.look()
    follower.look()
    assert follower.is_over
    assert same_but_for_time(follower.report(None)) == same_but_for_time(audit.verify(path))


def test_looks_in_between_find_what_one_reading_finds(tampered: Tampered) -> None:
    tampered.selects("DECODE_RECURRENT")[1].b += 1
    tampered.all("output")[2].b = 600
    path = tampered.seal()
    found: list[str] = []
    report = audit.watch(path, found=lambda finding: found.append(finding.message))
    assert same_but_for_time(report) == same_but_for_time(audit.verify(path))
    assert found == [finding.message for finding in report.findings]


# ---- beside another process ----------------------------------------------------------------------


def test_a_run_is_followed_from_before_its_file_is_there_to_its_end(start, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    start(SERVER, path, 300, -1)
    report = audit.watch(path, look_every_s=0.01)
    assert report.verdict == "clean"
    assert report.runs[0].requests == 100
    assert same_but_for_time(report) == same_but_for_time(audit.verify(path))


def test_a_violation_is_told_while_the_writer_goes_on(start, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = start(FAULTY, path)
    found: list[str] = []

    def go_on(finding: audit.Finding) -> None:
        found.append(finding.invariant)
        assert writer.poll() is None
        writer.stdin.write("\n")  # only now is the run closed
        writer.stdin.flush()

    report = audit.watch(path, found=go_on, look_every_s=0.01)
    assert found == ["S9"]
    assert report.verdict == "findings"
    assert report.runs[0].why is None


def test_a_writer_that_is_killed_ends_the_watch_which_says_so(start, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = start(SERVER, path, 100, 40)
    killed: list[int] = []

    def kill(seq: int) -> None:
        if seq > 100 and not killed:
            writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            killed.append(seq)

    report = audit.watch(path, seen=kill, look_every_s=0.01)
    assert killed
    assert report.verdict == "inconclusive"
    assert report.findings == []
    last_seq = audit.replay(path).last_seq
    assert report.runs[0].why == (
        f"it has no `close`: it ends at seq {last_seq}, and whoever wrote it is gone"
    )


def test_an_idle_writer_is_waited_for_longer_than_patience(start, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = start(SERVER, path, 60, 30)
    looks: list[int] = []

    def go_on(seq: int) -> None:
        looks.append(seq)
        if looks[-20:] == [seq] * 20 and seq:
            writer.stdin.write("\n")
            writer.stdin.flush()

    assert audit.watch(path, seen=go_on, look_every_s=0.01, patience_s=5).ok
    assert len(looks) > 20


# ---- logs of other engines, bad input, the command -----------------------------------------------


def test_a_log_of_another_engine_is_given_up_after_silence(real_log: Path, tmp_path: Path) -> None:
    own = tmp_path / "run.db"
    own.write_bytes(real_log.read_bytes())
    path = foreign_copy(own)
    assert audit.watch(path).ok
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM event WHERE step > 10")
        db.execute("DELETE FROM step WHERE step > 10")
        db.execute("UPDATE run SET outcome = NULL, digest = NULL, last_seq = NULL")
    db.close()
    report = audit.watch(path, patience_s=0.05, look_every_s=0.01)
    assert report.verdict == "inconclusive"
    assert (report.runs[0].why or "").endswith("and nothing was written for 0.05 s")


def rlt_audit(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["watch", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_exits_with_0_1_2_and_3(
    real_log: Path, tampered: Tampered, tmp_path: Path
) -> None:
    code, out, _ = rlt_audit(real_log)
    assert code == 0
    assert out.startswith("run 1, 26 steps: clean (196 events in ")

    output = tampered.all("output")[0]
    output.a = 7
    code, out, _ = rlt_audit(tampered.seal())
    assert code == 1
    assert f"S8   seq {output.seq}  step {output.step}  request a" in out
    assert "a has output 7 where output 0 is due." in out

    code, out, error = rlt_audit(tmp_path / "never.db", "--patience", 0)
    assert (code, out) == (2, "")
    assert error == f"error: {tmp_path / 'never.db'}: there is no such file\n"

    code, _, error = rlt_audit(real_log, "--run", 4, "--patience", 0)
    assert code == 2
    assert "there is no run 4" in error

    EventLog.open(tmp_path / "new.db").close()
    code, out, _ = rlt_audit(tmp_path / "new.db", "--patience", 0)
    assert (code, out) == (3, "inconclusive: no run has begun\n")


def test_json_is_one_line_for_each_finding_and_one_for_the_report(tampered: Tampered) -> None:
    tampered.all("output")[0].a = 7
    code, out, _ = rlt_audit(tampered.seal(), "--json")
    assert code == 1
    *findings, report = [json.loads(line) for line in out.splitlines()]
    assert findings[0]["invariant"] == "S8"
    assert report["verdict"] == "findings"


def test_what_is_no_log_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(LogError, match="not an event log"):
        audit.watch(tmp_path / "text.db")
