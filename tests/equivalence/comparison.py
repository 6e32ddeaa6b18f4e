"""Serves one set of requests in every way and holds each completion to the plainest way's."""

import time
from collections import Counter
from collections.abc import Sequence

import msgspec
from equivalence.proofs import NearTie, Prover, Unproven, compare_logprob
from equivalence.request_sets import Wanted, request_set
from equivalence.serving import Completion, Served, serve
from equivalence.ways import Way, ways

from runner.loading import LoadedModel

PREEMPTIONS = ("yield", "offload", "offload_resident", "rewind", "resume", "publish")


class Tally(msgspec.Struct):
    """What was compared, and what was found; tallies of several sets add up."""

    runs: int = 0
    completions: int = 0
    outputs: int = 0
    differences: int = 0
    near_ties: list[NearTie] = []
    largest_logprob_difference: float = 0.0
    events: int = 0
    batches: Counter[str] = msgspec.field(default_factory=Counter)
    preemptions: dict[str, Counter[str]] = {}
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        """Count another tally in."""
        self.runs += other.runs
        self.completions += other.completions
        self.outputs += other.outputs
        self.differences += other.differences
        self.near_ties += other.near_ties
        self.events += other.events
        self.seconds += other.seconds
        self.batches.update(other.batches)
        for pool, counts in other.preemptions.items():
            self.preemptions.setdefault(pool, Counter()).update(counts)
        self.largest_logprob_difference = max(
            self.largest_logprob_difference, other.largest_logprob_difference
        )


def compare_set(
    loaded: LoadedModel, seed: int, layout: str, chosen: Sequence[Way] | None = None
) -> Tally:
    """Serve set `seed` in every way (or those chosen); the first is what the others must equal.

    The first way's completions are held to exact arithmetic as well.

    Raises:
        Unproven: a completion differs, and no near-tie in fp32 explains it.
        AssertionError: a log that is not clean, or a request without a completion.
    """
    started = time.perf_counter()
    requests, prover, tally = request_set(seed), Prover(loaded, layout), Tally()
    reference: Served | None = None
    for way in chosen if chosen is not None else ways(layout):
        served = serve(loaded, requests, way)
        _count(tally, way, served)
        if reference is None:
            reference = served
            for wanted in requests:
                tally.near_ties += prover.near_ties(wanted, served.completions[wanted.name])
        else:
            try:
                _compare(tally, prover, requests, reference, served)
            except Unproven as error:
                raise Unproven(f"set {seed}, {way}: {error}") from error
    tally.seconds = time.perf_counter() - started
    return tally


def _count(tally: Tally, way: Way, served: Served) -> None:
    tally.runs += 1
    tally.events += served.events
    tally.batches.update(served.works)
    counts = {name: served.triggers[name] for name in PREEMPTIONS if served.triggers[name]}
    tally.preemptions.setdefault(way.pool, Counter()).update(counts)


def _compare(
    tally: Tally, prover: Prover, requests: Sequence[Wanted], reference: Served, served: Served
) -> None:
    for wanted in requests:
        one, other = (s.completions[wanted.name] for s in (reference, served))
        tally.completions += 1
        tally.outputs += len(other.tokens)
        near_ties = prover.prove(wanted, one, other)
        tally.near_ties += near_ties
        tally.differences += bool(near_ties)
        _compare_logprobs(tally, wanted, one, other)


def _compare_logprobs(tally: Tally, wanted: Wanted, one: Completion, other: Completion) -> None:
    """As far as the two have the same outputs."""
    for index, expected in enumerate(one.logprobs):
        if one.tokens[: index + 1] != other.tokens[: index + 1]:
            return
        if one.depths[: index + 1] != other.depths[: index + 1]:
            return
        difference = compare_logprob(wanted, index, other, expected)
        tally.largest_logprob_difference = max(tally.largest_logprob_difference, difference)
