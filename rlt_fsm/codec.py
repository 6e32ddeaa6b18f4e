"""Facts ↔ event rows: how each fact is written into the columns of `log.port.EventRow`, and back.

Pure translation. `encode` is on the hot path; `decode` serves replays and tests.
"""

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from .batch import ModelFacts, RequestSpec
from .config import EngineConfig
from .events import (
    Aborted,
    Admitted,
    BatchCompleted,
    BatchFailed,
    BatchRetired,
    BatchSubmitted,
    Dropped,
    Enqueued,
    Evicted,
    Fact,
    Finished,
    Grown,
    Offloaded,
    OffloadedResident,
    OutputSampled,
    Published,
    Refused,
    Resumed,
    Retired,
    Rewound,
    RunClosed,
    RunOpened,
    RunRecovered,
    Selected,
    Submitted,
    VerdictGiven,
    Yielded,
)
from .log.port import EventCells, EventRow
from .moves import MOVES
from .params import SamplingParams
from .states import FinishReason, Operation, Outcome, WorkKey

Payload = tuple[int | None, str | None, dict[str, Any] | None]  # ref, reason, extra


def encode(
    fact: Fact,
    seq: int,
    step: int,
    ticket: int | None,
    t_ns: int,
    move: int,
    blocks: int | None,
    cause: int | None,
    names: Mapping[int, str],
) -> EventCells:
    """One fact as a plain tuple in `EventRow` order."""
    # By their very type: `isinstance` asks the metaclass wherever it says no.
    if type(fact) is Selected:
        return (
            seq, step, ticket, t_ns, fact.ref, move, blocks, cause, None,
            fact.row, fact.token_start, fact.token_count, fact.depth, int(fact.replay), None,
        )  # fmt: skip
    if type(fact) is Enqueued:
        return (
            seq, step, ticket, t_ns, fact.ref, move, blocks, cause, None,
            fact.exit_depth, None, None, None, None, None,
        )  # fmt: skip
    if type(fact) is OutputSampled:
        return (
            seq, step, ticket, t_ns, fact.ref, move, blocks, cause, fact.note,
            fact.idx, fact.token_id, fact.exit_depth, fact.logprob, None, None,
        )  # fmt: skip
    ref, reason, extra = _payload(fact, names)
    text = msgspec.json.encode(extra).decode() if extra is not None else None
    return (
        seq, step, ticket, t_ns, ref, move, blocks, cause, reason,
        None, None, None, None, None, text,
    )  # fmt: skip


def _payload(fact: Fact, names: Mapping[int, str]) -> Payload:
    match fact:
        case Submitted(ref, spec):
            return ref, None, _spec(spec)
        case Refused(ref, spec, reason):
            return ref, reason, _spec(spec)
        case Admitted(ref, _, need, cached, state_row, blocks, shared):
            extra = {"need": need, "cached_tokens": cached, "state_row": state_row, "take": blocks}
            return ref, None, {**extra, "share": shared} if shared else extra
        case Finished(ref, finish_reason):
            return ref, None, {"finish_reason": finish_reason}
        case Aborted(ref):
            return ref, None, None
        case Retired(ref, blocks):
            return ref, None, {"drop": blocks}
        case Grown(ref, blocks):
            return ref, None, {"take": blocks}
        case Yielded(ref, for_ref):
            return ref, None, {"for": names[for_ref]}
        case Offloaded(ref, for_ref, drop, host) | OffloadedResident(ref, for_ref, drop, host):
            return ref, None, {"for": names[for_ref], "drop": drop, "host_blocks": host}
        case Resumed(ref, state_row, blocks):
            return ref, None, {"state_row": state_row, "take": blocks}
        case Rewound(ref, why, for_whom, drop):
            return ref, why, {"for": None if for_whom is None else names[for_whom], "drop": drop}
        case Published(ref, page_start, blocks):
            return ref, None, {"publish": blocks, "page_start": page_start}
        case Evicted(ref, blocks):
            return ref, None, {"evict": blocks}
        case Dropped(ref, reason) | VerdictGiven(ref, reason):
            return ref, reason, None
        case BatchSubmitted(operation, works, rows, tokens, reason):
            extra = {"operation": operation, "works": works, "rows": rows, "tokens": tokens}
            return None, reason, extra
        case BatchFailed(reason):
            return None, reason, None
        case BatchCompleted() | BatchRetired():
            return None, None, None
        case RunRecovered(evicted, reason):
            return None, reason, {"evict": evicted} if evicted else None
        case RunOpened(config, model, reason):
            return None, reason, {"config": config, "model": _model_without_name(model)}
        case RunClosed(outcome):
            return None, None, {"outcome": outcome}
        case Selected() | Enqueued() | OutputSampled():
            raise AssertionError(f"{fact.trigger} has columns of its own")
        case _:
            assert_never(fact)


