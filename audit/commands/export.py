"""`rlt-audit export`: a run for other tools: Perfetto, Parquet, lines of JSON."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from audit.exporting import TimeAxis, export_jsonl, export_parquet, export_trace
from audit.exporting.parquet import need_pyarrow
from audit.exporting.target import STDOUT, refuse_the_log, written
from audit.reader import open_log
from rlt_fsm.errors import LogError
from rlt_fsm.log.view_reader import ViewReader
from rlt_fsm.wording import counted

from .common import ProgressLine, mistakes_in_one_sentence, print_json

HELP = """Export a run for other tools: a trace to look at, tables to compute with, lines to pipe.

Example: rlt-audit export run.db --format perfetto -o trace.json

perfetto: a trace for ui.perfetto.dev, with lanes for the engine, the tickets in flight and every
request. parquet: a folder with one file for each public view (needs rlt-fsm[parquet]). jsonl: one
line for each event, with the columns of the view `event`. A file appears once it is whole.

Exit status: 0, or 2 where the log cannot be read or the export not be written.
"""


class Format(StrEnum):
    """What can be written."""

    PERFETTO = "perfetto"
    PARQUET = "parquet"
    JSONL = "jsonl"


UNIT: Final = {Format.PERFETTO: "event", Format.PARQUET: "row", Format.JSONL: "event"}


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; `rows` by view for parquet, the events shown for the others."""

    run_id: int
    format: Format
    out: str
    rows: dict[str, int]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="export", help=HELP)(_export)


def _export(
    db: Annotated[str, typer.Argument(help="The log's file.", metavar="DB")],
    kind: Annotated[
        Format, typer.Option("--format", help="perfetto, parquet or jsonl.", metavar="FORMAT")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="FILE",
            help="Write here; for parquet a folder. For the others - is standard output.",
        ),
    ],
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    axis: Annotated[
        TimeAxis,
        typer.Option(
            "--time", metavar="AXIS",
            help="perfetto: clock, or steps (a millisecond each, the same whenever it is run).",
        ),
    ] = TimeAxis.CLOCK,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Tell as JSON what was written.")] = False,
) -> None:  # fmt: skip
    with mistakes_in_one_sentence("no half file is left"), ProgressLine() as progress:
        exported = _Export(db, kind, out, axis, progress).of(run)
    if as_json and out != STDOUT:
        print_json(exported)
    elif out != STDOUT:
        typer.echo(render(exported))


class _Export:
    """One export as it was asked for."""

    def __init__(
        self, db: str, kind: Format, out: str, axis: TimeAxis, progress: ProgressLine
    ) -> None:
        if kind == Format.PARQUET:
            if out == STDOUT:
                raise LogError("parquet is a folder of files: give -o the name of a folder")
            need_pyarrow()
        if axis != TimeAxis.CLOCK and kind != Format.PERFETTO:
            raise LogError(f"--time is for perfetto: {kind} tells both step and t_ns")
        refuse_the_log(out, db)
        self._db, self._kind, self._out, self._axis = db, kind, out, axis
        self._progress = progress

    def of(self, run_id: int | None) -> Exported:
        """Export a run, or the newest."""
        with open_log(self._db) as log:
            run = log.run(log.newest() if run_id is None else run_id)
            number, events = run.info.run_id, run.info.last_seq
            if self._kind == Format.PERFETTO:
                with written(self._out) as file:
                    done = export_trace(
                        run, file, axis=self._axis, told=lambda read: self._progress(read, events)
                    )
                return self._told(number, {"event": done})
        with ViewReader(self._db) as views:
            if self._kind == Format.PARQUET:
                rows = export_parquet(views, number, Path(self._out), told=self._tell_rows)
                return self._told(number, rows)
            with written(self._out) as file:
                done = export_jsonl(
                    views, number, file, told=lambda read: self._progress(read, events)
                )
            return self._told(number, {"event": done})

    def _told(self, run_id: int, rows: dict[str, int]) -> Exported:
        return Exported(run_id=run_id, format=self._kind, out=self._out, rows=rows)

    def _tell_rows(self, view: str, rows: int) -> None:
        self._progress.show(f"{view}: {rows:,} rows written")


def render(exported: Exported) -> str:
    """One line on what was written."""
    what = counted(exported.total, UNIT[exported.format])
    where = f"{exported.out} ({exported.format})"
    return f"run {exported.run_id}: {what} written to {where}"
