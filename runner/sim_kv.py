"""SimKV: what a real KV cache would refuse, checked with counters instead of tensors.

It follows every request by its own bookkeeping, from rows alone, and asserts that a row's history
was written, that blocks and state rows have one owner, and that what is parked, offloaded or
released is so once. A failed assertion means that the engine asked for the impossible.

With prefix caching a request may begin beyond position 0: every page before that must hold exactly
its prompt, written by an earlier request and not taken by anybody since.
"""

from collections.abc import Iterator

from rlt_fsm.batch import Batch, BlockTable, RequestSpec, Row
from rlt_fsm.states import WorkKey

Key = tuple[str, int]


class _Held:
    """One request.

    `written` counts the positions whose KV is final in every plane; `loops_done` those loops that
    position `written` has finished; `last_token` is the last one sampled, -1 before. `table` is
    the block table last checked. `state_row` is None while parked; `pages_on_host` counts the pages
    of a plane that are offloaded, None while the KV is resident. The first `shared_pages` pages of
    each plane came from the prefix cache. `has_begun` with the first row; where the KV went to the
    host before that, what it holds `is_trusted`.
    """

    __slots__ = (
        "has_begun",
        "is_trusted",
        "last_token",
        "loops_done",
        "pages_on_host",
        "preluded",
        "shared_pages",
        "spec",
        "state_row",
        "table",
        "written",
    )

    def __init__(self, spec: RequestSpec) -> None:
        self.spec = spec
        self.written = 0
        self.loops_done = 0
        self.preluded = False
        self.last_token = -1
        self.table: BlockTable = ()
        self.state_row: int | None = None
        self.pages_on_host: int | None = None
        self.shared_pages = 0
        self.has_begun = self.is_trusted = False


