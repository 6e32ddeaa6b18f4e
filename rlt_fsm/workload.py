"""Workload files, `rlt-workload/1`: reading, writing, checking, and what they need of an engine.

A workload is data: a model, a config, requests with their arrival steps, actions, and what must
come of it. Prompts and scripted outputs are made from it in `prompts.py`; `drive.py` runs it.
"""

import codecs
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from . import machines, misfit
from .config import EngineConfig
from .errors import WorkloadError
from .params import SamplingParams
from .wording import did_you_mean
from .workload_form import (
    DEFAULT_MAX_STEPS,
    FORMAT,
    Action,
    Completion,
    Expect,
    Request,
    When,
    Workload,
    in_order,
    label,
    split_label,
    when_states,
)

__all__ = [
    "DEFAULT_MAX_STEPS",
    "FORMAT",
    "Action",
    "Completion",
    "Expect",
    "Request",
    "When",
    "Workload",
    "in_order",
    "label",
    "load",
    "needs",
    "parse",
    "split_label",
    "to_json",
    "when_states",
]

# ---- features ----------------------------------------------------------------------------------


def _uses_peers(workload: Workload) -> bool:
    return any(request.remote or request.export for request in workload.requests) or any(
        action.receive_done or action.send_done or action.peer_lost for action in workload.actions
    )


_NEEDS: tuple[tuple[str, Callable[[Workload], bool]], ...] = (
    ("async", lambda w: w.config.execution.async_scheduling),
    ("crash", lambda w: any(action.crash for action in w.actions)),
    ("incremental", lambda w: w.config.cache.incremental_allocation),
    ("mixed", lambda w: w.config.scheduler.mode == "mixed"),
    ("no_refill", lambda w: w.config.scheduler.mode == "no_refill"),
    ("pd", _uses_peers),
    ("preemption", lambda w: w.config.scheduler.enable_preemption),
    ("prefix", lambda w: w.config.cache.enable_prefix_caching),
    ("priority", lambda w: w.config.scheduler.policy == "priority"),
    ("speculative", lambda w: w.config.speculative is not None),
    ("split", lambda w: not w.config.execution.atomic_prefill),
)


def needs(workload: Workload) -> set[str]:
    """The features beyond the plain engine (refill, fcfs, atomic, full reservation) it turns on."""
    return {feature for feature, is_needed in _NEEDS if is_needed(workload)}


# ---- reading and writing -----------------------------------------------------------------------


def load(path: str | Path) -> Workload:
    """Read a workload file.

    Raises:
        WorkloadError: it cannot be read or used; the sentence names file, place and key.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from error
    return parse(text, name=str(path))


def parse(text: str | bytes, *, name: str = "workload") -> Workload:
    """The workload that a JSON text describes; `name` begins every error's sentence."""
    try:
        raw = _raw(text)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            found = raw.get("format") if isinstance(raw, dict) else raw
            raise WorkloadError(f"format is {found!r}, this version reads {FORMAT!r}")
        data = _complete(_without_notes(raw))
        workload = msgspec.convert(data, Workload)
        for sentence in _mistakes(workload):
            raise WorkloadError(sentence)
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{name}: {misfit.sentence(error, data, Workload)}") from error
    except RecursionError as error:
        raise WorkloadError(f"{name}: its objects and lists are nested too deeply") from error
    except WorkloadError as error:
        raise WorkloadError(f"{name}: {error}") from None
    return workload


def _raw(text: str | bytes) -> object:
    """The values of a JSON text in which no object says a key twice."""
    if isinstance(text, bytes):
        text = text.removeprefix(codecs.BOM_UTF8)
    try:
        raw: object = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise WorkloadError(f"not a JSON text: {error}") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"not a JSON text: not UTF-8 at byte {error.start}") from error
    json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    return raw


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WorkloadError(f"key {twice!r} is given twice in one object: keep one")


def to_json(workload: Workload) -> str:
    """A workload as JSON without its defaults; `parse` gives the same workload back."""
    data = msgspec.to_builtins(workload)
    if "config" in data:
        data["config"] = _differences(data["config"], msgspec.to_builtins(EngineConfig()))
    plain = msgspec.to_builtins(SamplingParams())
    for request in data["requests"]:
        if "params" in request:
            params = _differences(request["params"], plain)
            # What the request says itself is not said twice.
            params = {k: v for k, v in params.items() if request.get(k) != v}
            if params:
                request["params"] = params
            else:
                del request["params"]
    return msgspec.json.encode(data).decode()


