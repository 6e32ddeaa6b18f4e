"""The gate's opinion after each loop: accumulation, thresholds, resets."""

import math

import pytest
import torch

from runner.exit_gate import ExitGate


def logit(hazard):
    return math.log(hazard / (1 - hazard))


def signals(hazards, *, threshold):
    """What the gate says after each loop of one token with these hazards."""
    gate = ExitGate(2, torch.device("cpu"))
    rows = torch.tensor([1])
    gate.reset(rows)
    return [
        gate.after_loop(rows, torch.tensor([logit(hazard)]), [threshold])[0] for hazard in hazards
    ]


def test_a_constant_hazard_of_0_4_passes_0_6_after_two_loops():
    assert signals([0.4, 0.4, 0.4, 0.4], threshold=0.6) == [False, True, True, True]


def test_hazards_of_all_loops_count():
    # 1 - 0.1 x 0.9 = 0.91 after the second loop, though its own hazard is only 0.1
    assert signals([0.9, 0.1], threshold=0.905)[1]


def test_threshold_one_never_exits_even_when_the_sigmoid_rounds_to_one():
    gate = ExitGate(1, torch.device("cpu"))
    row = torch.tensor([0])
    said = gate.after_loop(row, torch.tensor([100.0]), [1.0])
    assert gate.save(0) == 0.0
    assert said == [False]


def test_threshold_zero_exits_at_once_even_when_the_hazard_is_zero():
    assert signals([1e-12, 1e-12], threshold=0.0) == [True, True]


def test_rows_accumulate_apart_and_reset_apart():
    gate = ExitGate(3, torch.device("cpu"))
    both = torch.tensor([2, 0])
    asked = [0.6, 0.45]
    half = torch.tensor([logit(0.4), logit(0.5)])
    assert gate.after_loop(both, half, asked) == [False, True]
    gate.reset(torch.tensor([0]))
    assert gate.save(0) == 1.0
    assert gate.save(2) == pytest.approx(0.6)
    assert gate.save(1) == 1.0


def test_a_saved_survival_continues_in_another_row():
    gate = ExitGate(2, torch.device("cpu"))
    gate.after_loop(torch.tensor([0]), torch.tensor([logit(0.4)]), [0.6])
    gate.load(1, gate.save(0))
    said = gate.after_loop(torch.tensor([1]), torch.tensor([logit(0.4)]), [0.6])
    assert said == [True]
