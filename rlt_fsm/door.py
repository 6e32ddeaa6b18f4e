"""The door: can this request ever be served? One check per function, each with its numbers.

A check returns None, or a Refusal: a code and key=value numbers for the log, a sentence for people.
Nothing here changes anything.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from .batch import RequestSpec
from .blocks import blocks_needed
from .params import SamplingParams
from .state import EngineState


class Refusal(NamedTuple):
    """Why a request is turned away; `reason` is a code, then key=value."""

    reason: str
    sentence: str

    @property
    def code(self) -> str:
        """The reason's code alone."""
        return self.reason.partition(" ")[0]


def refusal(state: EngineState, spec: RequestSpec) -> Refusal | None:
    """The first reason why this request can never be served, or None."""
    return next(_refusals(state, spec), None)


def _refusals(state: EngineState, spec: RequestSpec) -> Iterator[Refusal]:
    yield from _identity(state, spec)
    yield from _prompt(state, spec)
    yield from _types(spec.params)
    yield from _lengths(spec.params)
    yield from _sampling(spec.params)
    yield from _loops(state, spec.params)
    yield from _stops(state, spec.params)
    yield from _capacity(state, spec)


def _identity(state: EngineState, spec: RequestSpec) -> Iterator[Refusal]:
    if not spec.request_id:
        yield Refusal("request-id", "request_id is empty; give every request a name")
    live = state.by_id.get(spec.request_id)
    if live is not None and live.status == "FINISHED":
        yield Refusal(
            f"retiring generation={live.spec.generation}",
            f"generation {live.spec.generation} of this id has finished and is still retiring; "
            "try again after the next step",
        )
    elif live is not None:
        yield Refusal(
            f"duplicate generation={live.spec.generation} status={live.status}",
            f"this id is live (generation {live.spec.generation}, {live.status}); abort it or use "
            "another id",
        )
    limit = state.config.scheduler.max_waiting
    if limit is not None:
        fresh = sum(1 for request in state.waiting if request.work == "IDLE")
        if fresh >= limit:
            yield Refusal(
                f"queue-full waiting={fresh} max_waiting={limit}",
                f"{fresh} requests wait already and max_waiting={limit}; try again later",
            )


def _prompt(state: EngineState, spec: RequestSpec) -> Iterator[Refusal]:
    vocab_size = state.model.vocab_size
    if not spec.prompt_token_ids:
        yield Refusal(
            "empty-prompt prompt_len=0", "prompt_token_ids is empty; give 1 token or more"
        )
    for position, token in enumerate(spec.prompt_token_ids):
        if not _is_int(token):
            yield Refusal(
                f"not-a-token position={position}",
                f"prompt_token_ids[{position}]={token!r} is no token id; give whole numbers",
            )
        elif not 0 <= token < vocab_size:
            yield Refusal(
                f"out-of-vocabulary position={position} token={token} vocab_size={vocab_size}",
                f"prompt_token_ids[{position}]={token} is outside the vocabulary of {vocab_size}",
            )


_INT_FIELDS = ("max_tokens", "min_tokens", "top_k", "min_loops", "priority")
_OPTIONAL_INT_FIELDS = ("seed", "max_loops", "logprobs")
_LEAST, _MOST = -(2**63), 2**63 - 1  # what every database and device holds
_NUMBER_FIELDS = ("temperature", "top_p", "exit_threshold")
_LIST_FIELDS = ("exit_depths", "stop_token_ids")