def _differences(data: dict[str, object], default: dict[str, object]) -> dict[str, object]:
    changed: dict[str, object] = {}
    for key, value in data.items():
        before = default[key]
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := _differences(value, before):
                changed[key] = inner
        elif value != before:
            changed[key] = value
    return changed


def _without_notes(value: object) -> object:
    """Drop every `note` key, but not a request called "note" in a map from ids."""
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if key in {"finish", "outputs"} else _without_notes(item)
        for key, item in value.items()
        if key != "note"
    }


def _complete(raw: object) -> object:
    """Fold what a request says outside `params` into its `params`."""
    if isinstance(raw, dict) and isinstance(requests := raw.get("requests"), list):
        vocab_size = raw.get("vocab_size", 512)
        for index, request in enumerate(requests):
            if isinstance(request, dict) and isinstance(request.get("params", {}), dict):
                _fold(request, f"requests[{index}]", vocab_size)
    return raw


_FOLDED = ("max_tokens", "priority", "exit_depths")


def _fold(request: dict[str, object], where: str, vocab_size: object) -> None:
    given = request.get("params", {})
    assert isinstance(given, dict)
    params = dict(given)
    for key in _FOLDED:
        if (value := request.get(key)) is None:
            continue
        if params.get(key, value) != value:
            raise WorkloadError(f"{where}: {key!r} is {value!r} here and {params[key]!r} in params")
        params[key] = value
    if request.get("eos_at") is not None:
        params["ignore_eos"] = False
    if request.get("stop_at") is not None and not params.get("stop_token_ids"):
        # Somebody must be the stop token: the vocabulary's last.
        params["stop_token_ids"] = [vocab_size - 1 if isinstance(vocab_size, int) else 1]
    request["params"] = params


# ---- what types cannot say ---------------------------------------------------------------------


def _mistakes(workload: Workload) -> Iterable[str]:
    known = {(workload.requests[i].id, generation) for i, generation in in_order(workload)}
    for index, request in enumerate(workload.requests):
        for sentence in _request_mistakes(request, known):
            yield f"requests[{index}]: {sentence}"
    for index, action in enumerate(workload.actions):
        for sentence in _action_mistakes(action):
            yield f"actions[{index}]: {sentence}"


def _request_mistakes(request: Request, known: set[tuple[str, int]]) -> Iterable[str]:
    if split_label(request.id)[0] != request.id:
        yield f"id {request.id!r} reads as a generation of {split_label(request.id)[0]!r}"
    if (request.prompt is None) == (request.prompt_len is None):
        yield "give exactly one of 'prompt' and 'prompt_len'"
    if (request.prompt_like is None) != (request.shared_len is None):
        yield "'prompt_like' and 'shared_len' go together"
    if request.prompt_like is not None:
        if request.prompt_len is None:
            yield "'prompt_like' needs 'prompt_len'"
        elif request.shared_len is not None and request.shared_len > request.prompt_len:
            yield f"shared_len {request.shared_len} is more than prompt_len {request.prompt_len}"
        if split_label(request.prompt_like) not in known:
            near = did_you_mean(request.prompt_like, (label(i, g) for i, g in sorted(known)))
            instead = f": {near}" if near else ""
            yield f"prompt_like {request.prompt_like!r} is no request of this file{instead}"
    if request.params.seed is None:
        yield "params.seed is null, which draws one: give a number, so that every run is the same"
    if request.eos_at is not None and request.eos_at == request.stop_at:
        yield f"output {request.eos_at} cannot be both EOS and a stop token"


def _action_mistakes(action: Action) -> Iterable[str]:
    if (action.at is None) == (action.when is None):
        yield "give exactly one of 'at' and 'when'"
    verbs = [action.abort, action.receive_done, action.send_done]
    named = sum(verb is not None for verb in verbs)
    named += sum(bool(verb) for verb in (action.fail, action.crash, action.peer_lost))
    if named != 1:
        yield "name exactly one of abort, fail, crash, receive_done, send_done, peer_lost"
    if action.when is not None:
        states = when_states(action.when)
        if len(states) != 1:
            yield "'when' names exactly one of status, work, slot, kv"
        for machine, state in states:
            possible = next(m for m in machines.REQUEST_MACHINES if m["name"] == machine)["states"]
            if state not in possible:
                yield f"when.{machine} {state!r} is not one of {', '.join(possible)}"
