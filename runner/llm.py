"""LLM: prompts in, completions out, for people who do not want to drive an engine.

A facade: it finds a model, tokenizes, feeds the engine and puts text on its outputs. Nothing is
scheduled or computed here.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Self, TypeVar

from msgspec.structs import replace

from rlt_fsm.arguments import yes_or_no
from rlt_fsm.config import EngineConfig
from rlt_fsm.engine import Engine
from rlt_fsm.errors import EngineClosed, RltError
from rlt_fsm.log import EventLog
from rlt_fsm.outputs import RequestOutput
from rlt_fsm.params import SamplingParams

from .loading import load_model
from .progress import bar, silent
from .text import Tokenizer, load_tokenizer, text_so_far
from .torch_runner import TorchRunner

Prompt = str | Sequence[int]
T = TypeVar("T")


class LLM:
    """A model, an engine and an event log behind `generate` and `stream`.

    Args:
        model: `demo`, a local folder in Hugging Face layout, or a hub id.
        db: where the event log goes, a path or a database URL; in memory when None.
        device: `auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`.
        dtype: `auto` (bfloat16 on CUDA, float32 on a CPU), `float32`, `bfloat16` or `float16`.
        max_model_len: caps the context in tokens, and with it the KV pool.
        config: how the engine behaves.
        show_progress: show a bar on stderr while graphs are captured, if that is a terminal.

    Raises:
        CheckpointError: the model cannot be found or used.
        ConfigError: a value that cannot work here.
        LogError: the log cannot be opened.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        db: str | Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        max_model_len: int | None = None,
        config: EngineConfig | None = None,
        show_progress: bool = True,
    ) -> None:
        yes_or_no("show_progress", show_progress)
        reading = bar("read", "megabyte") if show_progress else silent
        loaded = load_model(model, device, dtype, reading)
        assert loaded.folder is not None
        self.tokenizer: Tokenizer | None = load_tokenizer(loaded.folder)
        progress = bar("captured", "graph") if show_progress else silent
        runner = TorchRunner(loaded, max_model_len=max_model_len, progress=progress)
        self._log = EventLog.memory() if db is None else EventLog.open(db)
        try:
            self.engine = Engine(runner, config, self._log)
        except BaseException:
            self._log.close()
            raise
        self._requests_made = 0

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Complete every prompt; the outputs come in the order of the prompts.

        Args:
            prompts: one text, or a list of texts and of token-id lists.
            params: one for all prompts, or one for each; the defaults when None.

        Raises:
            RequestRefused: a prompt or its parameters can never be served; none is run.
            RltError: prompts and params do not go together, or the engine is busy.
        """
        request_ids = self._admit(prompts, params)
        with closing(self._outputs(request_ids)) as outputs:
            finished = {output.request_id: output for output in outputs if output.finished}
        return [self._with_text(finished[request_id]) for request_id in request_ids]

    def stream(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Generator[RequestOutput, None, None]:
        """Yield every request's outputs so far, once per token; see `generate`.

        `request_id` tells the prompts apart: ids rise in the order of the prompts. Nothing runs
        before the first output is asked for. Whatever ends it early, closing it or an exception,
        aborts what is left; a loop that is left is closed as soon as nobody holds the generator.
        """
        with closing(self._outputs(self._admit(prompts, params))) as outputs:
            for output in outputs:
                yield self._with_text(output)

    def close(self) -> None:
        """Abort what is live, seal the log and release the device. May be called twice."""
        self.engine.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- small parts -------------------------------------------------------------------------

    def _admit(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[str]:
        """Add every prompt to the engine, or none; return their request ids in order."""
        requests = self._pair(prompts, params)
        if self.engine.has_unfinished_requests():
            raise RltError(
                "the engine is busy with other requests: finish or abort them before a new call"
            )
        admitted: list[str] = []
        try:
            for tokens, own in requests:
                request_id = str(self._requests_made)
                self._requests_made += 1
                self.engine.add_request(request_id, tokens, own)
                admitted.append(request_id)
        except BaseException:
            self._abandon(admitted)
            raise
        return admitted

    def _pair(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[tuple[list[int], SamplingParams]]:
        if isinstance(prompts, str):
            prompts = [prompts]
        prompts = _listed("prompts", prompts)
        if params is None:
            params = SamplingParams()
        if isinstance(params, SamplingParams):
            params = [params] * len(prompts)
        params = _listed("params", params)
        if len(params) != len(prompts):
            raise RltError(
                f"{len(params)} params for {len(prompts)} prompts: give one for all, or one each"
            )
        return [(self._tokens(p), own) for p, own in zip(prompts, params, strict=True)]

    def _tokens(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, Iterable):
            raise RltError(
                f"prompts holds {prompt!r}: a prompt of token ids is a list of its own, "
                "[[1, 2, 3]] rather than [1, 2, 3]"
            )
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise RltError(
                "this model's folder has no tokenizer.json, so texts cannot be read: give token "
                "ids instead"
            )
        try:
            return self.tokenizer.encode(prompt)
        except UnicodeEncodeError as error:
            raise RltError(
                f"the prompt {prompt!r} holds half of a surrogate pair, which is no text: drop it"
            ) from error

    def _outputs(self, request_ids: Sequence[str]) -> Generator[RequestOutput, None, None]:
        """Step until all are finished; whatever ends this early aborts the rest."""
        unfinished = dict.fromkeys(request_ids)
        try:
            while unfinished:
                for output in self.engine.step():
                    if output.request_id not in unfinished:
                        continue
                    if output.finished:
                        del unfinished[output.request_id]
                    yield output
        finally:
            self._abandon(list(unfinished))

    def _abandon(self, request_ids: Sequence[str]) -> None:
        """Abort requests whose outputs nobody will read."""
        with suppress(EngineClosed):  # a stopped engine holds nothing any more
            for request_id in request_ids:
                self.engine.abort_request(request_id)
            while request_ids and self.engine.has_unfinished_requests():
                self.engine.step()

    def _with_text(self, output: RequestOutput) -> RequestOutput:
        """The same output with its completion's text; a stop token is no part of it."""
        if self.tokenizer is None:
            return output
        shown = output.token_ids[:-1] if output.finish_reason == "stop" else output.token_ids
        text = text_so_far(self.tokenizer, shown, is_final=output.finished)
        return replace(output, text=text)


def _listed(name: str, given: Iterable[T]) -> Sequence[T]:
    """What a caller gave as a list; a text or a mapping is none."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise RltError(f"{name} is of type {kind}: give one for all, or a list with one each")
    return list(given)
