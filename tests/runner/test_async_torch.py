"""TorchRunner asynchronously: tokens that only the device knows, and results that come late."""

import pytest
from driving import LateTorchRunner, take_the_devices_way
from small_runs import WAYS, completions, config

from runner.torch_runner import TorchRunner


@pytest.fixture(scope="module")
def on_time():
    return completions(TorchRunner("demo", device="cpu"), config(is_async=False))


def test_tokens_leave_at_different_depths(on_time):
    assert len({depth for _, depths, _ in on_time.values() for depth in depths}) > 1


@pytest.mark.parametrize("way", WAYS)
def test_late_results_change_no_token_depth_or_end(way, on_time):
    late = LateTorchRunner("demo", 7, device="cpu")
    assert completions(late, config(is_async=True, **WAYS[way])) == on_time


def test_results_that_are_there_at_once_change_nothing_either(on_time):
    runner = TorchRunner("demo", device="cpu")
    assert completions(runner, config(is_async=True)) == on_time


@pytest.mark.parametrize("way", ["atomic", "mixed", "tight"])
def test_late_results_change_nothing_on_the_devices_way_either(way, on_time, monkeypatch):
    take_the_devices_way(monkeypatch)
    late = LateTorchRunner("demo", 3, device="cpu")
    assert completions(late, config(is_async=True, **WAYS[way])) == on_time
