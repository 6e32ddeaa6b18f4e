"""When a token leaves the loop, and when an output ends its request. Rules alone, no state."""

from .batch import ModelFacts, RequestSpec
from .states import FinishReason


def asks_gate(spec: RequestSpec, loops: int, max_loops: int, *, told_by: int) -> bool:
    """Whether a gate decides if a token leaves after `loops` loops, the one of loop `told_by`.

    A forced depth decides alone; at `max_loops` the token leaves in any case; a threshold of 1
    means fixed depth; and the loop that tells must have reached `min_loops`.
    """
    params = spec.params
    if params.exit_depths is not None or loops >= max_loops:
        return False
    return params.exit_threshold < 1 and told_by >= params.min_loops


def exits_loop(
    spec: RequestSpec, loops: int, max_loops: int, *, gate_open: bool, told_by: int
) -> bool:
    """The exit rule after `loops` loops of a token (Ouro, cumulative hazard).

    `gate_open`: after loop `told_by` the cumulative exit probability had reached the threshold.
    That is loop `loops` itself, or the one before where exits are one loop late.
    """
    if loops >= max_loops:
        return True
    return gate_open and asks_gate(spec, loops, max_loops, told_by=told_by)


def finish_reason(
    model: ModelFacts, spec: RequestSpec, outputs: int, token: int
) -> FinishReason | None:
    """Whether output number `outputs` (1-based) ends the request.

    A stop id stops even with ignore_eos; EOS stops unless ignored; neither before `min_tokens`
    outputs; stop comes before length on the same token.
    """
    params = spec.params
    if outputs >= params.min_tokens:
        if token in params.stop_token_ids:
            return FinishReason.STOP
        if not params.ignore_eos and token in model.eos_token_ids:
            return FinishReason.STOP
    return FinishReason.LENGTH if outputs >= params.max_tokens else None
