"""The sampling kernel against the sampler that serves without it, and its draws."""

import pytest
import torch
import triton
import triton.language as tl
from kernels.paged import DEVICE, DTYPES, ON_GPU, ints, poisoned, random

from rlt_fsm.params import SamplingParams
from runner import draws
from runner.kernels import twins
from runner.kernels.sampling import sample_tokens, uniform
from runner.kernels.sampling_rows import SamplingRows
from runner.sampler import Draw, sample

VOCABULARY = 49152 if ON_GPU else 300
PARAMS = [
    SamplingParams(logprobs=0, seed=7),
    SamplingParams(logprobs=0, seed=2**62 + 11, temperature=1.0),
    SamplingParams(logprobs=0, seed=1, temperature=0.01),
    SamplingParams(logprobs=0, seed=2, temperature=0.7, top_k=5),
    SamplingParams(logprobs=0, seed=3, temperature=1.3, top_p=0.8),
    SamplingParams(logprobs=0, seed=4, temperature=0.9, top_k=40, top_p=0.5),
    SamplingParams(logprobs=0, seed=5, temperature=2.0, top_k=1),
    SamplingParams(logprobs=0, seed=6, temperature=1.0, top_p=1e-6),
    SamplingParams(logprobs=0, seed=8, temperature=1.0, top_k=10**6, top_p=0.99),
]


@triton.jit
def _draw(seeds, indices, out, count: tl.constexpr):
    at = tl.arange(0, count)
    for i in range(count):
        value = uniform(tl.load(seeds + i), tl.load(indices + i))
        tl.store(out + at, value, mask=at == i)


def test_the_kernels_draws_are_those_of_the_seed_and_index():
    cases = [(0, 0), (1, 0), (2**63 - 1, 3), (2**40 + 5, 2**33 + 1)]
    out = poisoned(4, dtype=torch.float64)
    seeds, indices = (ints(column, torch.int64) for column in zip(*cases, strict=True))
    _draw[(1,)](seeds, indices, out, count=4)
    assert out.tolist() == [draws.uniform(*case) for case in cases]


PADDING = 2


def asked(params):
    """Output i of row i; one row is padding."""
    slots = [-1 if i == PADDING else i + 1 for i in range(len(params))]
    return SamplingRows(
        ints(slots),
        ints([p.temperature for p in params], torch.float64),
        ints([p.top_p for p in params], torch.float64),
        ints([p.top_k for p in params]),
        ints([p.seed for p in params], torch.int64),
        ints(list(range(len(params))), torch.int64),
    )


def run(how, logits, rows):
    tokens, by_slot = ints([-7] * len(logits), torch.int64), ints([-7] * 20, torch.int64)
    logprobs = poisoned(len(logits), dtype=torch.float32)
    how(logits, rows, tokens, logprobs, by_slot)
    return tokens.tolist(), logprobs.tolist(), by_slot.tolist()


@pytest.mark.parametrize("coarse", [False, True], ids=["fine", "with-equal-logits"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_row_samples_as_the_sampler_does(dtype, coarse):
    logits = random(len(PARAMS), VOCABULARY, dtype=dtype, scale=3)
    if coarse:
        logits = logits.round()
    tokens, logprobs, by_slot = run(sample_tokens, logits, asked(PARAMS))
    wanted = sample(logits, [Draw(params, i) for i, params in enumerate(PARAMS)])
    wanted.token_ids[PADDING], wanted.logprobs[PADDING] = 0, 0.0
    assert tokens == wanted.token_ids
    assert logprobs == pytest.approx(wanted.logprobs, abs=1e-4)
    kept = [-7, *tokens] + [-7] * 20
    kept[PADDING + 1] = -7
    assert by_slot == kept[:20]
    assert run(twins.sample_tokens, logits, asked(PARAMS))[0] == tokens


def test_the_first_of_equal_largest_logits_is_taken():
    logits = torch.zeros(2, VOCABULARY, device=DEVICE)
    logits[0, [17, 250]] = 4.0
    greedy = asked([SamplingParams()] * 2)
    assert run(sample_tokens, logits, greedy)[0] == [17, 0]
