"""Drives a runner by hand-made batches: a scheduler small enough to see through, for tests only.

Every live request that has the same kind of work due goes into one batch (`packed`), or one request
after the other is run to its end (`serial`). Beside it: runners as tests need them on a CPU.
"""

from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from rlt_fsm.batch import Batch, RequestSpec, Row
from rlt_fsm.config import CacheConfig, EngineConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.params import SamplingParams
from rlt_fsm.states import OPERATION_OF, WorkKey
from rlt_fsm.workload import Completion
from runner import torch_runner
from runner.kernels import twins
from runner.kernels.backend import TritonAttention
from runner.loading import LoadedModel
from runner.models.ouro import OuroConfig, OuroModel
from runner.sim_completion import LateResults
from runner.torch_runner import TorchRunner

TINY = OuroConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    total_ut_steps=4,
)


def tiny_model(*, seed=0, gate_bias=None, dtype=torch.float32, context=None):
    """A random model; with `gate_bias` its gate says the same after every loop.

    Larger weights would amplify the last bit of fp32 into other tokens within a few loops.
    """
    torch.manual_seed(seed)
    config = TINY if context is None else replace(TINY, max_position_embeddings=context)
    model = OuroModel(config).requires_grad_(requires_grad=False).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(0, 0.1)
    if gate_bias is not None:
        model.model.early_exit_gate.weight.zero_()
        model.model.early_exit_gate.bias.fill_(gate_bias)
    return LoadedModel("tiny", config, model.to(dtype))


def dense_config(loaded):
    """What the dense reference wants to know of a model."""
    return {name: getattr(loaded.config, name) for name in loaded.config.__struct_fields__}


def small_config(
    *, layout="last_exited", block_size=4, num_blocks=256, max_num_seqs=4, **execution
):
    return EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=max_num_seqs),
        cache=CacheConfig(num_blocks=num_blocks, block_size=block_size, layout=layout),
        execution=ExecutionConfig(**execution),
    )


@dataclass
class Live:
    spec: RequestSpec
    state_row: int
    block_table: tuple
    work: WorkKey = WorkKey.PROMPT_ATOMIC
    prefilled: int = 0
    loops_done: int = 0
    said_before: bool = False
    outputs: list = field(default_factory=list)
    exit_depths: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)

    @property
    def position(self):
        return len(self.spec.prompt_token_ids) + len(self.outputs) - 1

    @property
    def is_finished(self):
        return len(self.outputs) == self.spec.params.max_tokens


