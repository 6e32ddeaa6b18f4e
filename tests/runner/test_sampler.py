"""From logits to tokens: the order of filters, ties, logprobs, and independence of batch mates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlt_fsm.params import SamplingParams
from runner.draws import uniform
from runner.sampler import Draw, sample


def drawn(logits, count=400, **params):
    """Tokens of `count` outputs from one logits row."""
    asked = SamplingParams(**{"temperature": 1.0, **params})
    rows = torch.tensor([logits] * count, dtype=torch.float32)
    return sample(rows, [Draw(asked, idx) for idx in range(count)]).token_ids


def logits_of(*probabilities):
    return [math.log(p) for p in probabilities]


logits_rows = st.lists(
    st.floats(-20, 20, width=32).map(lambda x: round(x, 2)), min_size=2, max_size=12
)
sampling = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        "top_k": st.sampled_from([-1, 1, 2, 5, 100]),
        "top_p": st.sampled_from([1.0, 0.9, 0.5, 0.01]),
        "seed": st.integers(0, 2**63 - 1),
    }
)


def kept_tokens(logits, *, temperature, top_k, top_p):
    """The filters once more, in plain Python: which tokens may be drawn."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if top_k > 0:
        floor = logits[order[min(top_k, len(order)) - 1]]
        order = [token for token in order if logits[token] >= floor]
    top = logits[order[0]]
    weights = [math.exp((logits[token] - top) / temperature) for token in order]
    kept, preceding = set(), 0.0
    for token, weight in zip(order, weights, strict=True):
        if preceding <= top_p + 1e-9:
            kept.add(token)
        preceding += weight / sum(weights)
    return kept


def test_temperature_zero_takes_the_largest_logit_and_the_first_of_equals():
    assert drawn([0.5, 2.0, 2.0, 1.0], count=3, temperature=0.0) == [1, 1, 1]


@given(logits_rows, sampling, st.integers(0, 50))
def test_a_drawn_token_passed_every_filter(logits, params, output_idx):
    logits = torch.tensor(logits, dtype=torch.float32).tolist()
    draw = Draw(SamplingParams(**params), output_idx)
    (token,) = sample(torch.tensor([logits]), [draw]).token_ids
    if params["temperature"] == 0:
        assert token == logits.index(max(logits))
    else:
        filters = {name: params[name] for name in ("temperature", "top_k", "top_p")}
        assert token in kept_tokens(logits, **filters)


def test_top_k_keeps_everything_that_ties_with_the_kth():
    tokens = drawn([1.0, 3.0, 1.0, 0.0], top_k=2, temperature=5.0)
    assert set(tokens) == {0, 1, 2}


def test_top_p_removes_a_token_only_when_the_mass_before_it_exceeds_p():
    logits = logits_of(0.5, 0.3, 0.15, 0.05)
    # before tokens 1, 2 and 3 lie masses of 0.5, 0.8 and 0.95
    assert set(drawn(logits, top_p=0.49)) == {0}
    assert set(drawn(logits, top_p=0.6)) == {0, 1}
    assert set(drawn(logits, top_p=0.9)) == {0, 1, 2}


def test_top_p_always_keeps_the_likeliest_token():
    assert set(drawn(logits_of(0.4, 0.35, 0.25), top_p=1e-9)) == {0}


def test_top_p_measures_mass_after_top_k():
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    # of the two that top_k keeps the first holds 4/7 = 0.571
    assert set(drawn(logits, top_k=2, top_p=0.56)) == {0}
    assert set(drawn(logits, top_k=2, top_p=0.58)) == {0, 1}


def test_temperature_comes_before_top_p():
    logits = logits_of(0.8, 0.1, 0.1)
    assert set(drawn(logits, top_p=0.75)) == {0}
    # at temperature 4 they hold 0.457, 0.272 and 0.272
    assert set(drawn(logits, top_p=0.75, temperature=4.0)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_p": 0.75}, [4 / 9, 3 / 9, 2 / 9, 0]),
    ],
)
def test_draws_follow_the_filtered_distribution(params, expected):
    count = 6000
    tokens = drawn(logits_of(0.4, 0.3, 0.2, 0.1), count=count, seed=5, **params)
    for token, probability in enumerate(expected):
        share = tokens.count(token) / count
        assert share == pytest.approx(probability, abs=0.02)


def test_a_plain_draw_is_the_inverse_cdf_in_the_order_of_token_ids():
    probabilities = [0.1, 0.2, 0.3, 0.4]
    for idx, token in enumerate(drawn(logits_of(*probabilities), count=50, seed=3)):
        u = uniform(3, idx)
        below = [k for k in range(4) if sum(probabilities[: k + 1]) <= u]
        assert token == len(below)


@given(st.lists(st.tuples(logits_rows, sampling), min_size=2, max_size=6), st.integers(0, 9))
def test_a_row_draws_the_same_token_alone_and_in_any_batch(rows, output_idx):
    width = max(len(logits) for logits, _ in rows)
    padded = torch.tensor([logits + [-30.0] * (width - len(logits)) for logits, _ in rows])
    draws = [Draw(SamplingParams(**params, logprobs=0), output_idx) for _, params in rows]
    together = sample(padded, draws)
    for i, draw in enumerate(draws):
        alone = sample(padded[i : i + 1], [draw])
        assert together.token_ids[i] == alone.token_ids[0]
        assert together.logprobs[i] == pytest.approx(alone.logprobs[0], abs=1e-6)


def test_a_logprob_is_of_the_raw_logits_and_only_where_asked_for():
    logits = logits_of(0.7, 0.2, 0.1)
    asked = SamplingParams(temperature=3.0, top_k=1, logprobs=0)
    silent = SamplingParams(temperature=3.0, top_k=1)
    sampled = sample(torch.tensor([logits, logits]), [Draw(asked, 0), Draw(silent, 0)])
    assert sampled.token_ids == [0, 0]
    assert sampled.logprobs == [pytest.approx(math.log(0.7), abs=1e-6), None]


def test_extreme_temperatures_neither_overflow_nor_fail():
    assert set(drawn([1.0, 2.0], temperature=1e-300)) == {1}
    assert set(drawn([1.0, 2.0], temperature=1e300)) == {0, 1}


def test_a_row_whose_other_logits_are_minus_infinity_has_one_token():
    assert set(drawn([-math.inf, 0.0, -math.inf])) == {1}
    assert set(drawn([-math.inf, 0.0, -math.inf], top_k=3, top_p=0.9)) == {1}


def test_half_precision_logits_are_sampled_in_full_precision():
    logits = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.bfloat16)
    sampled = sample(logits, [Draw(SamplingParams(logprobs=0), 0)])
    exact = torch.log_softmax(logits.float(), dim=-1)[0, 1].item()
    assert sampled.logprobs == [pytest.approx(exact, abs=1e-7)]


def test_a_seed_of_none_is_refused_because_the_engine_resolves_it():
    with pytest.raises(AssertionError, match="resolves a seed"):
        sample(torch.zeros(1, 4), [Draw(SamplingParams(temperature=1.0, seed=None), 0)])
