"""The baselines: a static cohort over dense KV, launched from Python or from captured graphs.

Every request of a cohort is padded to its longest prompt and runs to its longest output, all loops.
The graphed one attends to whole buckets of 64 positions without a mask: a favour to it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from runner.models.ouro import OuroModel

from .jobs import FULL_DEPTH, Job

_BUCKET: Final = 64
_PREFILL_TOKENS: Final = 8192


class DenseCohort:
    """K and V of `batch` requests, each [layers, depths, batch, kv_heads, length, head_dim]."""

    def __init__(self, model: OuroModel, batch: int, length: int) -> None:
        config, weight = model.config, model.lm_head.weight
        self._model = model
        self._batch = batch
        length = -(-length // _BUCKET) * _BUCKET
        shape = (
            config.num_hidden_layers, FULL_DEPTH, batch, config.num_key_value_heads, length,
            config.head_dim,
        )  # fmt: skip
        self._keys = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self._values = torch.zeros_like(self._keys)
        self._tokens = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        self._position = torch.zeros(1, dtype=torch.int64, device=weight.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def prefill(self, prompts: Tensor) -> None:
        """Take prompts [batch, tokens] through every loop, a few requests at a time."""
        count = prompts.shape[1]
        at_once = max(1, _PREFILL_TOKENS // count)
        positions = torch.arange(count, device=prompts.device)
        for first in range(0, self._batch, at_once):
            own = slice(first, min(first + at_once, self._batch))
            requests = own.stop - own.start
            hidden = self._model.prelude(prompts[own].reshape(-1))
            for depth in range(FULL_DEPTH):
                attend = self._attend_prompt(depth, own, count)
                hidden, _ = self._model.recurrent(hidden, positions.repeat(requests), attend)
            last = hidden.view(requests, count, -1)[:, -1]
            self._tokens[own] = self._model.coda(last).argmax(dim=-1)
        self._position.fill_(count)

    def _attend_prompt(self, depth: int, own: slice, count: int) -> Callable[..., Tensor]:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.view(own.stop - own.start, count, -1, x.shape[-1]).transpose(1, 2)
                       for x in (q, k, v))  # fmt: skip
            self._keys[layer, depth, own, :, :count] = k
            self._values[layer, depth, own, :, :count] = v
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return out.transpose(1, 2).reshape(-1, q.shape[1], q.shape[3])

        return attend

    def _attend_token(self, depth: int, length: int) -> Callable[..., Tensor]:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys[layer, depth], self._values[layer, depth]
            keys.index_copy_(2, self._position, k[:, :, None])
            values.index_copy_(2, self._position, v[:, :, None])
            return functional.scaled_dot_product_attention(
                q[:, :, None], keys[:, :, :length], values[:, :, :length]
            )[:, :, 0]

        return attend

    def _step(self, length: int) -> None:
        """One token of every request, attending to [0, length)."""
        hidden = self._model.prelude(self._tokens)
        positions = self._position.expand(self._batch)
        for depth in range(FULL_DEPTH):
            attend = self._attend_token(depth, length)
            hidden, _ = self._model.recurrent(hidden, positions, attend)
        self._tokens.copy_(self._model.coda(hidden).argmax(dim=-1))
        self._position += 1

    def decode(self, start: int, outputs: int, *, graphed: bool) -> None:
        """`outputs` further tokens of every request, the first at position `start`."""
        for position in range(start, start + outputs):
            if graphed:
                self._graphs[self._bucket(position)].replay()
            else:
                self._step(position + 1)

    def capture(self, start: int, end: int) -> None:
        """Graphs for positions [start, end); what is in the KV does not matter."""
        for length in range(self._bucket(start), self._bucket(end - 1) + 1, _BUCKET):
            self._position.fill_(length - 1)
            self._step(length)
            self._position.fill_(length - 1)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(length)
            self._graphs[length] = graph

    def _bucket(self, position: int) -> int:
        return -(-(position + 1) // _BUCKET) * _BUCKET


def run_dense(
    model: OuroModel, jobs: Sequence[Job], width: int, *, graphed: bool
) -> tuple[float, float]:
    """Seconds in all, and seconds of decoding, for every cohort of `width` jobs in turn."""
    total = decoding = 0.0
    device = model.lm_head.weight.device
    for first in range(0, len(jobs), width):
        own = jobs[first : first + width]
        prompt_len = max(len(job.prompt) for job in own)
        outputs = max(len(job.depths) for job in own)
        cohort = DenseCohort(model, len(own), prompt_len + outputs)
        prompts = torch.zeros((len(own), prompt_len), dtype=torch.int64)
        for row, job in enumerate(own):
            prompts[row, : len(job.prompt)] = torch.tensor(job.prompt)
        prompts = prompts.to(device)
        if graphed:  # once for each cohort, and not counted
            cohort.capture(prompt_len, prompt_len + outputs)
        _settle(device)
        started = time.perf_counter()
        cohort.prefill(prompts)
        _settle(device)
        begun = time.perf_counter()
        cohort.decode(prompt_len, outputs - 1, graphed=graphed)
        _settle(device)
        ended = time.perf_counter()
        total += ended - started
        decoding += ended - begun
        del cohort
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return total, decoding


def _settle(device: torch.device) -> None:
    """Wait for the device, so that the host's clock tells its time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
