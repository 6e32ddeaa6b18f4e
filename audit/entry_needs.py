"""Whether a waiting request could have run, as far as a log can prove it.

Needs are counted from above and what can be had from below, so that "it could have run" is never
said of a request that an engine was right to leave waiting. No rules live here.
"""

from .facts import BlockData
from .recount import Recount


class EntryNeeds:
    """What waiting requests must find in blocks to enter or resume, at this moment."""

    def __init__(self, recount: Recount) -> None:
        self._recount = recount

    def need(self, ref: int) -> int:
        """At most so many blocks must be had before it can run; pages it could share count too.

        All that it may ever reference; where blocks are taken as they are needed and preemption can
        find more, those of its prefill. Where it keeps its KV, on the device or the host, those up
        to its next token; the ones that it holds on the device are had.
        """
        recount = self._recount
        if recount.kv[ref] == "NONE":
            return recount.required_blocks(self._reserved_tokens(ref))
        next_row = recount.required_blocks(self._reserved_tokens(ref, next_row=1))
        if recount.kv[ref] == "OFFLOADED":
            return max(recount.blocks.host.get(ref, 0), next_row)
        return max(0, next_row - len(recount.blocks.owned[ref]))

    def claimed_by(self, data: BlockData) -> int:
        """How many obtainable blocks an `admit` or `resume` laid claim to, before it is counted.

        Pages that it shares with a running request are nobody's to give.
        """
        blocks = max(len(data.take) + len(data.share), data.need or 0)
        return blocks - self._recount.blocks.in_use(data.share)

    def could_run(self, ref: int, claimed: int) -> bool:
        """Whether it could take the slot, and the blocks, of one that enters and claims `claimed`.

        Either it needs no more than that one, or it finds what it needs beside the growth that is
        promised to running requests and the watermark.
        """
        need = self.need(ref)
        return need <= claimed or need <= self._unpromised()

    def _unpromised(self) -> int:
        """At least so many blocks can be had and are nobody's, also not by promise."""
        recount, cache = self._recount, self._recount.config.cache
        if cache.num_blocks is None:
            return -1
        is_busy = bool(recount.slot_holders)
        watermark = int(cache.watermark_ratio * cache.num_blocks) if is_busy else 0
        obtainable = cache.num_blocks - recount.blocks.referenced
        return obtainable - watermark - self._promised()

    def _promised(self) -> int:
        """Blocks that running requests may take for their next row, or need not preempt for."""
        recount = self._recount
        if not recount.config.cache.incremental_allocation:
            return 0
        owned = recount.blocks.owned
        return sum(
            max(
                0, recount.required_blocks(self._reserved_tokens(ref, next_row=1)) - len(owned[ref])
            )
            for ref in recount.slot_holders
        )

    def _reserved_tokens(self, ref: int, *, next_row: int = 0) -> int:
        recount = self._recount
        request = recount.requests[ref]
        if request is None:
            return 0
        config = recount.config
        if config.cache.incremental_allocation and config.scheduler.enable_preemption:
            replayed = max(0, recount.scheduled_outputs[ref] - 1)
            return request.prompt_len + replayed + next_row
        return request.capacity
