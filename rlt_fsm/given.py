"""What a caller of the engine gave, in plain values, before the door looks at it.

Only what is not even of the right kind is refused here; whether values make sense is the door's.
"""

import secrets
from typing import NamedTuple

import msgspec

from .door import Refusal
from .params import SamplingParams
from .plain import listed, plain, text


class Given(NamedTuple):
    """A request in plain values; `refusal` where it is not even of the right kind."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    refusal: Refusal | None


def read(request_id: object, prompt: object, params: object) -> Given:
    """The request that a caller gave; parameters left out are the defaults.

    A seed of None is drawn here, so that the log can repeat the run.
    """
    refusal = None
    if not isinstance(request_id, str):
        refusal = Refusal("request-id", f"request_id={plain(request_id)!r} must be a string")
    elif text(request_id) != request_id:
        refusal = Refusal("request-id", "request_id must be a string that UTF-8 can hold")
    tokens = listed(prompt)
    if not isinstance(tokens, tuple):
        tokens, refusal = (
            (),
            refusal
            or Refusal("not-a-prompt", f"prompt_token_ids={tokens!r} must be a list of token ids"),
        )
    if params is None:
        params = SamplingParams()
    elif isinstance(params, SamplingParams):
        params = _plain_params(params)
    else:
        params, refusal = (
            SamplingParams(),
            refusal
            or Refusal(
                "type field=params", f"params={plain(params)!r} must be SamplingParams, or None"
            ),
        )
    if params.seed is None:
        params = msgspec.structs.replace(params, seed=secrets.randbits(63))
    return Given(str(plain(request_id)), tokens, params, refusal)


def _plain_params(params: SamplingParams) -> SamplingParams:
    changed = {}
    for name in params.__struct_fields__:
        value = getattr(params, name)
        own = listed(value)
        if own is not value:
            changed[name] = own
    return msgspec.structs.replace(params, **changed) if changed else params
