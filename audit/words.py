"""The codes of a log in words: why a request was passed over, why a batch was chosen, and so on.

A recorded reason is a code, then key=value. A code that is not known here, or lacks a number, is
shown as it stands: logs of other engines have their own.
"""

from collections.abc import Iterable, Mapping
from typing import Final

VERDICTS: Final = {
    "no-slot": "no slot was free and nobody less urgent held one",
    "blocks": "it needed {need} blocks and {free} could be had",
    "bypass-limit": "{behind} was before it and may not be passed any more",
    "behind": "{id} was before it",
    "budget": "the batch was full, with {rows} rows and {tokens} tokens left",
    "in-flight": "a batch in flight still used what it needed",
}
BATCHES: Final = {
    "prelude-ready": "tokens were ready to be embedded",
    "prelude-resumed": "admission brought back tokens that were ready to be embedded",
    "coda-ready": "tokens had left the loop",
    "coda-resumed": "admission brought back tokens that had left the loop",
    "coda-last": "nothing else could run",
    "decode-due": "prompts had had their share of batches",
    "decode-ready": "decode loops were ready",
    "prompt-loop-due": "an embedded prompt waited for its loop",
    "prompt-ready": "prompts were ready",
    "both-loops-ready": "decode and prompt loops were ready",
    "core": "the cohort's loops go on until the last has left",
    "coda": "the cohort's tokens had left the loop",
    "fill": "the next cohort is filled up",
    "fill-due": "prompts had had their share of the next cohort",
}
REFUSALS: Final = {
    "duplicate": "the id is in use (generation {generation}, {status})",
    "retiring": "generation {generation} of the id is not retired yet",
    "queue-full": "{waiting} requests wait and at most {max_waiting} may",
    "context": "it needs {need} positions and the model has {max_model_len}",
    "blocks": "it needs {need} blocks and the pool has {pool}",
    "max-tokens": "max_tokens is {max_tokens}",
    "out-of-vocabulary": "token {token} at position {position} is not one of {vocab_size}",
}
REWINDS: Final = {
    "host-full": "the host had no room for its KV",
    "recovered": "the run went on after a crash",
}


def in_words(reason: str | None, sentences: Mapping[str, str]) -> str:
    """A recorded reason in words."""
    if not reason:
        return "no reason is recorded"
    code, values = parsed(reason)
    try:
        return sentences[code].format_map(values)
    except KeyError:
        return f"`{reason}`"


def parsed(reason: str) -> tuple[str, dict[str, str]]:
    """A reason's code and its values."""
    code, *pairs = reason.split(" ")
    return code, {key: value for key, sign, value in (p.partition("=") for p in pairs) if sign}


def number(reason: str | None, name: str) -> int | None:
    """A whole number that a reason tells, if it does."""
    text = parsed(reason or "")[1].get(name, "")
    return int(text) if text.isdecimal() else None


def joined(parts: Iterable[str], *, most: int = 6) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most` the rest as a number."""
    listed = list(parts)
    if len(listed) > most + 1:
        listed = [*listed[:most], f"{len(listed) - most} more"]
    if len(listed) <= 1:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} and {listed[-1]}"


def shown(name: str) -> str:
    """A name on one line: characters that a terminal would act upon are escaped."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
