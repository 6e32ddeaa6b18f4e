"""Serves a set of requests in one way, through the real engine, and audits the log of the run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from equivalence.request_sets import Wanted
from equivalence.ways import Way
from told import triggers

import audit
from rlt_fsm import Engine, EventLog, RequestOutput
from runner.loading import LoadedModel
from runner.torch_runner import TorchRunner


class Completion(NamedTuple):
    """What a request got."""

    tokens: tuple[int, ...]
    depths: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: str


class Served(NamedTuple):
    """A run: completions by request, how often each trigger and each mix of works happened."""

    completions: dict[str, Completion]
    triggers: Counter[str]
    works: Counter[str]
    events: int
    steps: int


def serve(loaded: LoadedModel, requests: Sequence[Wanted], way: Way) -> Served:
    """Run to the end; the log must be clean.

    Raises:
        AssertionError: a request did not complete, or the auditor found something.
    """
    with EventLog.memory() as log:
        with Engine(TorchRunner(loaded), way.config(requests), log) as engine:
            works: Counter[str] = Counter()
            completions = {
                output.request_id: _completion(output)
                for output in _outputs(engine, requests, way.company, works)
                if output.finished
            }
            steps, run = engine.current_step, engine.run_id
        report = audit.verify(log)
        assert report.ok, (str(way), report.findings[:3])
        happened = Counter(triggers(log, run))
    assert sorted(completions) == sorted(wanted.name for wanted in requests), str(way)
    return Served(completions, happened, works, report.events, steps)


def _outputs(
    engine: Engine, requests: Sequence[Wanted], company: str, works: Counter[str]
) -> Iterator[RequestOutput]:
    waiting, step = list(requests), 0
    while waiting or engine.has_unfinished_requests():
        if company == "together":
            arrived = [wanted for wanted in waiting if wanted.arrives <= step]
        else:
            arrived = [] if engine.has_unfinished_requests() else waiting[:1]
        for wanted in arrived:
            waiting.remove(wanted)
            engine.add_request(wanted.name, wanted.prompt, wanted.params)
        yield from engine.step()
        schedule = engine.last_schedule
        if schedule is not None and schedule.batch is not None:
            works["+".join(schedule.batch.works)] += 1
        step += 1


def _completion(output: RequestOutput) -> Completion:
    assert output.finish_reason is not None
    logprobs = output.logprobs or ()
    return Completion(
        tuple(output.token_ids),
        tuple(output.exit_depths),
        tuple(value for value in logprobs if value is not None),
        output.finish_reason,
    )
