"""SimRunner: a model without tensors, whose tokens and exits follow from the request alone.

For output `i` of a request, z = draw(key_of("rlt-sim/1", params.seed, prompt), i) gives both draws:

- token: 1 + (z mod 2^40) mod (vocab_size - 1); EOS is 0 and is never drawn;
- gate: every loop has the hazard h = (z >> 48) / 2^16, so that after t loops the chance to have
  left is 1 - (1 - h)^t, and the gate lets go when that reaches `exit_threshold`.

Neither depends on batch mates, order, depth or the runner's history. A script puts given tokens at
given outputs; a scripted request draws none of its own stop ids elsewhere.

Asynchronously batches are computed when they are submitted, and their results come back as late
and in the order that a `Completion` asks for: see `sim_completion.py`.

With `check` the runner refuses what a real KV cache could not serve: see `sim_kv.py`.
"""

import math
from functools import lru_cache
from typing import Self

import msgspec

from rlt_fsm.arguments import of_kind, whole, yes_or_no
from rlt_fsm.batch import Batch, BatchResult, BlockTable, ModelFacts, RequestSpec, Row
from rlt_fsm.config import EngineConfig
from rlt_fsm.counter_hash import draw, key_of
from rlt_fsm.prompts import SIM_EOS, Script, script
from rlt_fsm.states import WorkKey
from rlt_fsm.workload import Completion, Workload

from .sim_completion import LateResults
from .sim_kv import SimKV

MOST_DEPTHS, MOST_TOKENS = 1024, 2**31 - 1  # what a workload file may ask for
_GATE_STEPS = 1 << 16


class InjectedFaultError(RuntimeError):
    """The simulated device failed because `fail_next` asked for it."""


class _Drawn:
    """What one request draws; `token` and `gate` are those of output `output_idx`."""

    __slots__ = ("gate", "hazards", "key", "output_idx", "script", "spec", "stop_ids", "token")

    def __init__(self, spec: RequestSpec, depths: int, script: dict[int, int]) -> None:
        params = spec.params
        self.spec = spec
        self.key = key_of("rlt-sim/1", params.seed or 0, spec.prompt_token_ids)
        self.hazards = hazards_needed(params.exit_threshold, depths)
        self.script = script
        self.stop_ids = frozenset(params.stop_token_ids) if script else frozenset()
        self.output_idx = -1
        self.token = self.gate = 0


@lru_cache(maxsize=1024)
def hazards_needed(exit_threshold: float, depths: int) -> tuple[int, ...]:
    """Entry t: the least hazard, in 1/65536, with which the gate lets go after t loops."""
    if exit_threshold >= 1.0:
        return (_GATE_STEPS,) * (depths + 1)
    chances = (1.0 - (1.0 - exit_threshold) ** (1.0 / loops) for loops in range(1, depths + 1))
    return (_GATE_STEPS, *(math.ceil(_GATE_STEPS * chance) for chance in chances))


