"""Kernels run in Triton's interpreter, or on a GPU with RLT_KERNELS_DEVICE=cuda."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
