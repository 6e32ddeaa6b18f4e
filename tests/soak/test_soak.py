"""The soak in short: `python -m tests.soak` for some seconds; memory takes longer to judge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from soak.samples import MIB, Sample, judge

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_short_soak_keeps_the_wal_small_the_log_in_proportion_and_the_auditor_content():
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "0.15"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = [line for line in done.stdout.splitlines() if line[:2] in (" ?", "ok", "NO")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line[:2] for line in verdicts] == [" ?", "ok", "ok", "ok"], done.stdout
    assert "clean" in verdicts[-1]


@pytest.mark.slow
def test_beside_a_rotation_the_log_is_archived_verified_and_loses_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "0.12", "--archive-every", "2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "run 1 is over: " in done.stdout, done.stdout + done.stderr
    judged = [line for line in done.stdout.splitlines() if line[:2] in (" ?", "ok", "NO")]
    memory, wal, size, file, verdict = judged
    assert memory.startswith(" ?"), memory
    assert wal.startswith("ok"), wal
    assert "bytes/event" in size, "each archive has its own tables: few events weigh more"
    assert file.startswith(" ?"), file
    assert verdict.startswith("ok  clean: "), verdict


def _half_hour(**last):
    """Samples of a flat half hour, of which the last is changed."""
    samples = [
        Sample(60.0 * m, 1000 * m, m, 50 * MIB, 9 * MIB, 50_000 * m, 0) for m in range(1, 31)
    ]
    return [*samples[:-1], samples[-1]._replace(**last)]


@pytest.mark.parametrize(
    ("last", "holds"),
    [
        ({}, [True, True, True]),
        ({"resident": 53 * MIB}, [False, True, True]),
        ({"wal": 64 * MIB}, [True, False, True]),
        ({"log": 1_700_000}, [True, True, False]),
        ({"log": 1_300_000}, [True, True, False]),
    ],
)
def test_what_grows_is_named(last, holds):
    assert [judgement.holds for judgement in judge(_half_hour(**last))] == holds


def test_memory_is_not_judged_where_a_soak_was_short():
    short = [sample._replace(seconds=sample.seconds / 60) for sample in _half_hour()]
    assert [judgement.holds for judgement in judge(short)] == [None, True, True]
