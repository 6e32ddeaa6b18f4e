"""Ends at random moments, in a process of its own: `python -m recovery` in short."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_whoever_is_ended_at_any_moment_gets_in_the_end_what_it_would_have_got():
    folders = [str(TESTS.parent), str(TESTS)]
    done = subprocess.run(
        [sys.executable, "-m", "recovery", "--seeds", "0:8", "--seconds", "60"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("8 victims (")
