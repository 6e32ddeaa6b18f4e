"""Logs as another engine would leave them: plain tables of the public names, copied from a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path

from rlt_fsm.log.schema import VIEWS


def foreign_copy(
    log: Path, *, without: Collection[str] = (), tables: Collection[str] = tuple(VIEWS)
) -> Path:
    """A copy beside `log` that has only what its public views show.

    `without` names columns (`event.cause`) and tables (`step`) that the copy lacks.
    """
    path = log.with_name(f"foreign-{len(list(log.parent.iterdir()))}.db")
    with sqlite3.connect(path) as db:
        db.execute("ATTACH ? AS own", (str(log),))
        for view in tables:
            if view not in without:
                db.execute(f"CREATE TABLE {view} AS SELECT * FROM own.{view}")
        for name in without:
            table, _, column = name.partition(".")
            if column:
                db.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')
    db.close()
    return path
