"""How launches are cut: plain arithmetic, without Triton."""

from .paging import power_of_two


def choose_splits(rows: int, kv_heads: int, processors: int) -> int:
    """Programs per row and KV head that fill the device: about eight per multiprocessor."""
    wanted = max(1, 8 * processors // max(1, rows * kv_heads))
    return min(16, power_of_two(wanted + 1) // 2)
