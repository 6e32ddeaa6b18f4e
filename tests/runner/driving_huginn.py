"""A tiny random Huginn model, for tests of everything that serves one."""

import torch

from runner.loading import LoadedModel
from runner.models.huginn import HuginnModel
from runner.models.huginn_config import HuginnConfig

# Parts of unequal length, so that no layer can pass for another; a size that 4 does not divide.
TINY = HuginnConfig(
    n_embd=42,
    n_heads=3,
    intermediate_size=56,
    n_layers_in_prelude=2,
    n_layers_in_recurrent_block=3,
    n_layers_in_coda=2,
    mean_recurrence=4,
    block_size=96,
    vocab_size=64,
    rope_base=100.0,
)


def tiny_huginn(*, seed=0, dtype=torch.float32):
    """Weights so large that states, injections, planes and seeds all decide tokens, and so small
    that the last bit of fp32 does not.
    """
    torch.manual_seed(seed)
    model = HuginnModel(TINY).requires_grad_(requires_grad=False).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "ln_f" in name:
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(0, 0.2 if "wte" in name else 0.1)
    return LoadedModel("tiny-huginn", TINY, model.to(dtype))


def reference_config(loaded):
    """config.json's object, as the dense reference reads it."""
    return loaded.config.to_mapping()
