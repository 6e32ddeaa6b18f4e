"""The public views as Parquet files, one for each, in a folder: the columns and values of the log.

pyarrow writes them, and is loaded here alone.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlt_fsm.errors import LogUnavailable, RltError
from rlt_fsm.log.view_columns import VIEW_COLUMNS, Kind
from rlt_fsm.log.view_reader import ViewReader

from .target import named, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]

ROWS_IN_A_GROUP: Final = 65_536
INSTALL: Final = "pip install 'rlt-fsm[parquet]'"


def export_parquet(
    views: ViewReader,
    run_id: int,
    folder: Path,
    *,
    told: Callable[[str, int], None] = lambda _view, _rows: None,
    rows_in_a_group: int = ROWS_IN_A_GROUP,
) -> dict[str, int]:
    """Write every view that the log has to `folder`/VIEW.parquet; the rows of each.

    `told` is called now and then with (view, its rows so far).

    Raises:
        RltError: pyarrow is not installed.
        LogUnavailable: the folder cannot be written, or a value is not of its column's kind.
    """
    need_pyarrow()
    with named(folder):
        folder.mkdir(exist_ok=True)
    written = {}
    for view in views.names():
        chunks = _chunks(views.rows(view, run_id), rows_in_a_group)
        path = folder / f"{view}.parquet"
        written[view] = _write(chunks, view, path, partial(told, view))
    return written


def need_pyarrow() -> None:
    """Raise RltError, with what to install, where pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415  # an extra, loaded where it is wanted
    except ImportError as error:
        raise RltError(f"Parquet needs pyarrow, which is not installed: {INSTALL}") from error


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Rows by the group; at least one group, which may be empty."""
    chunk = list(islice(rows, size))
    yield chunk
    while chunk := list(islice(rows, size)):
        yield chunk


def _write(chunks: Iterator[list[Row]], view: str, path: Path, told: Callable[[int], None]) -> int:
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415  # the same

    schema = _schema(VIEW_COLUMNS[view])
    done = 0
    with (
        whole_file(path) as part,
        ParquetWriter(part, schema, compression="zstd") as writer,
    ):
        for chunk in chunks:
            writer.write_table(_table(chunk, schema, view))
            done += len(chunk)
            told(done)
    return done


def _table(rows: list[Row], schema: "pa.Schema", view: str) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415  # the same

    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        try:
            arrays.append(pa.array(values, type=field.type))
        except pa.ArrowException as error:
            raise LogUnavailable(
                f"{view}.{field.name} holds a value that is no {field.type} ({error}): "
                "export it as jsonl"
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _schema(columns: dict[str, Kind]) -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415  # the same

    types = {"whole": pa.int64(), "real": pa.float64(), "text": pa.string()}
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])
