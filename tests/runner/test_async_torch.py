"""TorchRunner asynchronously: tokens that only the device knows, and results that come late."""

import pytest
from small_runs import WAYS, completions, config

import runner.torch_runner
from rlt_fsm.workload import Completion
from runner.kernels import twins
from runner.kernels.backend import TritonAttention
from runner.sim_completion import LateResults
from runner.torch_runner import TorchRunner


class LateTorchRunner(TorchRunner):
    """The demo model on the CPU, whose results come late and out of order."""

    def __init__(self, seed):
        super().__init__("demo", device="cpu")
        self._late = LateResults(Completion(order="random", seed=seed, max_delay=3))

    def submit(self, batch):
        super().submit(batch)
        for result in super().poll():
            self._late.add(result)

    def poll(self):
        return self._late.poll()

    def collect(self):
        return self._late.collect()


@pytest.fixture(scope="module")
def on_time():
    return completions(TorchRunner("demo", device="cpu"), config(is_async=False))


def test_tokens_leave_at_different_depths(on_time):
    assert len({depth for _, depths, _ in on_time.values() for depth in depths}) > 1


@pytest.mark.parametrize("way", WAYS)
def test_late_results_change_no_token_depth_or_end(way, on_time):
    assert completions(LateTorchRunner(7), config(is_async=True, **WAYS[way])) == on_time


def test_results_that_are_there_at_once_change_nothing_either(on_time):
    runner = TorchRunner("demo", device="cpu")
    assert completions(runner, config(is_async=True)) == on_time


@pytest.mark.parametrize("way", ["atomic", "mixed", "tight"])
def test_late_results_change_nothing_on_the_devices_way_either(way, on_time, monkeypatch):
    """The kernels' twins behind the executor that launches kernels on a GPU."""

    def create(_name, cache, *, batch_invariant=False):
        return TritonAttention(cache, twins, batch_invariant=batch_invariant)

    monkeypatch.setattr(runner.torch_runner, "create_backend", create)
    monkeypatch.setattr(runner.torch_runner, "resolve_backend", lambda *_: "triton")
    assert completions(LateTorchRunner(3), config(is_async=True, **WAYS[way])) == on_time
