"""All launchers under one roof; `twins` has the same names for devices without Triton."""

from .decode_attention import decode_and_write, decode_attention
from .embedding import embed_tokens
from .exit_fill import fill_exits
from .exit_routing import route_exits
from .kv_write import write_kv
from .norms import add_norms, gather_norm, silu_mul
from .prefill_attention import prefill_attention
from .sampling import sample_tokens
from .skinny import skinny_linear, skinny_silu

__all__ = [
    "add_norms", "decode_and_write", "decode_attention", "embed_tokens", "fill_exits",
    "gather_norm", "prefill_attention", "route_exits", "sample_tokens", "silu_mul", "skinny_linear",
    "skinny_silu", "write_kv",
]  # fmt: skip
