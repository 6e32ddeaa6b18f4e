"""Host memory of batches in flight: one stage for each, used again in turn, never while in use."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlt_fsm.batch import BatchResult
from runner.kernels.step_inputs import StepInputs, columns_of, packed_numbers
from runner.pending import Pending, behind_launches
from runner.staging import Stage, StagingRing, step_outputs

CPU = torch.device("cpu")


def test_a_ring_has_a_stage_for_every_batch_in_flight_and_no_more():
    ring = StagingRing(2, 4, CPU)
    first, second = ring.take(), ring.take()
    assert first is not second
    with pytest.raises(AssertionError, match="the 2 there is room for"):
        ring.take()
    ring.give_back(second)
    assert ring.take() is second


def test_what_was_fetched_stays_when_the_device_goes_on():
    outputs, stage = step_outputs(3, CPU), Stage(3, CPU)
    outputs.tokens[:] = torch.tensor([2**40, -1, 7])
    outputs.logprobs[:] = torch.tensor([-0.5, 0.0, -2.25])
    outputs.exits[1] = 1
    stage.fetch_sampled(outputs)
    stage.fetch_exits(outputs)
    outputs.sampled.zero_()
    outputs.exits.zero_()
    assert stage.tokens.tolist() == [2**40, -1, 7]
    assert stage.logprobs.tolist() == [-0.5, 0.0, -2.25]
    assert stage.exits.tolist() == [0, 1, 0]


@given(st.integers(1, 40))
def test_columns_do_not_touch_one_another_and_arrive_as_they_were_written(capacity):
    stage, inputs = Stage(capacity, CPU), StepInputs(capacity, CPU)
    assert inputs.loop(capacity).slots.tolist() == [-1] * capacity
    for number, column in enumerate(stage.columns):
        column[:] = np.arange(capacity) + 100 * number
    inputs.send(stage.numbers)
    sent = columns_of(stage.numbers, capacity)
    loop, coda = inputs.loop(capacity), inputs.coda(capacity)
    prelude = inputs.prelude(capacity)
    arrived = (*coda.sampling[1:3], *coda.sampling[4:], *prelude, *loop[1:3], coda.loops)
    arrived += (coda.sampling.top_ks, loop.thresholds)
    for number, (column, got) in enumerate(zip(sent, arrived, strict=True)):
        assert got.tolist() == [100 * number + row for row in range(capacity)], number
        assert column.data_ptr() % column.element_size() == 0


def test_rows_behind_the_last_are_padding_whoever_was_there_before():
    stage = Stage(6, CPU)
    stage.put_slots([5, 4, 3, 2, 1, 0], 6)
    stage.put_slots([7, 9], 4)
    assert stage.columns.slots.tolist() == [7, 9, -1, -1, 1, 0]
    assert packed_numbers(6, CPU).min() == -1


def test_a_batchs_stage_comes_back_once_its_result_was_read_or_could_not_be():
    returned = []
    pending = Pending(3, lambda: BatchResult(3), None, lambda: returned.append(3))
    assert pending.is_done()
    assert returned == []
    assert pending.result() == BatchResult(3)

    def fails():
        raise RuntimeError("the device failed")

    with pytest.raises(RuntimeError, match="the device failed"):
        Pending(4, fails, None, lambda: returned.append(4)).result()
    assert returned == [3, 4]


def test_on_a_cpu_what_was_launched_has_been_computed():
    assert behind_launches(CPU) is None
