"""What a caller of the engine gave: the engine's parts, and requests in plain values.

Only what is not even of the right kind is refused here; whether a request makes sense is the
door's to say.
"""

import secrets
from typing import NamedTuple

import msgspec

from .arguments import of_kind, yes_or_no
from .batch import require_runner
from .door import Refusal
from .log import EventLog
from .params import SamplingParams
from .plain import listed, plain, text


class Given(NamedTuple):
    """A request in plain values; `refusal` where it is not even of the right kind."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    refusal: Refusal | None


def require_parts(runner: object, log: object, workload: object, verdicts: object) -> None:
    """Refuse what no engine can be made of, before anything is opened or started.

    Raises:
        ConfigError: an argument of another kind.
    """
    require_runner(runner)
    if log is not None:
        of_kind("log", log, EventLog, "an event log, such as EventLog.open('run.db')")
    if workload is not None:
        of_kind("workload", workload, str, "the text of a workload, or None")
    yes_or_no("verdicts", verdicts)


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
