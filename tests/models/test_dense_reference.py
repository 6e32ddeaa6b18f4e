"""The reference itself: the worked example of both layouts, and its two ways to run a prompt."""

import pytest
import torch
from reference import dense_ouro
from reference.dense_ouro import DenseCache, ExitRule

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "total_ut_steps": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}


def scalar(value):
    return torch.tensor([[float(value)]])


def read_of_b(layout, *, loop, q, v, history):
    """B, at position 1, writes (q, v) and reads behind A's entries of loops 1 … len(history)."""
    cache = DenseCache(layout, loops=2, layers=1)
    for a_loop, (k, value) in enumerate(history, start=1):
        cache.write(a_loop, 0, 0, scalar(k), scalar(value))
    cache.write(loop, 0, 1, scalar(q), scalar(v))
    return float(dense_ouro.attend(scalar(q), cache.read(loop, 0, 1)))


A = [(1, 10), (2, 20)]


def test_last_exited_reads_the_history_of_the_querys_own_loop():
    assert read_of_b("last_exited", loop=1, q=1, v=30, history=A) == pytest.approx(20.0)


def test_shared_reads_the_last_version_at_every_loop():
    assert read_of_b("shared", loop=1, q=1, v=30, history=A) == pytest.approx(22.6894, abs=1e-4)


@pytest.mark.parametrize(
    ("layout", "first", "second"), [("last_exited", 20.0, 20.0), ("shared", 22.6894, 20.73)]
)
def test_a_second_loop_reads_what_the_layout_keeps(layout, first, second):
    h = read_of_b(layout, loop=1, q=1, v=30, history=A)
    assert h == pytest.approx(first, abs=1e-4)
    assert read_of_b(layout, loop=2, q=h / 20, v=h, history=A) == pytest.approx(second, abs=5e-3)


def test_a_token_that_left_early_shows_its_exit_version_to_deeper_loops():
    cache = DenseCache("last_exited", loops=4, layers=1)
    cache.write(1, 0, 0, scalar(1), scalar(10))
    cache.write(2, 0, 0, scalar(2), scalar(20))
    cache.exit(0, loops_done=2)
    seen = [float(cache.read(loop, 0, 0)[0][1]) for loop in (1, 2, 3, 4)]
    assert seen == [10, 20, 20, 20]
    assert cache.entries[2, 0, 0][0] is not cache.entries[1, 0, 0][0]


@pytest.mark.parametrize(
    ("hazards", "rule", "depth"),
    [
        ([0.4] * 4, ExitRule(0.6), 2),
        ([0.3] * 4, ExitRule(0.5), 2),
        ([0.3] * 4, ExitRule(0.5, min_loops=1), 2),
        ([0.6] * 4, ExitRule(0.5, min_loops=1), 1),
        ([0.9, 0.0, 0.0, 0.0], ExitRule(0.8), 2),
        ([0.0] * 4, ExitRule(0.0), 2),
        ([0.0] * 4, ExitRule(0.0, min_loops=3), 3),
        ([0.1] * 4, ExitRule(0.9), 4),
        ([0.1] * 4, ExitRule(0.9, max_loops=3), 3),
        ([1.0] * 4, ExitRule(1.0), 4),
    ],
)
def test_the_exit_rule_accumulates_hazards_between_its_bounds(hazards, rule, depth):
    logits = [float(torch.logit(torch.tensor(hazard))) for hazard in hazards]
    left = [loops for loops in (1, 2, 3, 4) if dense_ouro.leaves(rule, logits[:loops], 4)]
    assert left[0] == depth


def tiny_weights(seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, dim = TINY["hidden_size"], TINY["intermediate_size"], TINY["head_dim"]
    q_size, kv_size = TINY["num_attention_heads"] * dim, TINY["num_key_value_heads"] * dim
    shapes = {
        "model.embed_tokens": (TINY["vocab_size"], hidden),
        "lm_head": (TINY["vocab_size"], hidden),
        "model.early_exit_gate": (1, hidden),
    }
    for layer in range(TINY["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj": (q_size, hidden),
            f"{name}.self_attn.k_proj": (kv_size, hidden),
            f"{name}.self_attn.v_proj": (kv_size, hidden),
            f"{name}.self_attn.o_proj": (hidden, q_size),
            f"{name}.mlp.gate_proj": (inner, hidden),
            f"{name}.mlp.up_proj": (inner, hidden),
            f"{name}.mlp.down_proj": (hidden, inner),
        }
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) * 0.3
        for name, shape in shapes.items()
    }
    norms = ["model.norm"] + [
        f"model.layers.{layer}.{which}"
        for layer in range(TINY["num_hidden_layers"])
        for which in (
            "input_layernorm",
            "input_layernorm_2",
            "post_attention_layernorm",
            "post_attention_layernorm_2",
        )
    ]
    for name in norms:
        weights[f"{name}.weight"] = 1 + 0.1 * torch.randn(hidden, generator=generator)
    weights["model.early_exit_gate.bias"] = torch.zeros(1)
    return weights


def test_token_by_token_at_full_depth_equals_the_whole_sequence():
    weights, prompt = tiny_weights(), [5, 9, 1, 33, 2]
    states, gates = dense_ouro.whole_sequence(weights, TINY, prompt)[-1]
    first = dense_ouro.generate(weights, TINY, prompt, ExitRule(), max_tokens=1)
    assert torch.allclose(first.logits[0], weights["lm_head.weight"] @ states[-1], atol=1e-5)
    assert first.gates[0][-1] == pytest.approx(float(gates[-1]), abs=1e-5)


def test_depths_change_what_later_tokens_read_under_last_exited():
    weights, prompt = tiny_weights(), [5, 9, 1]
    full = dense_ouro.generate(weights, TINY, prompt, [4, 4, 4], max_tokens=3)
    early = dense_ouro.generate(weights, TINY, prompt, [4, 2, 4], max_tokens=3)
    assert early.exit_depths == [4, 2, 4]
    assert torch.equal(full.logits[0], early.logits[0])
    assert not torch.allclose(full.logits[2], early.logits[2])


def test_the_two_layouts_are_different_numbers():
    weights, prompt = tiny_weights(), [5, 9, 1]
    kept = dense_ouro.generate(weights, TINY, prompt, ExitRule(), "last_exited", max_tokens=1)
    shared = dense_ouro.generate(weights, TINY, prompt, ExitRule(), "shared", max_tokens=1)
    assert not torch.allclose(kept.logits[0], shared.logits[0])


def test_generation_ends_at_a_stop_id():
    weights, prompt = tiny_weights(), [5, 9, 1]
    token = dense_ouro.generate(weights, TINY, prompt, ExitRule(), max_tokens=1).tokens[0]
    stopped = dense_ouro.generate(weights, TINY, prompt, ExitRule(), stop_ids=(token,))
    assert stopped.tokens == [token]
