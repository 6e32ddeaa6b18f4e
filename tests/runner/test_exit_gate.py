"""The gate's opinion after each loop: accumulation, thresholds, resets, delay."""

import math

import pytest
import torch

from runner.exit_gate import ExitGate, GateRow


def logit(hazard):
    return math.log(hazard / (1 - hazard))


def signals(hazards, *, threshold, mode="ouro", min_loops=1):
    """What the gate says after each loop of one token with these hazards."""
    gate = ExitGate(2, mode, torch.device("cpu"))
    rows = torch.tensor([1])
    gate.reset(rows)
    return [
        gate.after_loop(
            rows, torch.tensor([logit(hazard)]), [GateRow(threshold, min_loops, loops_done)]
        )[0]
        for loops_done, hazard in enumerate(hazards)
    ]


def test_a_constant_hazard_of_0_4_passes_0_6_after_two_loops():
    assert signals([0.4, 0.4, 0.4, 0.4], threshold=0.6) == [False, True, True, True]


def test_hazards_before_min_loops_count():
    # 1 - 0.1 x 0.9 = 0.91 after the second loop, though its own hazard is only 0.1
    assert signals([0.9, 0.1], threshold=0.905, min_loops=2)[1]


def test_threshold_one_never_exits_even_when_the_sigmoid_rounds_to_one():
    gate = ExitGate(1, "ouro", torch.device("cpu"))
    row = torch.tensor([0])
    said = gate.after_loop(row, torch.tensor([100.0]), [GateRow(1.0, 1, 0)])
    assert gate.save(0) == 0.0
    assert said == [False]


def test_threshold_zero_exits_at_once_even_when_the_hazard_is_zero():
    assert signals([1e-12, 1e-12], threshold=0.0) == [True, True]


def test_a_delayed_gate_answers_with_the_loop_before():
    assert signals([0.3, 0.3, 0.3], threshold=0.5) == [False, True, True]
    assert signals([0.3, 0.3, 0.3], threshold=0.5, mode="ouro_delayed") == [False, False, True]


def test_a_delayed_signal_counts_only_from_a_loop_that_had_reached_min_loops():
    said = signals([0.9, 0.9, 0.9, 0.9], threshold=0.5, mode="ouro_delayed", min_loops=2)
    assert said == [False, False, True, True]
    immediate = signals([0.0001] * 3, threshold=0.0, mode="ouro_delayed", min_loops=1)
    assert immediate == [False, True, True]


def test_a_trace_still_computes_the_gate():
    assert signals([0.4, 0.4], threshold=0.6, mode="trace") == [False, True]


def test_rows_accumulate_apart_and_reset_apart():
    gate = ExitGate(3, "ouro", torch.device("cpu"))
    both = torch.tensor([2, 0])
    asked = [GateRow(0.6, 1, 0), GateRow(0.45, 1, 0)]
    half = torch.tensor([logit(0.4), logit(0.5)])
    assert gate.after_loop(both, half, asked) == [False, True]
    gate.reset(torch.tensor([0]))
    assert gate.save(0) == 1.0
    assert gate.save(2) == pytest.approx(0.6)
    assert gate.save(1) == 1.0


def test_a_saved_survival_continues_in_another_row():
    gate = ExitGate(2, "ouro", torch.device("cpu"))
    gate.after_loop(torch.tensor([0]), torch.tensor([logit(0.4)]), [GateRow(0.6, 1, 0)])
    gate.load(1, gate.save(0))
    said = gate.after_loop(torch.tensor([1]), torch.tensor([logit(0.4)]), [GateRow(0.6, 1, 1)])
    assert said == [True]
