"""`watch`: checks a run while another process writes it, and says what it finds as it lands.

When to look, and when nothing more will come: reading is `follow.py`'s.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from rlt_fsm.arguments import function, path_text, seconds, whole
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.presence import is_in_use

from .follow import Follower, Found
from .verify import Report

LOOK_EVERY_S: Final = 0.2
PATIENCE_S: Final = 60.0
GONE: Final = "and whoever wrote it is gone"
SILENT: Final = "and nothing was written for {:g} s"
STOPPED: Final = "and was not over when the watch was stopped"

Seen = Callable[[int], None]  # the last seq that was checked


def _nothing(_: object) -> None:
    """Nobody wants to know."""


def watch(
    db: str | os.PathLike[str],
    run: int | None = None,
    *,
    found: Found = _nothing,
    seen: Seen = _nothing,
    patience_s: float = PATIENCE_S,
    look_every_s: float = LOOK_EVERY_S,
) -> Report:
    """Follow one run until it is over; by default the newest there is when there is one.

    `found` is called for each finding as it lands, `seen` after each look. A
    run is over with its `close`; when nobody has its file open any more; or, where that cannot be
    told (a log of another engine, a system other than Linux), when nothing was written for
    `patience_s`. As long a file, or a run in it, is waited for. A KeyboardInterrupt ends it too.

    Raises:
        LogError: no file came, it cannot be read, or it has no such run.
    """
    path = path_text("db", db)
    run = None if run is None else whole("run", run, least=1)
    function("found", found)
    function("seen", seen)
    patience_s, look_every_s = (
        seconds("patience_s", patience_s),
        seconds("look_every_s", look_every_s),
    )
    follower = Follower(path, run, found)
    try:
        why = _follow(path, follower, seen, patience_s=patience_s, look_every_s=look_every_s)
    except KeyboardInterrupt:
        why = STOPPED
    return follower.report(why)


def _follow(
    path: str, follower: Follower, seen: Seen, *, patience_s: float, look_every_s: float
) -> str | None:
    """Look until the run is over; why it is, where it has no end."""
    last_news_s = time.monotonic()
    while True:
        # Asked before the look, so that what a writer left before it went is seen.
        is_held = is_in_use(path)
        try:
            has_news = follower.look()
        except LogUnavailable:
            # A file that is just being made, or let go by its writer, cannot always be opened.
            if time.monotonic() - last_news_s >= patience_s:
                raise
            has_news = False
        seen(follower.checked_seq)
        if follower.is_over:
            return None
        if has_news:
            last_news_s = time.monotonic()
        elif is_held is False and follower.has_begun and not follower.is_foreign:
            return GONE
        elif not is_held and time.monotonic() - last_news_s >= patience_s:
            return SILENT.format(patience_s)
        time.sleep(look_every_s)