class SimRunner:
    """A deterministic runner on plain integers (see the module for its formulas).

    `num_blocks=None` becomes what `max_num_seqs` requests of `max_model_len` tokens need.
    `script` maps (request id, generation) to {output index: token}. `completion`: when results come
    back where the engine is asynchronous; without it, each is one step late.

    Raises:
        ConfigError: a size that no model has, or an argument of another kind.
    """

    fallback: str | None = None

    def __init__(
        self,
        *,
        depths: int = 4,
        vocab_size: int = 512,
        max_model_len: int = 4096,
        script: Script | None = None,
        completion: Completion | None = None,
        check: bool = True,
    ) -> None:
        self._depths = whole("depths", depths, least=1, most=MOST_DEPTHS)
        self._vocab_size = whole("vocab_size", vocab_size, least=2, most=MOST_TOKENS)
        self._max_model_len = whole("max_model_len", max_model_len, least=1, most=MOST_TOKENS)
        if script is not None:
            of_kind("script", script, dict, "a dict, or None")
        self._script = script or {}
        self._kv: SimKV | None = None
        self._check = yes_or_no("check", check)
        self._drawn: dict[int, _Drawn] = {}  # by state row
        if completion is not None:
            of_kind("completion", completion, Completion, "a Completion, or None")
        self._completion = completion
        self._results = LateResults()
        self._fails_next = False
        self._is_async = False

    @classmethod
    def of(cls, workload: Workload, *, check: bool = True) -> Self:
        """The sim that a workload asks for."""
        return cls(
            depths=workload.depths,
            vocab_size=workload.vocab_size,
            max_model_len=workload.max_model_len,
            script=script(workload),
            completion=workload.completion,
            check=check,
        )

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """Forget everything; resolve `num_blocks`, the exit mode and the attention backend."""
        shared = config.cache.layout == "shared"
        facts = ModelFacts(
            name="sim",
            depths=self._depths,
            planes=1 if shared else self._depths,
            vocab_size=self._vocab_size,
            max_model_len=self._max_model_len,
            eos_token_ids=(SIM_EOS,),
        )
        self._drawn.clear()
        self._is_async = config.execution.async_scheduling
        self._results = LateResults(self._completion if self._is_async else None)
        self._fails_next = False
        self._kv = None
        if self._check:
            self._kv = SimKV(
                config.cache.block_size,
                facts.planes,
                facts.depths,
                has_prefix_cache=config.cache.enable_prefix_caching,
            )
        return facts, resolved(config, facts)

    # ---- batches -----------------------------------------------------------------------------

    def submit(self, batch: Batch) -> None:
        """Compute a batch at once; raises InjectedFaultError where `fail_next` asked for it."""
        if self._fails_next:
            self._fails_next = False
            raise InjectedFaultError("the simulated device failed this batch")
        if self._kv is not None:
            self._kv.run(batch)
        works = batch.works
        if works == (WorkKey.DECODE_RECURRENT,):
            result = BatchResult(batch.ticket, exits=[self._leaves(row) for row in batch.rows])
        elif works == (WorkKey.DECODE_CODA,):
            result = self._sample(batch)
        elif WorkKey.DECODE_RECURRENT in works:  # prompt rows ride along and have no gate
            decode = WorkKey.DECODE_RECURRENT
            exits = [row.work is decode and self._leaves(row) for row in batch.rows]
            result = BatchResult(batch.ticket, exits=exits)
        else:
            assert WorkKey.SPECULATIVE not in works, "SimRunner does not speculate"
            result = BatchResult(batch.ticket)
        self._results.add(result)

    def collect(self) -> list[BatchResult]:
        """The results that come first; synchronously all of them, in submission order."""
        return self._results.collect()

    def poll(self) -> list[BatchResult]:
        """The results that have come by now."""
        return self._results.poll()

    def fail_next(self) -> None:
        """Make the device fail the oldest batch in flight, or else the next one."""
        error = f"device-error kind={InjectedFaultError.__name__}"
        self._fails_next = not self._results.fail_oldest(error)

    def disarm(self) -> None:
        """Take back a `fail_next` that met no batch."""
        self._fails_next = False

    # ---- requests ----------------------------------------------------------------------------

    @property
    def requests_held(self) -> int:
        """How many requests it keeps anything for (0 without `check`)."""
        return 0 if self._kv is None else self._kv.requests_held

    def park(self, spec: RequestSpec, state_row: int) -> None:
        """The request gives up its state row."""
        if self._kv is not None:
            self._kv.park(spec, state_row)

    def unpark(self, spec: RequestSpec, state_row: int) -> None:
        """A parked request runs again, maybe in another state row."""
        if self._kv is not None:
            self._kv.unpark(spec, state_row)

    def offload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """The request's KV goes to the host."""
        if self._kv is not None:
            self._kv.offload(spec, block_table)

    def reload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """The request's KV comes back into fresh blocks."""
        if self._kv is not None:
            self._kv.reload(spec, block_table)

    def release(self, spec: RequestSpec) -> None:
        """The request is gone."""
        if self._kv is not None:
            self._kv.release(spec)

    def close(self) -> None:
        """Give everything back."""
        self._drawn.clear()
        self._results.clear()
        self._kv = None

    # ---- draws -------------------------------------------------------------------------------

    def _leaves(self, row: Row) -> bool:
        drawn = self._drawn.get(row.state_row)
        if drawn is None or drawn.output_idx != row.output_idx or drawn.spec is not row.spec:
            drawn = self._draw(row)
        return drawn.gate >= drawn.hazards[row.loops_done + 1]

    def _sample(self, batch: Batch) -> BatchResult:
        tokens = []
        logprobs: list[float | None] = []
        is_asked = False
        for row in batch.rows:
            drawn = self._drawn.get(row.state_row)
            if drawn is None or drawn.output_idx != row.output_idx or drawn.spec is not row.spec:
                drawn = self._draw(row)
            tokens.append(drawn.token)
            if row.spec.params.logprobs is None:
                logprobs.append(None)
                continue
            is_asked = True
            is_scripted = row.output_idx in drawn.script
            logprobs.append(0.0 if is_scripted else -math.log(self._vocab_size - 1))
        if self._kv is not None:
            self._kv.sampled(batch, tokens)
        return BatchResult(batch.ticket, token_ids=tokens, logprobs=logprobs if is_asked else ())

    def _draw(self, row: Row) -> _Drawn:
        """Draw for the row's output; one draw serves all its loops and its coda."""
        spec = row.spec
        drawn = self._drawn.get(row.state_row)
        if drawn is None or drawn.spec is not spec:
            scripted = self._script.get((spec.request_id, spec.generation), {})
            drawn = self._drawn[row.state_row] = _Drawn(spec, self._depths, dict(scripted))
        z = draw(drawn.key, row.output_idx)
        drawn.output_idx = row.output_idx
        drawn.gate = z >> 48
        drawn.token = 1 + (z & 0xFFFFFFFFFF) % (self._vocab_size - 1)
        if drawn.script:
            drawn.token = self._scripted(drawn)
        return drawn

    def _scripted(self, drawn: _Drawn) -> int:
        scripted = drawn.script.get(drawn.output_idx)
        if scripted is not None:
            return scripted
        token = drawn.token
        for _ in range(self._vocab_size - 1):  # the next id that does not stop the request
            if token not in drawn.stop_ids:
                return token
            token = 1 + token % (self._vocab_size - 1)
        return drawn.token


def resolved(config: EngineConfig, facts: ModelFacts) -> EngineConfig:
    """The config with every automatic value filled in, as a runner without tensors does it."""
    cache = config.cache
    if cache.num_blocks is None:
        pages = -(-facts.max_model_len // cache.block_size) * config.scheduler.max_num_seqs
        # A sim block has no bytes: a byte budget cannot size this pool.
        cache = msgspec.structs.replace(
            cache, num_blocks=pages * facts.planes, kv_cache_memory_bytes=None
        )
    execution, exit_config = config.execution, config.exit
    if execution.attention_backend == "auto":
        execution = msgspec.structs.replace(execution, attention_backend="torch")
    if exit_config.mode is None:
        mode = "ouro_delayed" if execution.async_scheduling else "ouro"
        exit_config = msgspec.structs.replace(exit_config, mode=mode)
    return msgspec.structs.replace(config, cache=cache, execution=execution, exit=exit_config)
