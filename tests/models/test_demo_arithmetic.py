"""The demo's texts: every byte encodes, problems read as people write them, the split holds."""

import pytest
import torch

from rlt_fsm.errors import CheckpointError
from runner.demo import arithmetic
from runner.demo.arithmetic import Problems, bucket, encode, held_out, is_for_training, sample
from runner.demo.tokenizer import DESCRIPTION, EOS_TOKEN_ID, VOCAB_SIZE, ByteTokenizer

TOKENIZER = ByteTokenizer()


def problems(*triples):
    return Problems(*torch.tensor(triples).unbind(dim=1))


@pytest.mark.parametrize("text", ["27+58=", "", "naïve → 𝄞", "\x00\x7f\n"])
def test_every_text_survives_the_byte_tokenizer(text):
    ids = TOKENIZER.encode(text)
    assert all(0 < token < VOCAB_SIZE for token in ids)
    assert TOKENIZER.decode(ids) == text


def test_the_end_token_is_not_text_and_broken_bytes_are_marked():
    assert TOKENIZER.decode([*TOKENIZER.encode("85"), EOS_TOKEN_ID]) == "85"
    assert TOKENIZER.decode([0xFF + 1]) == "\ufffd"


def test_only_its_own_description_makes_a_byte_tokenizer():
    assert ByteTokenizer.from_description(DESCRIPTION).encode("A") == [66]
    with pytest.raises(CheckpointError, match="not the byte tokenizer"):
        ByteTokenizer.from_description({"tokenizer_class": "LlamaTokenizer"})


def test_a_problem_becomes_its_prompt_its_answer_and_the_end():
    given = problems((0, 27, 58), (1, 90, 17), (0, 999, 999), (1, 5, 5), (0, 0, 100))
    sequences = encode(given)
    texts = given.texts()
    assert texts[:2] == [("27+58=", "85"), ("90-17=", "73")]
    for row, (prompt, answer) in enumerate(texts):
        ids = TOKENIZER.encode(prompt + answer)
        padding = [EOS_TOKEN_ID] * (arithmetic.SEQUENCE_LENGTH - len(ids))
        assert sequences.tokens[row].tolist() == ids + padding
        assert sequences.prompt_length[row] == len(prompt)
        assert sequences.answer_length[row] == len(answer) + 1


def test_samples_stay_within_three_digits_and_never_go_below_zero():
    drawn = sample(4096, torch.Generator().manual_seed(0))
    assert int(drawn.result.min()) == 0
    assert int(torch.maximum(drawn.left, drawn.right).max()) == 999
    for digits in (1, 2, 3):
        share = (drawn.left.clamp(min=1).log10().long() + 1 == digits).double().mean()
        assert 0.2 < float(share) < 0.5


def test_the_split_is_the_same_everywhere():
    given = problems((0, 1, 2), (0, 345, 678), (1, 500, 499), (0, 999, 999))
    assert bucket(given).tolist() == [62, 61, 40, 33]


def test_a_sum_and_its_mirror_image_are_on_the_same_side_of_the_split():
    drawn = sample(4096, torch.Generator().manual_seed(1))
    sums = drawn.pick(drawn.operation == 0)
    assert torch.equal(bucket(sums), bucket(Problems(sums.operation, sums.right, sums.left)))


def test_every_bucket_gets_its_share():
    drawn = sample(64 * 1024, torch.Generator().manual_seed(2))
    three_digits = drawn.pick((drawn.left > 99) & (drawn.right > 99))
    counts = torch.bincount(bucket(three_digits), minlength=64)
    assert counts.min() > 0.5 * counts.double().mean()
    assert counts.max() < 1.5 * counts.double().mean()


def test_held_out_problems_are_distinct_fixed_and_never_trained_on():
    chosen = held_out(500, arithmetic.EVALUATION_BUCKET, seed=7)
    assert len(set(chosen.texts())) == 500
    assert not is_for_training(chosen).any()
    assert chosen.texts() == held_out(500, arithmetic.EVALUATION_BUCKET, seed=7).texts()


def test_the_prompts_of_the_documentation_are_never_trained_on():
    shown = problems(*arithmetic.SHOWN)
    assert [prompt for prompt, _ in shown.texts()] == ["27+58=", "403+219=", "90-17="]
    assert not is_for_training(shown).any()