def _types(params: SamplingParams) -> Iterator[Refusal]:
    """Behind these, a value is of its kind, and a number where a reason names it."""
    for name in _INT_FIELDS:
        yield from _whole_number(name, getattr(params, name))
    for name in _OPTIONAL_INT_FIELDS:
        if (value := getattr(params, name)) is not None:
            yield from _whole_number(name, value)
    for name in _LIST_FIELDS:
        value = getattr(params, name)
        is_left_out = name == "exit_depths" and value is None
        if not is_left_out and not (isinstance(value, tuple) and all(map(_is_int, value))):
            yield _wrong_type(name, f"{name}={value!r} must be a tuple of whole numbers")
    for name in _NUMBER_FIELDS:
        value = getattr(params, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield _wrong_type(name, f"{name}={value!r} must be a number")
        elif not math.isfinite(value):
            yield _wrong_type(name, f"{name}={value!r} must be finite")
    if not isinstance(params.ignore_eos, bool):
        yield _wrong_type("ignore_eos", f"ignore_eos={params.ignore_eos!r} must be True or False")


def _whole_number(name: str, value: object) -> Iterator[Refusal]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield _wrong_type(name, f"{name}={value!r} must be a whole number")
    elif not _LEAST <= value <= _MOST:
        yield _wrong_type(name, f"{name}={value!r} must fit in 64 bits")


def _wrong_type(name: str, sentence: str) -> Refusal:
    return Refusal(f"type field={name}", sentence)


def _lengths(params: SamplingParams) -> Iterator[Refusal]:
    if params.max_tokens < 1:
        yield Refusal(
            f"max-tokens max_tokens={params.max_tokens}",
            f"max_tokens={params.max_tokens} must be 1 or more",
        )
    if not 0 <= params.min_tokens <= params.max_tokens:
        yield Refusal(
            f"min-tokens min_tokens={params.min_tokens} max_tokens={params.max_tokens}",
            f"min_tokens={params.min_tokens} must be in [0, max_tokens={params.max_tokens}]",
        )


def _sampling(params: SamplingParams) -> Iterator[Refusal]:
    if params.temperature < 0:
        yield Refusal(
            f"temperature temperature={params.temperature}",
            f"temperature={params.temperature} must be 0 (greedy) or more",
        )
    if not 0 < params.top_p <= 1:
        yield Refusal(f"top-p top_p={params.top_p}", f"top_p={params.top_p} must be in (0, 1]")
    if params.top_k != -1 and params.top_k < 1:
        yield Refusal(
            f"top-k top_k={params.top_k}", f"top_k={params.top_k} must be -1 (off), or 1 or more"
        )
    seed = params.seed
    if seed is not None and seed < 0:
        yield Refusal(f"seed seed={seed}", f"seed={seed} must be in [0, 2**63), or None")
    if params.logprobs is not None and params.logprobs != 0:
        yield Refusal(
            f"logprobs logprobs={params.logprobs}",
            f"logprobs={params.logprobs} must be None, or 0 for the sampled token's alone",
        )


def _loops(state: EngineState, params: SamplingParams) -> Iterator[Refusal]:
    depths = state.model.depths
    most = depths if params.max_loops is None else params.max_loops
    if not 1 <= params.min_loops <= most <= depths:
        yield Refusal(
            f"loops min_loops={params.min_loops} max_loops={most} depths={depths}",
            f"min_loops={params.min_loops} and max_loops={most} must satisfy 1 <= min_loops <= "
            f"max_loops <= {depths}, the model's depth",
        )
        return
    if not 0 <= params.exit_threshold <= 1:
        yield Refusal(
            f"exit-threshold exit_threshold={params.exit_threshold}",
            f"exit_threshold={params.exit_threshold} must be in [0, 1]",
        )
    if params.exit_depths is not None:
        yield from _forced_depths(params, params.exit_depths, depths, most)
    elif state.config.exit.mode == "trace":
        yield Refusal(
            "exit-depths missing", "exit.mode='trace' needs exit_depths with every request"
        )


def _forced_depths(
    params: SamplingParams, forced: tuple[int, ...], depths: int, most: int
) -> Iterator[Refusal]:
    if len(forced) < params.max_tokens:
        yield Refusal(
            f"exit-depths given={len(forced)} max_tokens={params.max_tokens}",
            f"exit_depths has {len(forced)} entries and max_tokens is {params.max_tokens}; give "
            "one per output",
        )
    for idx, depth in enumerate(forced):
        low, high = (depths, depths) if idx == 0 else (params.min_loops, most)
        if not low <= depth <= high:
            yield Refusal(
                f"exit-depths idx={idx} depth={depth} low={low} high={high}",
                f"exit_depths[{idx}]={depth} must be in [{low}, {high}]: output 0 runs every "
                "loop, later ones between min_loops and max_loops",
            )


def _stops(state: EngineState, params: SamplingParams) -> Iterator[Refusal]:
    for token in params.stop_token_ids:
        if not 0 <= token < state.model.vocab_size:
            yield Refusal(
                f"stop-token token={token} vocab_size={state.model.vocab_size}",
                f"stop_token_ids holds {token}, outside the vocabulary of {state.model.vocab_size}",
            )


def _capacity(state: EngineState, spec: RequestSpec) -> Iterator[Refusal]:
    prompt_len, max_tokens = len(spec.prompt_token_ids), spec.params.max_tokens
    # The last token is never fed back: 8 prompt tokens and 5 outputs occupy 12 positions.
    positions = prompt_len + max_tokens - 1
    if positions > state.model.max_model_len:
        yield Refusal(
            f"context need={positions} max_model_len={state.model.max_model_len}",
            f"prompt ({prompt_len}) + max_tokens ({max_tokens}) - 1 = {positions} positions exceed "
            f"max_model_len={state.model.max_model_len}; shorten one of them",
        )
    need = blocks_needed(positions, state.config.cache.block_size, state.model.planes)
    if need > state.pool.num_blocks:
        yield Refusal(
            f"blocks need={need} pool={state.pool.num_blocks}",
            f"{positions} positions need {need} KV blocks and the pool has "
            f"{state.pool.num_blocks}; shorten the request or raise cache.num_blocks",
        )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