class Driver:
    def __init__(self, loaded=None, config=None, *, chunk=128):
        self.runner = TorchRunner(loaded if loaded is not None else tiny_model())
        self.facts, self.config = self.runner.start(config or small_config())
        self.chunk = chunk
        self.free_blocks = list(range(self.config.cache.num_blocks))
        self.free_rows = list(range(self.config.scheduler.max_num_seqs))
        self.generations = {}
        self.tickets = 0

    # ---- requests ----------------------------------------------------------------------------

    def add(self, name, prompt, **params):
        asked = SamplingParams(**params)
        generation = self.generations[name] = self.generations.get(name, 0) + 1
        spec = RequestSpec(name, generation, tuple(prompt), asked)
        table = self.take_blocks(len(prompt) + asked.max_tokens - 1)
        return Live(spec, self.free_rows.pop(0), table)

    def take_blocks(self, tokens):
        pages = -(-tokens // self.config.cache.block_size)
        return tuple(
            tuple(self.free_blocks.pop(0) for _ in range(pages)) for _ in range(self.facts.planes)
        )

    def end(self, live):
        self.runner.release(live.spec)
        self.free_rows.append(live.state_row)
        self.free_blocks = [b for plane in live.block_table for b in plane] + self.free_blocks

    # ---- batches -----------------------------------------------------------------------------

    def row(self, live):
        start, count = live.position, 1
        if live.work is WorkKey.PROMPT_ATOMIC:
            start = live.prefilled
            count = min(self.chunk, len(live.spec.prompt_token_ids) - start)
        is_loop = live.work is WorkKey.DECODE_RECURRENT
        return Row(
            spec=live.spec,
            work=live.work,
            token_start=start,
            token_count=count,
            depth=live.loops_done if is_loop else None,
            replay=False,
            output_idx=len(live.outputs),
            loops_done=live.loops_done if is_loop or live.work is WorkKey.DECODE_CODA else 0,
            max_loops=self.loops_allowed(live),
            last_token=live.outputs[-1] if live.work is WorkKey.DECODE_PRELUDE else -1,
            state_row=live.state_row,
            block_table=live.block_table,
        )

    def loops_allowed(self, live):
        params, idx = live.spec.params, len(live.outputs)
        if params.exit_depths is not None:
            return params.exit_depths[idx]
        return params.max_loops or self.facts.depths

    def run(self, lives):
        """One batch of requests that have the same work due."""
        work = lives[0].work
        assert all(live.work is work for live in lives)
        rows = tuple(self.row(live) for live in lives)
        self.tickets += 1
        self.runner.submit(
            Batch(self.tickets, self.tickets, OPERATION_OF[work], (work,), rows, "test")
        )
        (result,) = self.runner.collect()
        assert result.ticket == self.tickets
        for i, (live, row) in enumerate(zip(lives, rows, strict=True)):
            self.advance(live, row, result, i)
        return result

    def advance(self, live, row, result, i):
        match live.work:
            case WorkKey.PROMPT_ATOMIC:
                live.prefilled += row.token_count
                if live.prefilled == len(live.spec.prompt_token_ids):
                    live.work, live.loops_done = WorkKey.DECODE_CODA, self.facts.depths
            case WorkKey.DECODE_PRELUDE:
                live.work, live.loops_done = WorkKey.DECODE_RECURRENT, 0
            case WorkKey.DECODE_RECURRENT:
                live.loops_done += 1
                params = live.spec.params
                said, told_by = result.exits[i], live.loops_done
                if self.config.exit.mode == "ouro_delayed":
                    said, told_by, live.said_before = live.said_before, told_by - 1, said
                gate_rules = params.exit_depths is None and told_by >= params.min_loops
                if live.loops_done == row.max_loops or (gate_rules and said):
                    live.work = WorkKey.DECODE_CODA
            case WorkKey.DECODE_CODA:
                live.outputs.append(result.token_ids[i])
                live.logprobs.append(result.logprobs[i])
                live.exit_depths.append(live.loops_done)
                live.work = WorkKey.DECODE_PRELUDE

    # ---- whole runs --------------------------------------------------------------------------

    def packed(self, lives):
        """All requests together, loops of different depths in one batch where they meet."""
        order = [
            WorkKey.PROMPT_ATOMIC,
            WorkKey.DECODE_CODA,
            WorkKey.DECODE_PRELUDE,
            WorkKey.DECODE_RECURRENT,
        ]
        while unfinished := [live for live in lives if not live.is_finished]:
            for work in order:
                due = [live for live in unfinished if live.work is work]
                if due:
                    self.run(due)
                    break

    def serial(self, lives):
        for live in lives:
            self.packed([live])


def completions(lives):
    return [(live.outputs, live.exit_depths) for live in lives]


# ---- runners -------------------------------------------------------------------------------------


class LateTorchRunner(TorchRunner):
    """Results come up to three steps late and out of order; `seed` draws both."""

    def __init__(self, model, seed, **options):
        super().__init__(model, **options)
        self._late = LateResults(Completion(order="random", seed=seed, max_delay=3))

    def submit(self, batch):
        super().submit(batch)
        for result in super().poll():
            self._late.add(result)

    def poll(self):
        return self._late.poll()

    def collect(self):
        return self._late.collect()


def take_the_devices_way(monkeypatch):
    """Runners that start from here on put the kernels' twins behind what launches them on a GPU."""

    def create(_name, cache, *, batch_invariant=False):
        return TritonAttention(cache, twins, batch_invariant=batch_invariant)

    monkeypatch.setattr(torch_runner, "create_backend", create)
    monkeypatch.setattr(torch_runner, "resolve_backend", lambda *_: "triton")
