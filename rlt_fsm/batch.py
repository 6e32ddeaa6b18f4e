"""What a runner sees and returns: host numbers only, and the protocol every runner keeps."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from .arguments import shown
from .config import EngineConfig
from .errors import ConfigError
from .params import SamplingParams
from .states import Operation, WorkKey

# One tuple of block ids per storage plane; plane p holds depth p (one plane when shared).
BlockTable = tuple[tuple[int, ...], ...]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine must know of a model. `planes` is the number of KV planes in use."""

    name: str
    depths: int
    planes: int
    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]


class RequestSpec(msgspec.Struct, frozen=True, gc=False):
    """A request as its caller gave it; never changes."""

    request_id: str
    generation: int
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams


class Row(msgspec.Struct, frozen=True, gc=False):
    """One request's place in a batch.

    `token_start` and `token_count` are token positions [start, start + count). `depth` is the
    0-based loop index of a RECURRENT row, None for PRELUDE, CODA and PROMPT_ATOMIC (all depths).
    For DECODE_PRELUDE and DECODE_RECURRENT the position is that of the last output token; for
    DECODE_CODA it is the position whose hidden state is read, and `output_idx` is the index of the
    output that the coda samples (for decode work: that it is on the way to).
    `loops_done` is how many loops the row's token has finished before this batch; `max_loops` the
    most it may run (a forced depth included); both 0 where they mean nothing.
    `last_token` is the token at `token_start` for DECODE_PRELUDE, else -1; there, too, where the
    coda that samples it is still in flight: the device has it, for this request in this state row.
    `replay` rows rebuild KV after a rewind: `replay_tokens` are the row's tokens and
    `replay_depths` the loops that each of them runs; both () elsewhere.
    """

    spec: RequestSpec
    work: WorkKey
    token_start: int
    token_count: int
    depth: int | None
    replay: bool
    output_idx: int
    loops_done: int
    max_loops: int
    last_token: int
    state_row: int
    block_table: BlockTable
    replay_tokens: tuple[int, ...] = ()
    replay_depths: tuple[int, ...] = ()


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One ticket's work: one operation, its sorted work keys, its rows in order."""

    ticket: int
    step: int
    operation: Operation
    works: tuple[WorkKey, ...]
    rows: tuple[Row, ...]
    reason: str


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """What came back for one ticket; sequences run parallel to the batch's rows, () where unused.

    `exits[i]`: after this loop the gate of row i lets it leave (DECODE_RECURRENT); where exits are
    one loop late (`exit.mode` ouro_delayed), the engine applies that. `token_ids[i]` and
    `logprobs[i]`: what row i sampled (DECODE_CODA); a logprob is None where not asked for.
    `notes[i]`: a code for an output that no model made, e.g. `unrecorded`; None elsewhere.
    `error`: the device failed the batch; a code, then key=value, and nothing else counts.
    """

    ticket: int
    exits: Sequence[bool] = ()
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float | None] = ()
    notes: Sequence[str | None] = ()
    error: str | None = None


class Runner(Protocol):
    """Computes batches. The engine decides; a runner never does.

    `fallback`, once started: why something that the config asked for is done in another way, a
    code, then key=value; None where nothing is. What is done so decides how fast results come,
    never which.
    """

    fallback: str | None

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """Take memory for `config`; return the model's facts and the config with every automatic
        value resolved (num_blocks, exit.mode, attention_backend …). Called once per engine.
        """

    def submit(self, batch: Batch) -> None:
        """Start computing a batch, after those submitted before it. Raises where the device fails;
        the engine fails the batch. `DeviceLost`, here and elsewhere, stops the engine.
        """

    def collect(self) -> list[BatchResult]:
        """Results of submitted batches in completion order; blocks until at least one is there."""

    def poll(self) -> list[BatchResult]:
        """Results that are there, in completion order; never blocks. Asked for only where
        `execution.async_scheduling` is on.
        """

    def park(self, spec: RequestSpec, state_row: int) -> None:
        """The request gives up its state row: keep the row's contents (hidden states, exit state)
        on the host under the request's identity.
        """

    def unpark(self, spec: RequestSpec, state_row: int) -> None:
        """Bring a parked request's state into a (possibly different) state row."""

    def offload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Copy the request's KV to the host; its blocks may be reused when this returns."""

    def reload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Bring an offloaded request's KV into fresh blocks (as many pages as were offloaded)."""

    def release(self, spec: RequestSpec) -> None:
        """Forget everything kept for a request: state row, parked state, offloaded KV."""

    def close(self) -> None:
        """Give everything back. May be called twice."""


# `poll` is asked for of asynchronous runners alone.
_CALLS = ("start", "submit", "collect", "park", "unpark", "offload", "reload", "release", "close")


def require_runner(runner: object) -> None:
    """Refuse what cannot be a runner before it is called.

    Raises:
        ConfigError: it lacks a method, or is a class and no instance.
    """
    lacking = [name for name in _CALLS if not callable(getattr(runner, name, None))]
    if isinstance(runner, type):
        raise ConfigError(f"runner={runner.__name__}: this is a class; give {runner.__name__}(...)")
    if lacking:
        raise ConfigError(f"runner={shown(runner)}: has no {lacking[0]}(): give a Runner")
