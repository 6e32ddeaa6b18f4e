"""SimKV: what a real KV cache would refuse, checked with counters instead of tensors.

It follows every request by its own bookkeeping, from rows alone, and asserts that a row's history
was written, that blocks and state rows have one owner, and that snapshots and releases come in
pairs. A failed assertion means that the engine asked for the impossible.
"""

from rlt_fsm.batch import Batch, BlockTable, RequestSpec, Row
from rlt_fsm.states import WorkKey

Key = tuple[str, int]


class _Held:
    """One resident request.

    `written` counts the positions whose KV is final in every plane; `loops_done` those loops that
    position `written` has finished; `last_token` is the last one sampled, -1 before. `table` is
    the block table last checked.
    """

    __slots__ = ("last_token", "loops_done", "preluded", "spec", "table", "written")

    def __init__(self, spec: RequestSpec) -> None:
        self.spec = spec
        self.written = 0
        self.loops_done = 0
        self.preluded = False
        self.last_token = -1
        self.table: BlockTable = ()


class SimKV:
    """The written history of every resident request, and who owns which block."""

    def __init__(self, block_size: int, planes: int, depths: int) -> None:
        self._block_size = block_size
        self._planes = planes
        self._depths = depths
        self._held: dict[int, _Held] = {}  # by state row
        self._row_of: dict[Key, int] = {}
        self._owner: dict[int, Key] = {}  # by block
        self._on_host: dict[Key, _Held] = {}
        self._released: set[Key] = set()

    # ---- rows --------------------------------------------------------------------------------

    def run(self, batch: Batch) -> None:
        """Check a batch's rows and write what they write."""
        for row in batch.rows:
            held = self._held.get(row.state_row)
            if held is None or held.spec is not row.spec:
                held = self._meet(row.spec, row.state_row)
            if held.table is not row.block_table:
                self._check_table(held, row.block_table)
            self._advance(held, row)

    def sampled(self, batch: Batch, token_ids: list[int]) -> None:
        """Coda rows sampled these tokens: the next preludes must feed them."""
        for row, token in zip(batch.rows, token_ids, strict=True):
            self._held[row.state_row].last_token = token

    def _advance(self, held: _Held, row: Row) -> None:
        start, work = row.token_start, row.work
        if work is WorkKey.DECODE_RECURRENT:
            assert held.preluded, f"{_name(held)}: a loop without its prelude"
            assert start == held.written, self._gap(held, row)
            assert row.depth == held.loops_done, (
                f"{_name(held)}: loop {row.depth} where {held.loops_done} was due"
            )
            assert held.loops_done < self._depths, f"{_name(held)}: more loops than the model has"
            held.loops_done += 1
        elif work is WorkKey.DECODE_CODA:
            if start == held.written:  # the token leaves the loop: deeper planes take its KV
                assert held.loops_done > 0, f"{_name(held)}: a coda before any loop"
                held.written += 1
            assert start == held.written - 1, self._gap(held, row)
            held.preluded = False
            held.loops_done = 0
        elif work is WorkKey.DECODE_PRELUDE:
            assert start == held.written, self._gap(held, row)
            assert row.last_token == held.last_token or held.last_token < 0, (
                f"{_name(held)}: token {row.last_token} fed where {held.last_token} was sampled"
            )
            held.preluded = True
            held.loops_done = 0
        elif work is WorkKey.PROMPT_ATOMIC or (
            work is WorkKey.PROMPT_RECURRENT and row.depth == self._depths - 1
        ):
            assert start == held.written, self._gap(held, row)
            held.written += row.token_count
        last = (row.token_start + row.token_count - 1) // self._block_size
        assert last < len(row.block_table[0]), (
            f"{_name(held)}: position {row.token_start + row.token_count - 1} has no block"
        )

    def _gap(self, held: _Held, row: Row) -> str:
        return (
            f"{_name(held)}: {row.work} at position {row.token_start}, {held.written} are written"
        )

    def _meet(self, spec: RequestSpec, state_row: int) -> _Held:
        """The request behind a row, seen for the first time since admission or restore."""
        key = (spec.request_id, spec.generation)
        assert key not in self._on_host, f"{key} runs while its KV is on the host"
        held = self._held.get(state_row)
        if held is None:
            assert key not in self._row_of, f"{key} runs in two state rows"
            self._released.discard(key)  # a rewound request begins anew
            held = _Held(spec)
            self._place(key, held, state_row)
        assert (held.spec.request_id, held.spec.generation) == key, (
            f"state row {state_row} of {_name(held)} runs {key}"
        )
        held.spec = spec
        return held

    def _check_table(self, held: _Held, table: BlockTable) -> None:
        """Every block of a changed table is owned by nobody else; earlier blocks stay."""
        key = (held.spec.request_id, held.spec.generation)
        assert len(table) == self._planes, f"{key}: {len(table)} planes, not {self._planes}"
        for plane, blocks in enumerate(table):
            known = held.table[plane] if held.table else ()
            assert blocks[: len(known)] == known, f"{key}: blocks of plane {plane} were exchanged"
            for block in blocks[len(known) :]:
                owner = self._owner.setdefault(block, key)
                assert owner == key, f"block {block} of {owner} is also in the table of {key}"
        held.table = table

    # ---- requests ----------------------------------------------------------------------------

    def release(self, spec: RequestSpec, state_row: int) -> None:
        """Forget a request; it may never have run, or be on the host."""
        key = (spec.request_id, spec.generation)
        assert key not in self._released, f"{key} is released twice"
        self._released.add(key)
        self._on_host.pop(key, None)
        held = self._held.get(state_row)
        if held is not None and (held.spec.request_id, held.spec.generation) == key:
            self._remove(key, held)
        assert key not in self._row_of, f"{key} is released from state row {state_row}, not its own"

    def snapshot(self, spec: RequestSpec, state_row: int, block_table: BlockTable) -> None:
        """Move a resident request to the host."""
        key = (spec.request_id, spec.generation)
        assert key not in self._on_host, f"{key} is snapshot twice"
        held = self._meet(spec, state_row)
        self._check_table(held, block_table)
        self._remove(key, held)
        self._on_host[key] = held

    def restore(self, spec: RequestSpec, state_row: int, block_table: BlockTable) -> None:
        """Bring a request back from the host."""
        key = (spec.request_id, spec.generation)
        held = self._on_host.pop(key, None)
        assert held is not None, f"{key} is restored without a snapshot"
        assert state_row not in self._held, f"{key} is restored into a state row in use"
        self._place(key, held, state_row)
        self._check_table(held, block_table)

    def _place(self, key: Key, held: _Held, state_row: int) -> None:
        self._held[state_row] = held
        self._row_of[key] = state_row

    def _remove(self, key: Key, held: _Held) -> None:
        del self._held[self._row_of.pop(key)]
        for blocks in held.table:
            for block in blocks:
                del self._owner[block]
        held.table = ()


def _name(held: _Held) -> str:
    return f"{held.spec.request_id}#{held.spec.generation}"
