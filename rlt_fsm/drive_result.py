"""What came of a driven workload, and whether that is what its `expect` asked for."""

from collections.abc import Iterable

import msgspec

from .states import FinishReason
from .workload import Expect, label, split_label


class RequestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one add. `refused` is the refusal's code, `message` its sentence."""

    request_id: str
    generation: int
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...] = ()
    exit_depths: tuple[int, ...] = ()
    finish_reason: str | None = None
    refused: str | None = None
    message: str | None = None

    @property
    def label(self) -> str:
        """The request's name in `expect`."""
        return label(self.request_id, self.generation)


class DriveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a workload: its requests in order of arrival.

    `steps` counts steps that took a number, `preemptions` yields, offloads and rewinds. `cut_off`:
    requests were still live after `max_steps` steps.
    """

    requests: tuple[RequestResult, ...]
    steps: int
    preemptions: int
    cut_off: bool


def check(expect: Expect, result: DriveResult) -> list[str]:
    """Every expectation that failed, as a sentence; empty where all hold."""
    by_label = {(r.request_id, r.generation): r for r in result.requests}
    failed: list[str] = []

    def each(names: Iterable[str]) -> Iterable[tuple[str, RequestResult]]:
        for name in names:
            if (request := by_label.get(split_label(name))) is None:
                failed.append(f"{name}: no such request was added")
            else:
                yield name, request

    for name, request in each(expect.finish):
        if request.finish_reason != expect.finish[name]:
            failed.append(f"{name}: expected to finish with {expect.finish[name]}, {_end(request)}")
    for name, request in each(expect.abort):
        if request.finish_reason != FinishReason.ABORT:
            failed.append(f"{name}: expected to be aborted, {_end(request)}")
    for name, request in each(expect.refuse):
        if request.refused is None:
            failed.append(f"{name}: expected to be refused, {_end(request)}")
    for name, request in each(expect.outputs):
        if len(request.token_ids) != expect.outputs[name]:
            failed.append(
                f"{name}: expected {expect.outputs[name]} outputs, got {len(request.token_ids)}"
            )
    if result.cut_off:
        failed.append(f"max_steps: requests were still live after {result.steps} steps")
    if expect.max_preemptions is not None and result.preemptions > expect.max_preemptions:
        failed.append(
            f"max_preemptions: expected at most {expect.max_preemptions}, got {result.preemptions}"
        )
    return failed


def _end(request: RequestResult) -> str:
    if request.refused is not None:
        return f"it was refused ({request.refused})"
    if request.finish_reason is None:
        return "it has not ended"
    return f"it ended with {request.finish_reason}"
