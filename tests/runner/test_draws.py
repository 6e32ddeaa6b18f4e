"""The counter-based generator: known answers, range, and independence of what else is drawn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.draws import philox4x32, uniform

WORDS = st.integers(0, 2**32 - 1)


# Published with the algorithm (Random123, kat_vectors, "philox4x32 10").
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, answer):
    assert philox4x32(counter, key) == answer


def test_a_uniform_is_the_first_53_bits_of_its_block():
    # 0x6627e8d5 e169c58d, cut to 53 bits
    assert uniform(0, 0) == (0x6627E8D5E169C58D >> 11) / 2**53


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_uniform_lies_in_the_half_open_unit_interval(seed, output_idx):
    assert 0.0 <= uniform(seed, output_idx) < 1.0


@given(WORDS, WORDS)
def test_high_and_low_bits_of_a_seed_both_count(low, high):
    seed = low | ((high >> 1) << 32)
    assert uniform(seed, 3) != uniform(seed ^ 1, 3)
    assert uniform(seed, 3) != uniform(seed ^ (1 << 62), 3)


def test_the_same_seed_and_index_give_the_same_draw_whatever_was_drawn_between():
    first = [uniform(7, idx) for idx in range(5)]
    assert [uniform(7, idx) for idx in reversed(range(5))] == first[::-1]


def test_draws_of_consecutive_outputs_are_spread_evenly():
    draws = [uniform(11, idx) for idx in range(4000)]
    counts = [sum(tenth <= draw * 10 < tenth + 1 for draw in draws) for tenth in range(10)]
    # chi-square with 9 degrees of freedom: 27.9 is the 0.1 % point
    assert sum((count - 400) ** 2 / 400 for count in counts) < 27.9
