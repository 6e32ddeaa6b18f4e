"""Finds the cycle of a livelock: two steps that leave a run in the same state.

Asked only about steps that bring no progress, so a run that gets on pays nothing for it. No rules
live here: L2 reports.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from rlt_fsm.machines import NONE
from rlt_fsm.states import WorkKey

from .recount import Recount


class Moment(msgspec.Struct, frozen=True):
    """The end of one step: its last seq, the batches of each key so far, and the keys ready."""

    step: int
    seq: int
    batches: dict[WorkKey, int]
    ready: list[WorkKey]


class Cycle(msgspec.Struct, frozen=True):
    """`length` steps after `first_step`, whose state they end in again.

    `batches` counts those of each key in the cycle; `starving` are the keys that somebody has ready
    after one of its steps and that get none.
    """

    first_step: int
    length: int
    members: list[str]
    batches: dict[str, int]
    starving: list[str]


class Stall:
    """The states since a run last progressed, or since something came from outside."""

    def __init__(self, recount: Recount) -> None:
        self._recount = recount
        self._seen: dict[bytes, Moment] = {}

    def forget(self) -> None:
        """Something that the state does not tell has changed: no earlier state counts."""
        if self._seen:
            self._seen = {}

    def cycle_at(self, step: int, seq: int, live: Iterable[int]) -> Cycle | None:
        """The cycle that ends with this step, if its state was there before and events led back."""
        live = list(live)
        tallies = self._recount.ready.by_key
        now = Moment(
            step,
            seq,
            batches={key: tally.batches for key, tally in tallies.items()},
            ready=[key for key, tally in tallies.items() if tally.ready],
        )
        digest = blake2b(msgspec.msgpack.encode(self._state(live)), digest_size=16).digest()
        before = self._seen.setdefault(digest, now)
        latest = self._recount.latest_seq
        members = [ref for ref in live if latest.get(ref, 0) > before.seq]
        if not members:  # nothing happened: it waits for something
            return None
        batches = {key: now.batches[key] - count for key, count in before.batches.items()}
        in_cycle = [moment for moment in self._seen.values() if moment.step >= before.step]
        ready = {key for moment in in_cycle for key in moment.ready}
        return Cycle(
            first_step=before.step,
            length=step - before.step,
            members=[self._recount.name(ref) for ref in members],
            batches={key.value: count for key, count in batches.items() if count},
            starving=[key.value for key in WorkKey if key in ready and not batches[key]],
        )

    # ---- the state ---------------------------------------------------------------------------

    def _state(self, live: list[int]) -> list[object]:
        """All that decides what comes next, without numbers that only ever grow."""
        recount, ledger = self._recount, self._recount.blocks
        tallies = recount.ready.by_key.values()
        by_recency = sorted(tallies, key=lambda tally: tally.last_batch, reverse=True)
        scheduler = recount.config.scheduler
        enough = scheduler.max_prefill_batches_before_decode or 1
        return [
            [self._request(ref) for ref in live],
            [list(tally.ready) for tally in tallies],
            [tally.key for tally in by_recency],
            by_recency[0].last_batch == by_recency[1].last_batch,  # the last batch was mixed
            min(recount.prompt_batches, enough),
            [(ticket.state, list(ticket.refs)) for ticket in recount.in_flight.values()],
            (ledger.referenced, ledger.prefix_only, ledger.host_blocks),
        ]

    def _request(self, ref: int) -> tuple[object, ...]:
        recount = self._recount
        limit = recount.config.scheduler.max_admission_bypasses
        passes = recount.passes.get(ref, 0)
        progress = recount.progress.get(ref) if recount.kv[ref] != NONE else None
        return (
            ref,
            recount.status[ref],
            recount.work[ref],
            recount.slot[ref],
            recount.kv[ref],
            len(recount.blocks.owned[ref]),
            recount.blocks.host.get(ref, 0),
            recount.outputs[ref],
            passes if limit is None else min(passes, limit),
            None if progress is None else progress.frontiers,
        )
