"""Seeded sets of requests for the demo model: every way of sampling and of leaving the loop.

Plain values, no engine and no tensors. A seed names a set for good.
"""

from random import Random
from typing import NamedTuple

from rlt_fsm import SamplingParams
from runner.demo.tokenizer import ByteTokenizer

REQUESTS_PER_SET = 9
FULL_DEPTH = 4

_TOKENIZER = ByteTokenizer()


class Wanted(NamedTuple):
    """One request, and the step at which it arrives where requests run together."""

    name: str
    prompt: tuple[int, ...]
    params: SamplingParams
    arrives: int

    @property
    def positions(self) -> int:
        """Positions that get KV: the last output is never fed back."""
        return len(self.prompt) + self.params.max_tokens - 1


def request_set(seed: int) -> list[Wanted]:
    """The requests of a set, in the order of their arrival."""
    random = Random(seed)
    start = "".join(_problem(random) for _ in range(2))
    later = sorted(random.choice((4, 8, 14, 20)) for _ in range(REQUESTS_PER_SET - 4))
    arrivals = (0, 0, 0, 4, *later)
    return [
        Wanted(f"r{place}", _prompt(random, start), _params(random, place), arrives)
        for place, arrives in enumerate(arrivals)
    ]


def _problem(random: Random) -> str:
    left, right = (random.randrange(10 ** random.randint(1, 3)) for _ in range(2))
    return f"{max(left, right)}{random.choice('+-')}{min(left, right)}="


def _prompt(random: Random, start: str) -> tuple[int, ...]:
    """A problem as trained; several in a row, often behind a start that others have too; noise."""
    kind = random.choice(("problem", "problem", "row", "shared", "shared", "noise"))
    match kind:
        case "problem":
            text = _problem(random)
        case "row":
            text = "".join(_problem(random) for _ in range(random.randint(2, 3)))
        case "shared":
            text = start + "".join(_problem(random) for _ in range(random.randint(0, 2)))
        case _:
            return tuple(random.randrange(1, 257) for _ in range(random.randint(1, 24)))
    return tuple(_TOKENIZER.encode(text))


def _priority(random: Random, place: int) -> int:
    """The first two can wait and the fourth is urgent, so that somebody always yields."""
    return {0: 2, 1: 2, 3: 0}.get(place, random.randrange(3))


def _params(random: Random, place: int) -> SamplingParams:
    # The demo's gate seldom asks for more than two loops: the third request is told how many.
    max_tokens = random.randint(6 if place < 3 else 2, 12)
    min_loops = 1 if place == 2 else random.choice((1, 1, 2))
    max_loops = random.choice((None, None, None, 3))
    is_traced = place == 2 or random.random() < 0.2
    deepest = FULL_DEPTH if max_loops is None else max_loops
    later = (random.randint(min_loops, deepest) for _ in range(max_tokens - 1))
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=random.choice((0, 0, 3)) if max_tokens > 3 else 0,
        temperature=random.choice((0.0, 0.7, 1.0, 1.0, 2.0, 4.0)),
        top_k=random.choice((-1, -1, 2, 5, 40)),
        top_p=random.choice((1.0, 1.0, 0.5, 0.9, 0.98)),
        seed=random.getrandbits(40),
        min_loops=min_loops,
        max_loops=max_loops,
        exit_threshold=random.choice((0.0, 0.2, 0.5, 0.8, 0.9, 0.97, 0.999, 1.0)),
        exit_depths=(FULL_DEPTH, *later) if is_traced else None,
        ignore_eos=place < 3 or random.random() < 0.6,
        priority=_priority(random, place),
        logprobs=0,
    )
