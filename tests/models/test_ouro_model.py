"""The network agrees with the dense reference, and keeps the small facts serving relies on."""

import math

import pytest
import torch
from reference import dense_ouro
from torch.nn import functional

from runner.models.ouro import OuroConfig, OuroModel, apply_rope, rope_frequencies

CONFIG = OuroConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    total_ut_steps=4,
    eos_token_ids=(0,),
)
PROMPT = [5, 9, 1, 33, 2, 2, 60]


def dense_attend(_layer, q, k, v):
    """One sequence, causal, nothing cached: every loop reads what it wrote itself."""
    read = functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True, enable_gqa=True
    )
    return read.transpose(0, 1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = OuroModel(CONFIG)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # ones would hide a norm that is left out or swapped
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def run(model, tokens, loops=4):
    """(state, gate logit) after every loop, whole sequence."""
    positions = torch.arange(len(tokens))
    hidden, result = model.prelude(torch.tensor(tokens)), []
    for _ in range(loops):
        hidden, gate = model.recurrent(hidden, positions, dense_attend)
        result.append((hidden, gate))
    return result


@torch.no_grad()
def test_every_loop_agrees_with_the_dense_reference(model):
    ours = run(model, PROMPT)
    reference = dense_ouro.whole_sequence(model.state_dict(), CONFIG.to_mapping(), PROMPT)
    for (state, gate), (wanted_state, wanted_gate) in zip(ours, reference, strict=True):
        assert torch.allclose(state, wanted_state, atol=1e-5, rtol=0)
        assert torch.allclose(gate, wanted_gate, atol=1e-5, rtol=0)


@torch.no_grad()
def test_logits_agree_with_the_dense_reference(model):
    logits = model.coda(run(model, PROMPT)[-1][0])
    rule = dense_ouro.ExitRule()
    wanted = dense_ouro.generate(
        model.state_dict(), CONFIG.to_mapping(), PROMPT, rule, max_tokens=1
    )
    assert torch.allclose(logits[-1], wanted.logits[0], atol=1e-5, rtol=0)


def test_gradients_reach_every_parameter_through_a_dense_attention(model):
    (_, first_gate), *_, (state, gate) = run(model, PROMPT)
    (model.coda(state).logsumexp(-1).sum() + gate.sum() + first_gate.sum()).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


def test_rows_of_one_call_do_not_see_each_other_but_through_attention(model):
    def own_value(_layer, q, _k, v):
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    hidden = torch.randn(3, 32)
    positions = torch.tensor([7, 0, 100])
    together, gates = model.recurrent(hidden, positions, own_value)
    for row in range(3):
        alone, gate = model.recurrent(hidden[row : row + 1], positions[row : row + 1], own_value)
        assert torch.allclose(alone[0], together[row], atol=1e-6)
        assert torch.allclose(gate[0], gates[row], atol=1e-6)


def test_attention_gets_rotated_queries_and_keys_but_plain_values(model):
    seen = {}

    def spy(layer, q, k, v):
        seen[layer, int(positions[0])] = (q, k, v)
        return torch.zeros_like(q)

    hidden = torch.randn(1, 32)
    for position in (0, 5):
        positions = torch.tensor([position])
        model.recurrent(hidden, positions, spy)
    (q0, k0, v0), (q5, k5, v5) = seen[0, 0], seen[0, 5]
    assert q0.shape == (1, 4, 8)
    assert k0.shape == v0.shape == (1, 2, 8)
    assert torch.equal(v0, v5)
    assert not torch.allclose(q0, q5)
    assert not torch.allclose(k0, k5)
    assert torch.allclose(q0.norm(dim=-1), q5.norm(dim=-1), atol=1e-5)
    assert sorted(layer for layer, position in seen if position == 0) == [0, 1]


def test_rotary_frequencies_fall_from_one_by_powers_of_theta():
    frequencies = rope_frequencies(8, 10_000.0)
    assert frequencies.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_rotary_pairs_the_two_halves_of_a_head():
    x = torch.zeros(1, 1, 4)
    x[0, 0, 0] = 1.0
    turned = apply_rope(x, torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    assert turned[0, 0].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_rotary_scores_depend_on_the_distance_only():
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 8), torch.randn(1, 1, 8)
    frequencies = rope_frequencies(8, 10_000.0)

    def score(q_position, k_position):
        turned = [
            apply_rope(x, *((p * frequencies)[None].cos(), (p * frequencies)[None].sin()))
            for x, p in ((q, q_position), (k, k_position))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(9, 4) == pytest.approx(score(25, 20), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_frequencies_survive_a_cast_of_the_module(dtype):
    exact = OuroModel(CONFIG).model.rotary.inv_freq
    cast = OuroModel(CONFIG).to(dtype).model.rotary.inv_freq
    assert cast.dtype == torch.float32
    assert torch.equal(cast, exact)


def test_rotary_frequencies_are_real_after_leaving_the_meta_device():
    with torch.device("meta"):
        model = OuroModel(CONFIG)
    frequencies = model.to(torch.bfloat16).to_empty(device="cpu").model.rotary.inv_freq
    assert torch.equal(frequencies, rope_frequencies(8, CONFIG.rope_theta))


@torch.no_grad()
def test_low_precision_keeps_states_narrow_and_gates_in_fp32(model):
    for state, gate in run(model.to(torch.bfloat16), PROMPT):
        assert state.dtype == torch.bfloat16
        assert gate.dtype == torch.float32


@torch.no_grad()
def test_a_gate_bias_alone_sets_a_constant_hazard(model):
    gate = model.model.early_exit_gate
    gate.weight.zero_()
    gate.bias.fill_(math.log(0.4 / 0.6))
    for _, logit in run(model, PROMPT):
        assert torch.sigmoid(logit).tolist() == pytest.approx([0.4] * len(PROMPT))
    rule = dense_ouro.ExitRule(threshold=0.6)
    ran = dense_ouro.generate(model.state_dict(), CONFIG.to_mapping(), PROMPT, rule, max_tokens=3)
    assert ran.exit_depths == [4, 2, 2]


@torch.no_grad()
def test_a_certain_gate_does_not_end_a_token_at_threshold_one(model):
    model.model.early_exit_gate.bias.fill_(100.0)
    rule = dense_ouro.ExitRule(threshold=1.0)
    ran = dense_ouro.generate(model.state_dict(), CONFIG.to_mapping(), PROMPT, rule, max_tokens=3)
    assert ran.exit_depths == [4, 4, 4]


def test_the_state_a_loop_returns_is_normed(model):
    state, _ = run(model, PROMPT, loops=1)[0]
    unscaled = state / model.model.norm.weight
    assert unscaled.square().mean(dim=-1).tolist() == pytest.approx([1.0] * len(PROMPT), abs=1e-3)
