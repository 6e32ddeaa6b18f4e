"""The plain forward that `model check` holds serving against, held against the slow reference."""

import pytest
import torch
from driving import dense_config, tiny_model
from reference import dense_ouro

from runner.models.dense import sequence_logits


@pytest.mark.parametrize("seed", range(3))
def test_logits_at_every_depth_are_those_of_the_token_by_token_reference(seed):
    loaded = tiny_model(seed=seed)
    prompt, depths = [3, 14, 15, 9, 26], [4, 1, 3, 2, 4, 1]
    made = dense_ouro.generate(
        loaded.model.state_dict(), dense_config(loaded), prompt, depths, max_tokens=len(depths)
    )
    tokens = prompt + made.tokens[:-1]
    logits = sequence_logits(loaded.model, tokens, [4] * len(prompt) + depths[1:])
    wanted = torch.stack(made.logits)
    assert torch.allclose(logits[len(prompt) - 1 :], wanted, atol=1e-4)
