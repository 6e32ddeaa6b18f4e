"""A sample of the mutation run: single corruptions are reported where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutations import SCENES, corrupted

import audit


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("seed", range(100, 106))
def test_a_random_corruption_is_reported_within_one_step(
    tmp_path: Path, scene: str, seed: int
) -> None:
    case = corrupted(scene, seed, tmp_path)
    report = audit.verify(case.path)
    assert report.verdict == "findings", case.what
    assert abs(report.findings[0].step - case.step) <= 1, (case, report.findings[0])
