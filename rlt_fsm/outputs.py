"""RequestOutput: what the caller gets, one per emitted token or ending."""

import msgspec


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A request's outputs so far.

    `token_ids`, `exit_depths` (1-based loops) and, where asked for, `logprobs` are cumulative and
    of equal length. `finish_reason` is None until `finished`. `text` is None where no tokenizer is
    in play.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: list[int]
    exit_depths: list[int]
    finished: bool
    finish_reason: str | None = None
    text: str | None = None
    logprobs: list[float | None] | None = None
