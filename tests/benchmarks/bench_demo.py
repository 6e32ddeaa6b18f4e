"""The demo model's table, measured through the engine: depth, correctness, time per token.

One thread, and its CPU time: a model this small gains little from more threads, and on a machine
that others use too, wall-clock time says little.
"""

import time
from itertools import chain

import torch

from docs.generate.markdown import table
from rlt_fsm import EngineConfig, SamplingParams
from rlt_fsm.config import SchedulerConfig
from runner import LLM
from runner.demo.evaluate import evaluation_problems

from .bench_runs import median

WIDTH = 64
RULES = (
    (1.0, 2), (0.9, 2), (0.99, 1), (0.95, 1), (0.9, 1), (0.8, 1), (0.7, 1), (0.5, 1), (0.3, 1),
    (0.0, 1),
)  # fmt: skip


def tables(*, prompts: int = 500, repeats: int = 5) -> dict[str, str]:
    """Every block of this file: (threshold, min_loops) on unseen prompts, interleaved."""
    torch.set_num_threads(1)
    wanted = dict(evaluation_problems(prompts).texts())
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=WIDTH, max_num_batched_tokens=8 * WIDTH)
    )
    measured: dict[tuple[float, int], list[tuple[float, float, float, float]]] = {}
    with LLM("demo", device="cpu", config=config) as llm:
        llm.generate(list(wanted)[:WIDTH])  # warm
        for rule in chain.from_iterable([RULES] * repeats):
            measured.setdefault(rule, []).append(_once(llm, wanted, *rule))
    full = measured[RULES[0]]
    rows = []
    for (threshold, min_loops), results in measured.items():
        exact, depth, later, _ = results[0]
        ms = median(result[3] for result in results)
        faster = median(f[3] / r[3] for f, r in zip(full, results, strict=True))
        rows.append(
            [
                f"{threshold:g}", min_loops, f"{exact:.1%}", f"{depth:.2f}", f"{later:.2f}",
                f"{full[0][1] / depth:.2f}", f"{ms:.3f} ms", f"{faster:.2f}",
            ]
        )  # fmt: skip
    head = [
        "threshold", "min loops", "exact", "mean exit depth", "after output 0", "fewer loops",
        "time per token", "faster",
    ]  # fmt: skip
    return {"demo": table(head, rows, numbers=range(len(head)))}


def _once(
    llm: LLM, wanted: dict[str, str], threshold: float, min_loops: int
) -> tuple[float, float, float, float]:
    """(share exact, mean depth, mean depth of outputs after the first, ms per token)."""
    params = SamplingParams(exit_threshold=threshold, min_loops=min_loops)
    started = time.process_time()
    outputs = llm.generate(list(wanted), params)
    seconds = time.process_time() - started
    depths = [output.exit_depths for output in outputs]
    every = list(chain.from_iterable(depths))
    later = [depth for own in depths for depth in own[1:]]
    right = sum(o.text == answer for o, answer in zip(outputs, wanted.values(), strict=True))
    return (
        right / len(outputs),
        sum(every) / len(every),
        sum(later) / len(later),
        1e3 * seconds / len(every),
    )
