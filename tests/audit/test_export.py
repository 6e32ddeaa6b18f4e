"""`rlt-audit export`: files that tell what the views tell, whole or not at all."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest
from foreign import foreign_copy
from real_runs import run_to_file
from reseal import Tampered
from typer.testing import CliRunner, Result

from audit.cli import app
from audit.exporting import export_jsonl, export_parquet
from audit.exporting.target import written
from rlt_fsm import Engine, EventLog, LogError, SamplingParams
from rlt_fsm.log.view_columns import VIEW_COLUMNS
from rlt_fsm.log.view_reader import ViewReader
from runner.sim import SimRunner


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *(str(argument) for argument in arguments)])


def rows_of(path: Path, view: str, run: int = 1) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        rows = db.execute(f'SELECT * FROM "{view}" WHERE run_id = ?', (run,)).fetchall()
    db.close()
    return rows


@pytest.fixture
def log(preempting: Callable[..., Tampered]) -> Path:
    return preempting("urgent_run").path


# ---- lines of JSON -------------------------------------------------------------------------------


def test_each_line_is_an_event_with_the_columns_of_the_view(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    result = export(log, "--format", "jsonl", "-o", out)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    events = [dict(zip(VIEW_COLUMNS["event"], row, strict=True)) for row in rows_of(log, "event")]
    for event in events:
        event["data"] = None if event["data"] is None else json.loads(event["data"])
    assert lines == events
    assert result.stdout == f"run 1: {len(events)} events written to {out} (jsonl)\n"


def test_a_dash_writes_to_standard_output_and_nothing_else(log: Path, tmp_path: Path) -> None:
    export(log, "--format", "jsonl", "-o", tmp_path / "events.jsonl")
    assert (
        export(log, "--format", "jsonl", "-o", "-").stdout
        == (tmp_path / "events.jsonl").read_text()
    )


def test_data_that_is_no_json_in_another_engines_log_stays_a_text(log: Path, tmp_path: Path):
    copy = foreign_copy(log)
    with sqlite3.connect(copy) as db:
        db.execute("UPDATE event SET data = 'no { json' WHERE seq = 1")
        db.execute("UPDATE event SET data = '{\n\"a\": 1\n}' WHERE seq = 2")
    db.close()
    with ViewReader(copy) as views, written(str(tmp_path / "events.jsonl")) as file:
        export_jsonl(views, 1, file)
    first, second = (tmp_path / "events.jsonl").read_text().splitlines()[:2]
    assert json.loads(first)["data"] == "no { json"
    assert json.loads(second)["data"] == {"a": 1}


# ---- Parquet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEW_COLUMNS)
def test_duckdb_reads_every_view_as_it_is_in_the_log(log: Path, tmp_path: Path, view: str):
    with ViewReader(log) as views:
        written_rows = export_parquet(views, 1, tmp_path / "tables", rows_in_a_group=100)
    relation = duckdb.sql(f"SELECT * FROM '{tmp_path}/tables/{view}.parquet'")
    assert relation.columns == list(VIEW_COLUMNS[view])
    assert relation.fetchall() == rows_of(log, view)
    assert written_rows[view] == len(rows_of(log, view))


def test_polars_reads_the_same(log: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars", reason="DuckDB reads the same files in its stead")
    export(log, "--format", "parquet", "-o", tmp_path / "tables")
    frame = polars.read_parquet(tmp_path / "tables" / "event.parquet")
    assert frame.rows() == rows_of(log, "event")


def test_rows_are_written_a_group_at_a_time(log: Path, tmp_path: Path) -> None:
    with ViewReader(log) as views:
        export_parquet(views, 1, tmp_path / "tables", rows_in_a_group=100)
    meta = pyarrow.parquet.read_metadata(tmp_path / "tables" / "event.parquet")
    sizes = [meta.row_group(place).num_rows for place in range(meta.num_row_groups)]
    assert sizes[:-1] == [100] * (len(sizes) - 1)
    assert sum(sizes) == len(rows_of(log, "event"))


def test_kinds_do_not_depend_on_what_a_run_holds(real_log: Path, log: Path, tmp_path: Path):
    schemas = []
    for place, path in enumerate((real_log, log)):  # with and without refusals, logprobs …
        with ViewReader(path) as views:
            export_parquet(views, 1, tmp_path / str(place))
        schemas.append([pyarrow.parquet.read_schema(tmp_path / str(place) / f"{view}.parquet")
                        for view in VIEW_COLUMNS])  # fmt: skip
    assert schemas[0] == schemas[1]


def test_a_value_of_another_kind_is_named(log: Path, tmp_path: Path) -> None:
    copy = foreign_copy(log)
    with sqlite3.connect(copy) as db:
        db.execute("UPDATE event SET blocks = 'many' WHERE seq = 3")
    db.close()
    result = export(copy, "--format", "parquet", "-o", tmp_path / "tables")
    assert result.exit_code == 2
    assert "event.blocks holds a value that is no int64" in result.stderr
    assert not (tmp_path / "tables" / "event.parquet").exists()


def test_another_engines_log_gives_the_tables_that_it_has(log: Path, tmp_path: Path) -> None:
    copy = foreign_copy(log, without=["block_change", "event.cause"])
    assert export(copy, "--format", "parquet", "-o", tmp_path / "t").exit_code == 0
    assert {path.stem for path in (tmp_path / "t").iterdir()} == set(VIEW_COLUMNS) - {
        "block_change"
    }
    causes = duckdb.sql(f"SELECT DISTINCT cause FROM '{tmp_path}/t/event.parquet'").fetchall()
    assert causes == [(None,)]


def test_without_pyarrow_a_sentence_says_what_to_install(log: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        f"sys.argv = ['rlt-audit', 'export', {str(log)!r}, '--format', 'parquet', '-o', 't']\n"
        "from audit.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: Parquet needs pyarrow, which is not installed: pip install 'rlt-fsm[parquet]'\n"
    )
    assert not (tmp_path / "t").exists()


# ---- what all formats share ----------------------------------------------------------------------


def test_the_newest_run_is_exported_unless_one_is_named(tmp_path: Path) -> None:
    for _ in range(2):
        run_to_file(tmp_path / "run.db")
    for options, run in (((), 2), (("--run", 1), 1)):
        out = tmp_path / f"{run}.jsonl"
        result = export(tmp_path / "run.db", "--format", "jsonl", "-o", out, "--json", *options)
        told = json.loads(result.stdout)
        count = len(rows_of(tmp_path / "run.db", "event", run))
        assert told == {
            "run_id": run, "format": "jsonl", "out": str(out), "rows": {"event": count}
        }  # fmt: skip
        assert {json.loads(line)["run_id"] for line in out.read_text().splitlines()} == {run}


@pytest.mark.parametrize("kind", ["perfetto", "jsonl"])
def test_an_export_takes_the_place_of_the_one_before(log: Path, tmp_path: Path, kind: str):
    out = tmp_path / "out"
    out.write_text("old")
    assert export(log, "--format", kind, "-o", out).exit_code == 0
    assert out.read_text() != "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("old")

    def fail_half_way() -> None:
        with written(str(out)) as file:
            file.write(b"new")
            raise LogError("the disk is gone")

    with pytest.raises(LogError):
        fail_half_way()
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


MISTAKES = [
    (("--format", "jsonl", "-o", "{log}"), "this is the log itself: give another path"),
    (("--format", "perfetto", "-o", "{folder}"), "this is a folder: give the path of a file"),
    (("--format", "jsonl", "-o", "{folder}/no/such"), "cannot be written (No such file"),
    (("--format", "parquet", "-o", "{log}"), "this is the log itself: give another path"),
    (("--format", "parquet", "-o", "-"), "give -o the name of a folder"),
    (("--format", "jsonl", "-o", "{folder}/x", "--time", "steps"), "--time is for perfetto"),
    (("--format", "jsonl", "-o", "{folder}/x", "--run", "7"), "there is no run 7; its runs: 1"),
    (("--format", "csv", "-o", "{folder}/x"), "csv"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    log: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    before = {path: path.read_bytes() for path in log.parent.iterdir()}
    told = [argument.format(log=log, folder=log.parent) for argument in arguments]
    result = export(log, *told)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert {path: path.read_bytes() for path in log.parent.iterdir()} == before


def test_a_log_in_the_middle_of_its_run_is_exported_as_far_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with EventLog.open(path) as log, Engine(SimRunner(), log=log) as engine:
        engine.add_request("a", [1], SamplingParams(max_tokens=1))
        for kind in ("perfetto", "jsonl", "parquet"):
            assert export(path, "--format", kind, "-o", tmp_path / kind).exit_code == 0
        assert len((tmp_path / "jsonl").read_text().splitlines()) == 2
