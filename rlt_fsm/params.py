"""SamplingParams: how one request wants its tokens. Checked at the door, not when constructed."""

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one request samples, how deep it may loop, and when it stops.

    `temperature` 0 is greedy. `exit_threshold` 1 runs every loop. `exit_depths[i]` (1-based loop
    counts) forces the depth of output `i`; entry 0 must be the model's full depth. Lower `priority`
    is more urgent. `seed` and the output's index alone decide a draw. `logprobs` 0 asks for the
    log-probability of each sampled token.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = 0
    min_loops: int = 2
    max_loops: int | None = None
    exit_threshold: float = 1.0
    exit_depths: tuple[int, ...] | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    priority: int = 0
    logprobs: int | None = None
