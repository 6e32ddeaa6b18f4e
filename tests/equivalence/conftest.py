"""One thread: the demo's tensors are too small to share, and other tests run beside these."""

import pytest
import torch

from runner.loading import load_model


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def demo():
    return load_model("demo", "cpu", "float32")