class SimKV:
    """The written history of every request, and who owns which block and state row."""

    def __init__(
        self, block_size: int, planes: int, depths: int, *, has_prefix_cache: bool
    ) -> None:
        self._block_size = block_size
        self._has_prefix_cache = has_prefix_cache
        self._planes = planes
        self._depths = depths
        self._held: dict[Key, _Held] = {}
        self._in_row: dict[int, _Held] = {}
        self._owner: dict[int, Key] = {}  # by block; who wrote it and still runs
        self._readers: dict[int, int] = {}  # block → requests that got it from the prefix cache
        self._prefix_in: dict[int, int] = {}  # block → hash of the prompt up to its end

    # ---- rows --------------------------------------------------------------------------------

    def run(self, batch: Batch) -> None:
        """Check a batch's rows and write what they write."""
        for row in batch.rows:
            held = self._in_row.get(row.state_row)
            if held is None or held.spec is not row.spec:
                held = self._meet(row.spec, row.state_row)
            if not held.has_begun:
                self._begin(held, row)
            if held.table is not row.block_table:
                self._check_table(held, row.block_table)
            self._advance(held, row)

    def sampled(self, batch: Batch, token_ids: list[int]) -> None:
        """Coda rows sampled these tokens: the next preludes must feed them."""
        for row, token in zip(batch.rows, token_ids, strict=True):
            self._in_row[row.state_row].last_token = token

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
            self._check_token(held, row.last_token)
            held.preluded = True
            held.loops_done = 0
        elif work is WorkKey.PROMPT_ATOMIC or (
            work is WorkKey.PROMPT_RECURRENT and row.depth == self._depths - 1
        ):
            assert start == held.written, self._gap(held, row)
            held.written += row.token_count
            if self._has_prefix_cache:
                self._remember_prefix(held, start)
        last = (row.token_start + row.token_count - 1) // self._block_size
        assert last < len(row.block_table[0]), (
            f"{_name(held)}: position {row.token_start + row.token_count - 1} has no block"
        )

    def _check_token(self, held: _Held, token: int) -> None:
        """The token that a prelude feeds: the last one sampled, or -1 for "the device has it"."""
        if token < 0:
            assert held.last_token >= 0, f"{_name(held)}: no token was sampled that could be fed"
        else:
            assert token == held.last_token or held.last_token < 0, (
                f"{_name(held)}: token {token} fed where {held.last_token} was sampled"
            )

    def _gap(self, held: _Held, row: Row) -> str:
        return (
            f"{_name(held)}: {row.work} at position {row.token_start}, {held.written} are written"
        )

    def _meet(self, spec: RequestSpec, state_row: int) -> _Held:
        """The request behind a row whose spec was not seen in that state row before."""
        key = _key(spec)
        held = self._held.get(key)
        if held is None:
            held = self._new(spec)
            self._place(held, state_row)
        assert held.state_row is not None, f"{_name(held)} runs while it is parked"
        assert held.state_row == state_row, (
            f"{_name(held)} of state row {held.state_row} runs in state row {state_row}"
        )
        held.spec = spec
        return held

    def _new(self, spec: RequestSpec) -> _Held:
        held = self._held[_key(spec)] = _Held(spec)
        return held

    def _place(self, held: _Held, state_row: int) -> None:
        other = self._in_row.get(state_row)
        assert other is None, f"{_name(held)} gets state row {state_row} of {_name(other)}"
        held.state_row = state_row
        self._in_row[state_row] = held

    # ---- blocks ------------------------------------------------------------------------------

    def _begin(self, held: _Held, row: Row) -> None:
        """A request's first row tells how much of its prompt came from the prefix cache."""
        held.has_begun = True
        if not self._has_prefix_cache or not row.token_start:
            return
        held.written = row.token_start
        if held.is_trusted:
            self._remember_prefix(held, 0)
            return
        assert row.token_start % self._block_size == 0, f"{_name(held)}: part of a page is cached"
        held.shared_pages = row.token_start // self._block_size
        for page, end, blocks in self._pages(held, row.block_table, held.shared_pages):
            prefix = hash(held.spec.prompt_token_ids[:end])
            for block in blocks:
                assert self._prefix_in.get(block) == prefix, (
                    f"{_name(held)}: block {block} does not hold page {page} of its prompt"
                )
                self._readers[block] = self._readers.get(block, 0) + 1

    def _remember_prefix(self, held: _Held, start: int) -> None:
        """Pages that prompt rows from `start` on have filled may be shared from now on."""
        full = min(held.written, len(held.spec.prompt_token_ids)) // self._block_size
        for page, end, blocks in self._pages(held, held.table, full):
            if end > start:
                prefix = hash(held.spec.prompt_token_ids[:end])
                self._prefix_in.update(dict.fromkeys(blocks, prefix))
                assert page >= held.shared_pages, f"{_name(held)} writes a page of the prefix cache"

    def _pages(
        self, held: _Held, table: BlockTable, pages: int
    ) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(page, its end as a position, its block in every plane) of the first `pages` pages."""
        assert pages <= len(table[0]), f"{_name(held)}: {pages} pages where {len(table[0])} are"
        for page in range(pages):
            end = (page + 1) * self._block_size
            yield page, end, tuple(blocks[page] for blocks in table)

    def _check_table(self, held: _Held, table: BlockTable) -> None:
        """Every block of a changed table is nobody else's; earlier blocks stay."""
        key = _key(held.spec)
        assert held.pages_on_host is None, f"{key}: runs while its KV is on the host"
        assert len(table) == self._planes, f"{key}: {len(table)} planes, not {self._planes}"
        for plane, blocks in enumerate(table):
            known = held.table[plane] if held.table else blocks[: held.shared_pages]
            assert blocks[: len(known)] == known, f"{key}: blocks of plane {plane} were exchanged"
            for block in blocks[len(known) :]:
                owner = self._owner.get(block)
                assert owner is None, f"block {block} of {owner} is also in the table of {key}"
                assert block not in self._readers, f"{key} takes block {block} that is still read"
                self._owner[block] = key
                self._prefix_in.pop(block, None)
        held.table = table

    def _free_blocks(self, held: _Held) -> None:
        for blocks in held.table:
            for block in blocks[: held.shared_pages]:
                self._readers[block] -= 1
                if not self._readers[block]:
                    del self._readers[block]
            for block in blocks[held.shared_pages :]:
                del self._owner[block]
        held.table = ()
        held.shared_pages = 0

    # ---- requests ----------------------------------------------------------------------------

    @property
    def requests_held(self) -> int:
        """How many requests were met and not released."""
        return len(self._held)

    def park(self, spec: RequestSpec, state_row: int) -> None:
        """A request gives up its state row; it may never have been in a batch."""
        held = self._meet(spec, state_row)
        del self._in_row[state_row]
        held.state_row = None

    def unpark(self, spec: RequestSpec, state_row: int) -> None:
        """A parked request gets a state row."""
        held = self._held.get(_key(spec))
        assert held is not None, f"{_key(spec)} is unparked without having been parked"
        assert held.state_row is None, f"{_name(held)} is unparked without having been parked"
        self._place(held, state_row)

    def offload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """A request's KV goes to the host, its blocks are free."""
        held = self._held.get(_key(spec)) or self._new(spec)
        assert held.pages_on_host is None, f"{_name(held)} is offloaded twice"
        if held.has_begun:
            self._check_table(held, block_table)
        held.pages_on_host = len(block_table[0])
        self._free_blocks(held)

    def reload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """An offloaded request's KV comes back into as many pages."""
        held = self._held.get(_key(spec))
        pages = None if held is None else held.pages_on_host
        assert held is not None, f"{_key(spec)} is reloaded without having been offloaded"
        assert pages is not None, f"{_name(held)} is reloaded without having been offloaded"
        assert len(block_table[0]) == pages, (
            f"{_name(held)}: {pages} pages come back into {len(block_table[0])}"
        )
        held.pages_on_host = None
        held.is_trusted = not held.has_begun
        self._check_table(held, block_table)
        if self._has_prefix_cache:
            self._remember_prefix(held, 0)

    def release(self, spec: RequestSpec) -> None:
        """Forget a request, wherever it is.

        It may be unknown: never in a batch, or not since a rewind released it.
        """
        held = self._held.pop(_key(spec), None)
        if held is None:
            return
        if held.state_row is not None:
            del self._in_row[held.state_row]
        self._free_blocks(held)


def _key(spec: RequestSpec) -> Key:
    return spec.request_id, spec.generation


def _name(held: _Held) -> str:
    return f"{held.spec.request_id}#{held.spec.generation}"
