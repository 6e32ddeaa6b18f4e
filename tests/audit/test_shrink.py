"""`rlt-audit shrink`: what is left is minimal, deterministic, and shows the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path

import pytest
from seeded_bugs import seeded
from small_repository import assert_tidy, git, make_repository
from typer.testing import CliRunner, Result

import audit
from audit.cli import app
from audit.shrink import ShrinkError, shrink
from audit.shrinking.observers import by_rules
from audit.shrinking.symptoms import Observed, Symptom
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.errors import RltError
from rlt_fsm.preemption import Preemption
from rlt_fsm.workload import parse
from runner.sim import SimRunner
from runner.sim_runs import SimRuns
from runner.simulate_check import run_logged

LEAKING = {
    "format": "rlt-workload/1",
    "max_model_len": 64,
    "config": {"scheduler": {"max_num_seqs": 2}, "cache": {"num_blocks": 40, "block_size": 2}},
    "requests": [
        {"id": f"r{i}", "at": i, "prompt_len": 4 + i, "max_tokens": 3, "params": {"seed": i}}
        for i in range(5)
    ],
    "actions": [{"at": 9, "abort": "r1"}, {"at": 3, "fail": True}, {"at": 20, "abort": "r4"}],
    "expect": {"max_steps": 120},
}
PREEMPTING = {
    "format": "rlt-workload/1",
    "max_model_len": 64,
    "config": {
        "scheduler": {"enable_preemption": True, "max_num_seqs": 3},
        "cache": {"num_blocks": 24, "block_size": 2, "incremental_allocation": True},
    },
    "requests": [{"id": f"r{i}", "at": i, "prompt_len": 3, "max_tokens": 8 - i} for i in range(3)],
    "expect": {"max_steps": 120},
}
LEAK = "slot-leaked-on-abort"


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(workload: dict[str, object], path: Path) -> Path:
    with EventLog.open(path) as log:
        assert run_logged(parse(json.dumps(workload)), log, check=False) is None
    return path


def smaller(workload: dict[str, object]) -> Iterator[dict[str, object]]:
    """Every workload with one thing less, or one number lower by one."""
    yield from _smaller(workload, workload, ())


def _smaller(workload, value, path) -> Iterator[dict[str, object]]:
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in items:
        if not path and key in {"format", "name", "expect"}:
            continue
        yield _changed(workload, (*path, key))
        if isinstance(item, dict | list):
            yield from _smaller(workload, item, (*path, key))
        elif isinstance(item, int) and not isinstance(item, bool):
            yield _changed(workload, (*path, key), item - 1)


def _changed(workload, path, value=None) -> dict[str, object]:
    changed = deepcopy(workload)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


# ---- a finding ---------------------------------------------------------------------------------


def test_what_is_left_is_minimal_and_the_same_every_time(tmp_path: Path) -> None:
    observe = by_rules(SimRuns().on_sim({}, check=False))
    with seeded(LEAK):
        log = run(LEAKING, tmp_path / "leak.db")
        first, second = (json.loads(rlt_audit("shrink", log, "--json").stdout) for _ in range(2))
        assert first == second
        assert first["is_minimal"] is True
        assert first["before"]["requests"] == 5
        assert (first["after"]["requests"], first["after"]["actions"]) == (1, 1)
        assert first["symptom"] == {"kind": "finding", "what": "D1", "place": "close"}
        kept = Symptom(**first["symptom"])
        for candidate in smaller(first["workload"]):
            try:
                assert kept not in observe(json.dumps(candidate).encode()).symptoms, candidate
            except RltError:
                continue


def test_without_a_file_the_workload_is_printed_and_can_be_run_again(tmp_path: Path) -> None:
    with seeded(LEAK):
        result = rlt_audit("shrink", run(LEAKING, tmp_path / "leak.db"))
        assert result.exit_code == 0
        small = json.loads(result.stdout)
        assert audit.verify(run(small, tmp_path / "small.db")).findings[0].invariant == "D1"
    assert audit.verify(run(small, tmp_path / "good.db")).ok


def test_another_finding_can_be_kept(tmp_path: Path) -> None:
    with seeded(LEAK):
        log = run(LEAKING, tmp_path / "leak.db")
        result = rlt_audit("shrink", log, "--finding", "D2", "-o", tmp_path / "small.json")
        assert result.stdout.startswith("kept: D2 at close\n  ")
        missing = rlt_audit("shrink", log, "--finding", "F2")
    assert_refused(missing, "run 1 breaks no F2: there is nothing to keep")


def test_a_run_without_a_workload_is_shrunk_from_its_record(tmp_path: Path) -> None:
    path = tmp_path / "api.db"
    with seeded(LEAK), EventLog.open(path) as log:
        config = from_mapping({"scheduler": {"max_num_seqs": 2}})
        with Engine(SimRunner(), config, log) as engine:
            for name in "abc":
                engine.add_request(name, [7, 8, 9], SamplingParams(max_tokens=4))
            for _ in range(4):
                engine.step()
            engine.abort_request("a")
            while engine.state.unfinished:
                engine.step()
        result = rlt_audit("shrink", path)
    assert result.exit_code == 0
    small = json.loads(result.stdout)
    assert [request["id"] for request in small["requests"]] == ["a"]
    assert small["requests"][0]["prompt"] == [0]


# ---- a difference ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_first_difference_that_a_setting_makes_is_kept(tmp_path: Path) -> None:
    log = run(PREEMPTING, tmp_path / "run.db")
    setting = "cache.host_snapshot_blocks=0"
    result = rlt_audit("shrink", log, "--set", setting, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["symptom"]["kind"] == "difference"
    assert found["symptom"]["what"] == "same-outputs"
    assert found["after"]["requests"] == 2
    again = run(found["workload"], tmp_path / "small.db")
    assert rlt_audit("replay", again, "--set", setting, "--level", "schedule").exit_code == 1


@pytest.mark.slow
def test_the_first_difference_to_another_revision_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    make_repository(folder)
    monkeypatch.chdir(folder)
    log = run(PREEMPTING, tmp_path / "run.db")
    with seeded("no-order-no-progress"):
        result = rlt_audit("shrink", log, "--base", "base", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["symptom"]["kind"] == "difference"
    assert found["is_minimal"] is True
    assert found["after"]["requests"] == 2
    assert_refused(
        rlt_audit("shrink", log, "--base", "base"), "the workload shows nothing that could be kept"
    )
    assert_tidy(folder)


# ---- refusals ----------------------------------------------------------------------------------


def assert_refused(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_a_scheduler_that_does_not_repeat_is_refused(tmp_path: Path) -> None:
    with seeded("no-order-no-progress"), pytest.MonkeyPatch.context() as monkeypatch:
        log = run(PREEMPTING, tmp_path / "bad.db")
        engines, victims, begin = count(), Preemption._block_victims, Preemption.__init__

        def begin_and_count(self, *arguments):
            begin(self, *arguments)
            self.is_odd = next(engines) % 2

        def in_one_order_or_another(self, requester):
            return victims(self, requester)[:: -1 if self.is_odd else 1]

        monkeypatch.setattr(Preemption, "__init__", begin_and_count)
        monkeypatch.setattr(Preemption, "_block_victims", in_one_order_or_another)
        assert_refused(rlt_audit("shrink", log), "does not show the same twice: what is flaky")


def test_what_shows_something_else_the_second_time_is_flaky() -> None:
    s1, s2 = (Symptom(kind="finding", what=what, place="admit") for what in ("S9", "F1"))
    for seen in ([s1], [s2]), ([s1], []), ([], [s1]):
        shown = iter(seen)

        def observe(_: bytes, shown=shown) -> Observed:
            symptoms = dict.fromkeys(next(shown), "")
            return Observed(symptoms=symptoms, steps=3, step=2, digests=("d",))

        with pytest.raises(ShrinkError, match="does not show the same twice"):
            shrink('{"format": "rlt-workload/1", "requests": []}', observe)


def test_two_runs_of_one_digest_or_none() -> None:
    digests = count()

    def observe(_: bytes) -> Observed:
        symptom = Symptom(kind="finding", what="S9", place="admit")
        return Observed(symptoms={symptom: ""}, steps=3, step=2, digests=(str(next(digests)),))

    with pytest.raises(ShrinkError, match="does not show the same twice"):
        shrink('{"format": "rlt-workload/1", "requests": []}', observe)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "run 1 breaks no rule: there is nothing to keep"),
        (("--set", "scheduler.max_num_seqs=3"), "the workload shows nothing that could be kept"),
        (("--set", "scheduler.mod=mixed"), "no such field"),
        (("--set", "scheduler.max_num_seqs"), "must be SECTION.FIELD=VALUE"),
        (("--set", "a.b=1", "--base", "main"), "--finding, --set and --base each name what is"),
        (("--base", "no-such-revision"), "there is no revision 'no-such-revision'"),
        (("--run", 4), "there is no run 4"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    options: tuple[object, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet")
    monkeypatch.chdir(folder)
    out = tmp_path / "small.json"
    log = run(PREEMPTING, tmp_path / "run.db")
    assert_refused(rlt_audit("shrink", log, *options, "-o", out), sentence)
    assert not out.exists()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with seeded(LEAK):
        log = run(LEAKING, tmp_path / "leak.db")
        result = rlt_audit("shrink", log, "-o", tmp_path / "nowhere" / "small.json")
    assert_refused(result, "cannot be written (No such file or directory)")
