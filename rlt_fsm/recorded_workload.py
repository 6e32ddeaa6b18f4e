"""A workload for the sim out of a recorded run: what it was given, with the recorded depths.

For runs that came from no workload file, or from another model: token values are the sim's own, but
for those that stopped a request.
"""

from msgspec.structs import replace

from .errors import WorkloadError
from .params import SamplingParams
from .record import Added, Crashed, Name, Record
from .states import Outcome
from .workload import FORMAT, Action, Expect, Request, Workload, label, parse

SIM = "sim"


def workload_of(record: Record) -> Workload:
    """The workload that a run came from; else one that gives the sim the same."""
    if record.workload is not None:
        try:
            told = parse(record.workload)
        except WorkloadError:  # another version's
            told = None
        if told is not None and told.model == SIM:
            return told
    model, is_drained = record.model, record.outcome is Outcome.DRAINED
    requests, actions = [], []
    for call in record.calls:
        if isinstance(call, Added):
            requests.append(_request(record, call))
        elif isinstance(call, Crashed):
            actions.append(Action(at=call.step, crash=True))
        else:
            actions.append(Action(at=call.step, abort=label(*call.name)))
    actions += [Action(at=step, fail=True) for step in record.failures]
    return Workload(
        format=FORMAT,
        name=f"recorded from {model.name}",
        depths=model.depths,
        vocab_size=model.vocab_size,
        max_model_len=model.max_model_len,
        config=record.config,
        requests=tuple(requests),
        actions=tuple(actions),
        # A run that was closed early, or broke off, is closed as early.
        expect=Expect() if is_drained else Expect(max_steps=max(1, record.last_step)),
    )


def _request(record: Record, call: Added) -> Request:
    spec = call.spec
    request = Request(id=spec.request_id, at=call.step, prompt=spec.prompt_token_ids,
                      params=spec.params)  # fmt: skip
    if record.model.name == SIM:
        return request
    name = spec.request_id, spec.generation
    params = _forced(record, name, spec.params)
    tokens = [answer.token_id for answer in record.answers[name]]
    stop_at = eos_at = None
    if tokens and tokens[-1] in params.stop_token_ids:
        stop_at, stops = len(tokens), params.stop_token_ids[:1]
    else:  # none, so that no token of the sim stops it by chance
        has_eos = bool(tokens) and tokens[-1] in record.model.eos_token_ids
        eos_at, stops = len(tokens) if has_eos and not params.ignore_eos else None, ()
    params = replace(params, stop_token_ids=stops)
    return replace(request, params=params, stop_at=stop_at, eos_at=eos_at)


def _forced(record: Record, name: Name, params: SamplingParams) -> SamplingParams:
    """Parameters that let every token leave the loop where it did; others run to full depth."""
    exits, most = record.exits[name], params.max_loops or record.model.depths
    depths = [record.model.depths if idx == 0 else most for idx in range(params.max_tokens)]
    for idx, depth in exits.items():
        if idx < len(depths):
            depths[idx] = depth
    return replace(params, exit_depths=tuple(depths))
