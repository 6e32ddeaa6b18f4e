"""Two completions of one request: the same, or different for a reason that is proven.

The only legal reason is a near-tie in fp32. `prove` recomputes both requests in fp64, each behind
its own history, and demands that every choice of both is the exact one or misses it by less than
fp32 may stray there (see `exact`): the first difference, and everything after it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from equivalence.choices import Explanation, exit_explanations, token_explanations
from equivalence.exact import Exact, ExactModel, Output, Roundings
from equivalence.request_sets import Wanted
from equivalence.serving import Completion

from runner.loading import LoadedModel

# Of a log-probability; the largest difference seen is 3e-5. Wrong keys and values show here before
# they change a token.
LOGPROB_TOLERANCE = 1e-3

# Each asks for bounds, which take a while; a near-tie is among the narrowest.
MOST_EXPLANATIONS = 4


class Unproven(Exception):  # noqa: N818 (a verdict)
    """Completions differ, or one strays from exact arithmetic, and fp32 does not explain it."""


class NearTie(NamedTuple):
    """A choice that fp32 was free to take: it misses the exact one by `margin` at most `bound`."""

    request: str
    index: int
    what: str
    margin: float
    bound: float


class Prover:
    """Recomputes requests of one model under one layout."""

    def __init__(self, loaded: LoadedModel, layout: str) -> None:
        self._weights = loaded.model.state_dict()
        self._config = loaded.config
        self._layout = layout

    def prove(self, wanted: Wanted, one: Completion, other: Completion) -> list[NearTie]:
        """Why two completions of a request may differ; none where they are the same.

        Raises:
            Unproven: no near-tie explains the difference.
        """
        if (one.tokens, one.depths, one.reason) == (other.tokens, other.depths, other.reason):
            return []
        first = _first_difference(one, other)
        if first is None:
            raise Unproven(f"{wanted.name}: the same outputs end differently: {one} and {other}")
        found = [*self.near_ties(wanted, one), *self.near_ties(wanted, other)]
        if not any(near_tie.index == first for near_tie in found):
            raise Unproven(f"{wanted.name}: output {first} differs without a near-tie")
        return found

    def near_ties(self, wanted: Wanted, completion: Completion) -> list[NearTie]:
        """The choices of a completion that are not those of exact arithmetic, each proven.

        Raises:
            Unproven: one of them is farther off than fp32 may stray, or a log-probability is, or
                it ends wrongly.
        """
        _check_ending(wanted, completion, self._config.eos_token_ids)
        inexact: list[int] = []
        with torch.no_grad():
            for index, output in enumerate(self._outputs(wanted, completion, Exact())):
                exact = torch.log_softmax(output.logits, dim=0)[completion.tokens[index]].item()
                compare_logprob(wanted, index, completion, exact)
                choices = self._choices(wanted, completion, index, output)
                if any([] not in explanations for _, explanations in choices):
                    inexact.append(index)
        if not inexact:
            return []
        roundings = Roundings()
        return [
            near_tie
            for index, output in enumerate(self._outputs(wanted, completion, roundings))
            if index in inexact
            for choice, explanations in self._choices(wanted, completion, index, output)
            for near_tie in _proven(wanted, index, choice, explanations, roundings)
        ]

    def _outputs(
        self, wanted: Wanted, completion: Completion, roundings: Exact
    ) -> Iterator[Output]:
        model = ExactModel(self._weights, self._config, self._layout, roundings)
        return model.outputs(wanted.prompt, completion.tokens, completion.depths)

    def _choices(
        self, wanted: Wanted, completion: Completion, index: int, output: Output
    ) -> list[tuple[str, list[Explanation]]]:
        """What was chosen for an output, with everything that would explain it."""
        params, token = wanted.params, completion.tokens[index]
        full, depth = self._config.total_ut_steps, completion.depths[index]
        masses = output.exited_mass[:depth]
        exits = list(exit_explanations(params, index, masses, full))
        tokens = list(token_explanations(params, index, output.logits, token))
        return [(f"exit depth {depth}", exits), (f"token {token}", tokens)]


def _proven(
    wanted: Wanted,
    index: int,
    choice: str,
    explanations: Sequence[Explanation],
    roundings: Roundings,
) -> list[NearTie]:
    """The first explanation whose margins all lie within their bounds, the narrowest before."""
    narrowest = sorted(
        explanations, key=lambda margins: sum(margin.by.item() for margin in margins)
    )
    closest = []
    for explanation in narrowest[:MOST_EXPLANATIONS]:
        near_ties = [
            NearTie(wanted.name, index, margin.what, margin.by.item(), roundings.bound(margin.by))
            for margin in explanation
        ]
        if all(near_tie.margin <= near_tie.bound for near_tie in near_ties):
            return near_ties
        closest.append(near_ties)
    raise Unproven(f"{wanted.name}: {choice} of output {index} is no near-tie: {closest[:1]}")


def compare_logprob(wanted: Wanted, index: int, completion: Completion, expected: float) -> float:
    """How far a completion's log-probability, where it tells one, is from another's.

    Raises:
        Unproven: farther than fp32 explains.
    """
    if not completion.logprobs:
        return 0.0
    difference = abs(completion.logprobs[index] - expected)
    if not difference <= LOGPROB_TOLERANCE:
        raise Unproven(
            f"{wanted.name}: log-probability {completion.logprobs[index]} of output {index} where "
            f"{expected} is due"
        )
    return difference


def _first_difference(one: Completion, other: Completion) -> int | None:
    pairs = zip(
        zip(one.tokens, one.depths, strict=True),
        zip(other.tokens, other.depths, strict=True),
        strict=False,
    )
    return next((index for index, (a, b) in enumerate(pairs) if a != b), None)


def _check_ending(wanted: Wanted, completion: Completion, eos: Sequence[int]) -> None:
    """A stop token ends a request at its place, max_tokens ends the others."""
    params, tokens = wanted.params, completion.tokens
    stops = (*params.stop_token_ids, *(() if params.ignore_eos else eos))
    stopping = [
        i for i, token in enumerate(tokens) if token in stops and i + 1 >= params.min_tokens
    ]
    expected = (stopping[0] + 1, "stop") if stopping else (params.max_tokens, "length")
    if (len(tokens), completion.reason) != expected:
        raise Unproven(f"{wanted.name}: ends after {len(tokens)} with {completion.reason}")
