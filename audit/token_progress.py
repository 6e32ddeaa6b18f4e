"""How far the tokens of one request have come, counted from the rows that batches were given.

Written by S7, which judges every row against it; read by L2. No rules live here.
"""


class TokenProgress:
    """What of one request has been given to batches so far. Token ranges are half-open."""

    __slots__ = (
        "done", "exits", "is_replayed", "last", "loops", "position", "preluded", "prompt_end",
        "was_rewound",
    )  # fmt: skip

    def __init__(self, prompt_len: int, cached_tokens: int, depths: int) -> None:
        self.prompt_end = prompt_len  # positions that prompt rows compute
        self.preluded = cached_tokens  # tokens embedded (PROMPT_ATOMIC: done at every depth)
        self.done = [cached_tokens] * depths  # split prefill, by depth: tokens computed there
        self.position = prompt_len - 1  # whose hidden state the next coda reads
        self.loops = 0  # that the token at `position` has run
        self.exits: list[int] = []  # exit depth by output idx, as `enqueue` to DECODE_CODA told it
        self.was_rewound = False  # so that rows may be replayed
        self.is_replayed = False  # the last prompt row computed again what a rewind threw away
        self.last = (0, 0)  # depth and tokens of the last prompt row, should its batch fail

    @property
    def frontiers(self) -> tuple[object, ...]:
        """All of it that tells what is computed: two requests with the same are equally far."""
        return (self.prompt_end, self.preluded, tuple(self.done), self.position, self.loops)
