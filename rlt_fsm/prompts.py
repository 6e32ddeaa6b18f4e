"""What a workload's words stand for: its prompts as token ids, its scripted outputs as a script.

Token i (0, 1, 2 …) of the prompt of request id `a` in a workload with seed s is
1 + draw(key_of("rlt-workload/1 prompt", s, "a"), i) mod (vocab_size - 1), in [1, vocab_size): the
sim's EOS (0) is never in a prompt, and a longer prompt of one id begins with the shorter one.
"""

from collections.abc import Mapping

from .counter_hash import draw, key_of
from .errors import WorkloadError
from .workload_form import Workload, in_order, split_label

# (request id, generation) → output index (0-based) → the token sampled there.
Script = Mapping[tuple[str, int], Mapping[int, int]]

SIM_EOS = 0


def made_prompt(seed: int, request_id: str, length: int, vocab_size: int) -> tuple[int, ...]:
    """The prompt that `prompt_len` asks for."""
    key = key_of("rlt-workload/1 prompt", seed, request_id)
    return tuple(1 + draw(key, i) % (vocab_size - 1) for i in range(length))


def prompts(workload: Workload) -> list[tuple[int, ...]]:
    """The prompt of every request, in file order.

    Raises:
        WorkloadError: a `prompt_like` that leads back to itself, or a prompt that is shorter than
            the part of it that is to be shared.
    """
    places = {(workload.requests[i].id, generation): i for i, generation in in_order(workload)}
    made: dict[int, tuple[int, ...]] = {}
    for start in range(len(workload.requests)):
        chain: list[int] = []
        index: int | None = start
        while index is not None and index not in made:
            if index in chain:
                raise WorkloadError(f"requests[{start}]: prompt_like leads back to itself")
            chain.append(index)
            like = workload.requests[index].prompt_like
            index = None if like is None else places[split_label(like)]
        for link in reversed(chain):
            like = workload.requests[link].prompt_like
            shared = () if like is None else made[places[split_label(like)]]
            made[link] = _prompt(workload, link, shared)
    return [made[index] for index in range(len(workload.requests))]


def _prompt(workload: Workload, index: int, shared: tuple[int, ...]) -> tuple[int, ...]:
    request = workload.requests[index]
    if request.prompt is not None:
        return request.prompt
    assert request.prompt_len is not None
    own = made_prompt(workload.seed, request.id, request.prompt_len, workload.vocab_size)
    if request.shared_len is None:
        return own
    if request.shared_len > len(shared):
        raise WorkloadError(
            f"requests[{index}]: shared_len {request.shared_len} is more than the "
            f"{len(shared)} prompt tokens of {request.prompt_like!r}"
        )
    return shared[: request.shared_len] + own[request.shared_len :]


def script(workload: Workload) -> Script:
    """What `eos_at` and `stop_at` put where; empty for requests without them."""
    outputs: dict[tuple[str, int], dict[int, int]] = {}
    for index, generation in in_order(workload):
        request = workload.requests[index]
        tokens: dict[int, int] = {}
        if request.eos_at is not None:
            tokens[request.eos_at - 1] = SIM_EOS
        if request.stop_at is not None:
            tokens[request.stop_at - 1] = request.params.stop_token_ids[0]
        if tokens:
            outputs[request.id, generation] = tokens
    return outputs
