"""Sums and differences as token sequences, made by the batch on any device.

`27+58=85` and the end token, most significant digit first, numbers of one to three digits, results
never negative. A hash of the problem keeps evaluation prompts out of training for good; a sum and
its mirror image (58+27) share a bucket. Constants are made on the device: a copy from the host
would wait for it at every step. Knows nothing of models.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .tokenizer import EOS_TOKEN_ID, ByteTokenizer

SEQUENCE_LENGTH = 13  # three digits, sign, three digits, '=', four digits, end
MAX_ANSWER_LENGTH = 5  # four digits and the end token
BUCKETS = 64
EVALUATION_BUCKET = 0
VALIDATION_BUCKET = 1

# The problems the documentation shows are never trained on either.
SHOWN = ((0, 27, 58), (0, 403, 219), (1, 90, 17))

_DIGIT_ZERO, _PLUS, _MINUS, _EQUALS = ByteTokenizer().encode("0+-=")


class Problems(NamedTuple):
    """A batch of problems, each field int64 [B]: operation (0 adds, 1 subtracts), operands."""

    operation: Tensor
    left: Tensor
    right: Tensor

    @property
    def result(self) -> Tensor:
        """The answers, never negative, [B]."""
        return torch.where(self.operation == 0, self.left + self.right, self.left - self.right)

    def texts(self) -> list[tuple[str, str]]:
        """(prompt, answer) of every problem, as a person would write them."""
        columns = (*self, self.result)
        return [
            (f"{left}{'+-'[operation]}{right}=", str(result))
            for operation, left, right, result in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def pick(self, rows: Tensor) -> "Problems":
        """The problems at `rows` (indices or a mask)."""
        return Problems(self.operation[rows], self.left[rows], self.right[rows])


class Sequences(NamedTuple):
    """Problems as tokens [B, SEQUENCE_LENGTH], padded with the end token, and their lengths [B].

    `answer_length` counts the digits and the end token.
    """

    tokens: Tensor
    prompt_length: Tensor
    answer_length: Tensor


def sample(count: int, generator: torch.Generator) -> Problems:
    """Random problems: sums and differences alike, every number of digits alike."""
    device = generator.device

    def number() -> Tensor:
        digits = torch.randint(1, 4, (count,), generator=generator, device=device)
        low = torch.pow(10, digits - 1).masked_fill(digits == 1, 0)
        span = torch.pow(10, digits) - low
        share = torch.rand(count, generator=generator, device=device, dtype=torch.float64)
        return low + (share * span).long()

    operation = torch.randint(0, 2, (count,), generator=generator, device=device)
    first, second = number(), number()
    swap = (operation == 1) & (first < second)
    return Problems(operation, torch.where(swap, second, first), torch.where(swap, first, second))


def bucket(problems: Problems) -> Tensor:
    """The part of the split, in [0, BUCKETS), that each problem belongs to, whoever asks; [B]."""
    high = torch.maximum(problems.left, problems.right)
    low = torch.minimum(problems.left, problems.right)
    key = (problems.operation * 1000 + high) * 1000 + low
    shown = torch.zeros_like(key, dtype=torch.bool)
    for operation, left, right in SHOWN:
        shown |= key == (operation * 1000 + max(left, right)) * 1000 + min(left, right)
    # Two rounds of xor-shift and multiply within 62 bits: the same on every device.
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        key = ((key ^ (key >> shift)) * factor) & 0xFFFFFFFF
    return ((key ^ (key >> 15)) % BUCKETS).masked_fill(shown, EVALUATION_BUCKET)


def is_for_training(problems: Problems) -> Tensor:
    """Which problems training may see, bool [B]."""
    return bucket(problems) > VALIDATION_BUCKET


def held_out(count: int, part: int, seed: int) -> Problems:
    """`count` distinct problems of one bucket, in a fixed order; on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    chosen: dict[tuple[int, int, int], None] = {}
    while len(chosen) < count:
        drawn = sample(64 * count, generator)
        drawn = drawn.pick(bucket(drawn) == part)
        chosen |= dict.fromkeys(zip(*(column.tolist() for column in drawn), strict=True))
    columns = torch.tensor(list(chosen)[:count]).unbind(dim=1)
    return Problems(*columns)


def encode(problems: Problems) -> Sequences:
    """Problems as token sequences, left-aligned."""
    left, shows_left = _digits(problems.left, 3)
    right, shows_right = _digits(problems.right, 3)
    result, shows_result = _digits(problems.result, 4)
    sign = (_PLUS + problems.operation * (_MINUS - _PLUS))[:, None]
    always = torch.ones_like(sign, dtype=torch.bool)
    equals, end = torch.full_like(sign, _EQUALS), torch.full_like(sign, EOS_TOKEN_ID)
    slots = torch.cat([left, sign, right, equals, result, end], dim=1)
    shown = torch.cat([shows_left, always, shows_right, always, shows_result, always], dim=1)
    # Slide the shown slots to the left; the rest lands in a column that is cut off.
    places = (shown.cumsum(dim=1) - 1).masked_fill(~shown, SEQUENCE_LENGTH)
    tokens = torch.full(
        (len(sign), SEQUENCE_LENGTH + 1), EOS_TOKEN_ID, dtype=slots.dtype, device=slots.device
    )
    tokens.scatter_(1, places, slots)
    prompt_length = shows_left.sum(dim=1) + shows_right.sum(dim=1) + 2
    return Sequences(tokens[:, :SEQUENCE_LENGTH], prompt_length, shows_result.sum(dim=1) + 1)


def _digits(number: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Digit tokens [B, width] and which of them are shown: leading zeros are not."""
    places = torch.pow(10, torch.arange(width - 1, -1, -1, device=number.device))
    shown = number[:, None] >= places
    shown[:, -1] = True
    return number[:, None] // places % 10 + _DIGIT_ZERO, shown
