"""Reads the public views of a log file row by row, as any SQLite client would: for exports.

All views are read in one snapshot, so that they tell of the same moment of a run that goes on.
"""
# ruff: noqa: S608  # only names of the contract go into the texts

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .event_log import BUSY_TIMEOUT_MS
from .foreign_log import read_only
from .schema import APPLICATION_ID
from .sql_errors import translated
from .view_columns import VIEW_COLUMNS

ROWS_AT_ONCE: Final = 2048

# What another engine's rows are put in order by; our views come in order.
_ORDER: Final = {
    "run": "run_id",
    "request": "submitted_seq",
    "batch": "ticket",
    "batch_row": 'ticket, "row"',
    "step": "step",
}


class ViewReader:
    """The public views of one file; a context manager.

    Raises:
        LogError: the file cannot be opened or read.
    """

    def __init__(self, path: str | Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._name = str(path)
        self._connection = read_only(path, busy_timeout_ms)
        try:
            with translated(self._name):
                self._connection.execute("BEGIN")
                ((mark,),) = self._connection.execute("PRAGMA application_id").fetchall()
        except BaseException:
            self.close()
            raise
        self._is_ours = mark == APPLICATION_ID

    def names(self) -> list[str]:
        """The public views that the file has, in the order of the contract."""
        return [view for view in VIEW_COLUMNS if self._columns_of(view)]

    def rows(self, view: str, run_id: int) -> Iterator[tuple[Any, ...]]:
        """A run's rows of a view, in the order of the log, columns as in `VIEW_COLUMNS`.

        A column that another engine's log lacks is None. An unknown run has no rows.
        """
        has = self._columns_of(view)
        columns = ", ".join(
            f'"{name}"' if name in has else f'NULL AS "{name}"' for name in VIEW_COLUMNS[view]
        )
        order = "" if self._is_ours else f" ORDER BY {_ORDER.get(view, 'seq')}"
        return self._fetched(f'SELECT {columns} FROM "{view}" WHERE run_id = ?{order}', run_id)

    def _fetched(self, sql: str, run_id: int) -> Iterator[tuple[Any, ...]]:
        with translated(self._name):
            cursor = self._connection.execute(sql, (run_id,))
        while True:
            with translated(self._name):
                rows = cursor.fetchmany(ROWS_AT_ONCE)
            if not rows:
                return
            yield from rows

    def _columns_of(self, view: str) -> frozenset[str]:
        sql = "SELECT name FROM pragma_table_info(?)"
        with translated(self._name):
            return frozenset(name.lower() for (name,) in self._connection.execute(sql, (view,)))

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
