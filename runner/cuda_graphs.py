"""Captured steps at bucketed batch sizes, replayed instead of launched one by one.

Captured once, at start. What a step does is the executor's; which batch is padded to which bucket,
and what a replay needs, lives here.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Final

import torch
from torch.cuda import Stream

from rlt_fsm.config import EngineConfig

from .progress import Progress, silent

# Between powers of two there are steps of 16, then 32: what a product's tile costs anyway.
_SMALL: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128)
_STEP: Final = 32
_SMALL_PROMPTS: Final = (64, 128, 256)  # so many rows cost about what the weights cost
GRAPHED_STEPS: Final = 3  # of decode rows: prelude, recurrent, coda


def bucket_sizes(most: int) -> list[int]:
    """Batch sizes worth a graph, up to the first that holds `most` rows: 5 -> 1, 2, 4, 5."""
    sizes = [size for size in (*_SMALL, *range(160, most + _STEP, _STEP)) if size < most]
    return [*sizes, most]


def prompt_sizes(most: int) -> list[int]:
    """Numbers of prompt rows worth a graph, up to `most`: four to each doubling, 640 after 512."""
    sizes = [size for size in _SMALL_PROMPTS if size < most]
    for power in count(8):
        for quarter in range(5, 9):
            if (size := quarter << (power - 2)) >= most:
                return [*sizes, most]
            sizes.append(size)
    raise AssertionError("no number of rows is beyond all sizes")


def captured_steps(config: EngineConfig) -> int:
    """How many graphs an engine of this configuration has."""
    if not config.execution.cuda_graphs:
        return 0
    limits = config.scheduler
    prompts = (
        [] if config.execution.batch_invariant else prompt_sizes(limits.max_num_batched_tokens)
    )
    return len(bucket_sizes(limits.max_num_seqs)) * GRAPHED_STEPS + len(prompts)


class StepGraphs:
    """One graph per step and bucket, in one memory pool."""

    def __init__(self, buckets: Sequence[int], device: torch.device) -> None:
        self._buckets = sorted(buckets)
        self._device = device
        self._graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def bucket(self, step: str, rows: int) -> int | None:
        """The least bucket that holds `rows`, if it was captured."""
        place = bisect_left(self._buckets, rows)
        if place == len(self._buckets):
            return None
        bucket = self._buckets[place]
        return bucket if (step, bucket) in self._graphs else None

    def replay(self, step: str, bucket: int) -> bool:
        """Run a captured step; False where there is none."""
        graph = self._graphs.get((step, bucket))
        if graph is None:
            return False
        graph.replay()
        return True

    def capture(
        self,
        steps: Mapping[str, Callable[[int], object]],
        progress: Progress = silent,
    ) -> None:
        """Capture every step at every bucket, the largest first, so that smaller ones reuse its
        memory. The steps' inputs must be padding throughout: captures warm up by running.
        """
        stream = _capture_stream(self._device)
        pool, total, done = None, len(steps) * len(self._buckets), 0
        for bucket in reversed(self._buckets):
            for name, step in steps.items():
                graph = torch.cuda.CUDAGraph()
                self._warm_up(step, bucket, stream)
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    step(bucket)
                pool = pool or graph.pool()
                self._graphs[name, bucket] = graph
                done += 1
                progress(done, total)
        torch.cuda.synchronize(self._device)

    def _warm_up(self, step: Callable[[int], object], bucket: int, stream: Stream) -> None:
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            step(bucket)
        torch.cuda.current_stream(self._device).wait_stream(stream)


@cache
def _capture_stream(device: torch.device) -> Stream:
    """One for all captures of a process: the library keeps a workspace for each stream it meets."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
