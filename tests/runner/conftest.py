"""One thread: the tiny model's tensors are too small to share, and other tests run beside these."""

import torch

torch.set_num_threads(1)
