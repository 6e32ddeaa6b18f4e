"""The log page: views and columns from the schema, meanings from `column_words.py`.

A column without a meaning, or a meaning without a column, stops the generator.
"""

import sqlite3

from rlt_fsm.log.schema import APPLICATION_ID, CREATE, RUN_SHIFT, SCHEMA_VERSION
from rlt_fsm.log.views import VIEWS

from .column_words import COLUMNS, DATA, VIEW_OF
from .markdown import Block, code, table


def columns() -> dict[str, list[str]]:
    """The public views of a fresh log and their columns."""
    connection = sqlite3.connect(":memory:")
    for statement in CREATE:
        connection.execute(statement)
    found = {
        view: [row[1] for row in connection.execute(f'PRAGMA table_info("{view}")')]
        for view in VIEWS
    }
    connection.close()
    return found


def _views() -> str:
    sections = []
    for view, names in columns().items():
        meanings = COLUMNS[view]
        assert names == list(meanings), f"{view}: {names} in the schema, {list(meanings)} described"
        rows = [[code(name), meanings[name]] for name in names]
        parts = [f"### {view}", VIEW_OF[view], table(["column", "meaning"], rows)]
        sections.append("\n\n".join(parts))
    return "\n\n".join(sections)


def _data() -> str:
    return table(["trigger", "`data`"], [[code(trigger), text] for trigger, text in DATA.items()])


def _marks() -> str:
    return (
        f'`PRAGMA application_id` is {APPLICATION_ID} (`0x{APPLICATION_ID:08x}`, "rltf") and '
        f"`PRAGMA user_version` is the schema version, {SCHEMA_VERSION}. A run's events are one "
        f"range of a key that holds the run above bit {RUN_SHIFT}, so that `WHERE run_id = N` "
        "reads that run alone."
    )


BLOCKS: dict[str, Block] = {"log-views": _views, "log-data": _data, "log-marks": _marks}
