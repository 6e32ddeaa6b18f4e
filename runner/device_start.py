"""Putting the kernels' executor together: fused weights, tables with room, buffers."""

from .device_executor import DeviceExecutor
from .execution import Options
from .fused import FusedLoop
from .kernels.backend import TritonAttention
from .kv_cache import KVCache
from .models.ouro import OuroModel
from .prompt_loop import PromptLoop
from .resident import ResidentState


def start_device_executor(
    model: OuroModel,
    cache: KVCache,
    attention: TritonAttention,
    resident: ResidentState,
    options: Options,
    *,
    max_model_len: int,
    max_tokens: int,
) -> DeviceExecutor:
    """Fuse the weights, give the block tables all the room they can need, and take the buffers for
    decode rows and for prompts of up to `max_tokens` rows.
    """
    hidden = resident.hidden
    pages = -(-max_model_len // cache.geometry.block_size)
    attention.tables.reserve(hidden.shape[0], pages)
    loop = FusedLoop(
        model,
        attention.kernels,
        positions=max_model_len,
        batch_invariant=options.one_row_per_call,
    )
    prompts = None
    if not options.one_row_per_call:  # there a prompt's rows are computed as decode rows are
        prompts = PromptLoop(
            loop,
            attention,
            cache,
            hidden_size=hidden.shape[1],
            most=max_tokens,
            ends=hidden.shape[0],
        )
    return DeviceExecutor(model, cache, attention, resident, options, loop, prompts)