def _spec(spec: RequestSpec) -> dict[str, Any]:
    return {"prompt_token_ids": spec.prompt_token_ids, "params": spec.params}


def _model_without_name(model: ModelFacts) -> dict[str, Any]:
    """A model's name may be a path, which must not enter the digest."""
    return {key: value for key, value in msgspec.to_builtins(model).items() if key != "name"}


def decode(row: EventRow, request: tuple[str, int], refs: Mapping[str, int]) -> Fact:
    """The fact that a row holds.

    `request` is the (request_id, generation) of `row.ref`; `refs` maps `id#gen` back to a ref.
    """
    trigger = MOVES[row.move].trigger
    extra: dict[str, Any] = msgspec.json.decode(row.extra) if row.extra is not None else {}
    ref, reason = row.ref, row.reason
    if ref is None:
        return _decode_run_or_ticket(trigger, extra, reason)
    head, _, dest = trigger.partition(":")
    match head:
        case "select":
            assert row.a is not None
            assert row.b is not None
            assert row.c is not None
            depth = None if row.d is None else int(row.d)
            return Selected(ref, row.a, row.b, row.c, depth, bool(row.e))
        case "enqueue":
            return Enqueued(ref, WorkKey(dest), row.a)
        case "output":
            assert row.a is not None
            assert row.b is not None
            assert row.c is not None
            return OutputSampled(ref, row.a, row.b, row.c, row.d, reason)
        case "submit" | "refuse":
            spec = RequestSpec(
                *request,
                tuple(extra["prompt_token_ids"]),
                _params(extra["params"]),
            )
            return Submitted(ref, spec) if head == "submit" else Refused(ref, spec, reason or "")
        case "admit":
            return Admitted(
                ref, WorkKey(dest), extra["need"], extra["cached_tokens"], extra["state_row"],
                tuple(extra["take"]), tuple(extra.get("share", ())),
            )  # fmt: skip
        case "publish":
            return Published(ref, extra["page_start"], tuple(extra["publish"]))
        case "evict":
            return Evicted(ref, tuple(extra["evict"]))
        case "finish":
            return Finished(ref, FinishReason(extra["finish_reason"]))
        case "abort":
            return Aborted(ref, draining=dest == "TRANSFERRING")
        case "retire":
            return Retired(ref, tuple(extra["drop"]))
        case "grow":
            return Grown(ref, tuple(extra["take"]))
        case "yield":
            return Yielded(ref, refs[extra["for"]])
        case "offload" | "offload_resident":
            kind = Offloaded if head == "offload" else OffloadedResident
            return kind(ref, refs[extra["for"]], tuple(extra["drop"]), extra["host_blocks"])
        case "resume":
            return Resumed(ref, extra["state_row"], tuple(extra["take"]))
        case "rewind":
            for_whom = None if extra["for"] is None else refs[extra["for"]]
            return Rewound(ref, reason or "", for_whom, tuple(extra["drop"]))
        case "drop":
            return Dropped(ref, reason or "")
        case "verdict":
            return VerdictGiven(ref, reason or "")
        case _:
            raise ValueError(f"seq {row.seq}: this version has no fact for {trigger!r}")


def _params(data: dict[str, Any]) -> SamplingParams:
    """Parameters as they were given: a request may have been refused for their very types."""
    try:
        return msgspec.convert(data, SamplingParams)
    except msgspec.ValidationError:
        given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return SamplingParams(**given)


def _decode_run_or_ticket(trigger: str, extra: dict[str, Any], reason: str | None) -> Fact:
    match trigger:
        case "submit_batch":
            return BatchSubmitted(
                Operation(extra["operation"]),
                tuple(WorkKey(work) for work in extra["works"]),
                extra["rows"],
                extra["tokens"],
                reason or "",
            )
        case "complete_batch":
            return BatchCompleted()
        case "fail_batch":
            return BatchFailed(reason or "")
        case "retire_batch":
            return BatchRetired()
        case "open":
            model = msgspec.convert({**extra["model"], "name": ""}, ModelFacts)
            return RunOpened(msgspec.convert(extra["config"], EngineConfig), model, reason)
        case "close":
            return RunClosed(Outcome(extra["outcome"]))
        case "recover":
            return RunRecovered(tuple(extra.get("evict", ())), reason)
        case _:
            raise ValueError(f"this version has no fact for {trigger!r}")
