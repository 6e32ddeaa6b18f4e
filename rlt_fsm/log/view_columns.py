"""The public views by column, with what each holds: for whoever takes them out of the file.

`views.py` is what makes them; a test keeps the two alike. Names and order are the contract's.
"""

from typing import Final, Literal

Kind = Literal["whole", "real", "text"]  # whole numbers of 64 bits, real ones, UTF-8 (also JSON)

_REAL: Final = frozenset({"logprob"})
_WHOLE: Final = frozenset(
    {
        "run_id", "schema_version", "last_seq", "generation", "prompt_len", "max_tokens",
        "priority", "submitted_seq", "submitted_step", "first_output_step", "finished_step",
        "outputs", "preemptions", "seq", "step", "ticket", "t_ns", "cause", "rows", "tokens",
        "completed_seq", "retired_seq", "t_submitted_ns", "t_completed_ns", "row", "token_start",
        "token_count", "depth", "replay", "idx", "token_id", "exit_depth", "first_seq",
        "waiting", "slots_held", "blocks_free", "blocks_prefix_only", "host_blocks",
    }
)  # fmt: skip

_NAMES: Final = {
    "run": "run_id started_at ended_at outcome schema_version engine_version revision config "
    "model workload last_seq digest",
    "request": "run_id request_id generation prompt_token_ids prompt_len max_tokens priority "
    "params submitted_seq submitted_step first_output_step finished_step finish_reason outputs "
    "preemptions",
    "event": "run_id seq step ticket t_ns request_id generation trigger status_from status_to "
    "work_from work_to slot_from slot_to kv_from kv_to blocks cause reason data",
    "transition": "run_id seq step ticket t_ns request_id generation machine trigger source dest",
    "batch": "run_id ticket step operation works rows tokens reason submitted_seq completed_seq "
    "retired_seq t_submitted_ns t_completed_ns",
    "batch_row": "run_id ticket row request_id generation work token_start token_count depth "
    "replay",
    "output": "run_id request_id generation idx token_id exit_depth logprob step seq",
    "refusal": "run_id seq step request_id generation prompt_token_ids params reason",
    "block_change": "run_id seq request_id generation change blocks",
    "step": "run_id step first_seq last_seq ticket waiting slots_held blocks_free "
    "blocks_prefix_only host_blocks digest",
}


def _kind(view: str, column: str) -> Kind:
    if column in _REAL:
        return "real"
    # In `block_change` the blocks are a list of ids, in `event` their number.
    is_whole = column in _WHOLE or (view, column) == ("event", "blocks")
    return "whole" if is_whole else "text"


VIEW_COLUMNS: Final[dict[str, dict[str, Kind]]] = {
    view: {name: _kind(view, name) for name in names.split()} for view, names in _NAMES.items()
}
