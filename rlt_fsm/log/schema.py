"""The private tables of a log database, its marks of identity, and how they are made.

One fact is stored once: an event is one row of `event_log`, and everything else that the public
views show (`views.py`) is a projection of it. Tables are private and may change with
`SCHEMA_VERSION`; the views may not. No connection is opened here.

`event_log.key` is `run_id << RUN_SHIFT | seq`, so that the table's own order is the order of every
run, a run is one range of the key, and no index has to be kept while recording. Columns `a` … `e`
and `extra` are those of `port.EventRow`; `d` holds whole and real numbers, so it takes any type.
"""

from typing import Final

from .views import RUN_OF_ARCHIVED, VIEWS

APPLICATION_ID: Final = 0x726C7466  # "rltf"
SCHEMA_VERSION: Final = 1
ARCHIVED_VERSION: Final = 2  # of a file in which some run begins with a checkpoint
KNOWN_VERSIONS: Final = (1, 2)

RUN_SHIFT: Final = 40  # bits of `event_log.key` below the run: 10^12 events for each run
SEQ_MASK: Final = (1 << RUN_SHIFT) - 1

TABLES: Final = (
    """CREATE TABLE run_log (
    run_id INTEGER PRIMARY KEY,
    started_at TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    engine_version TEXT NOT NULL,
    revision TEXT NOT NULL,
    config TEXT NOT NULL,
    model TEXT NOT NULL,
    workload TEXT
) STRICT""",
    """CREATE TABLE run_end (
    run_id INTEGER PRIMARY KEY,
    outcome TEXT NOT NULL,
    ended_at TEXT NOT NULL
) STRICT""",
    """CREATE TABLE move (
    move_id INTEGER PRIMARY KEY,
    "trigger" TEXT NOT NULL,
    status_from TEXT,
    status_to TEXT,
    work_from TEXT,
    work_to TEXT,
    slot_from TEXT,
    slot_to TEXT,
    kv_from TEXT,
    kv_to TEXT
) STRICT""",
    # `move` by machine, so that `transition` is one scan of the events in their order.
    """CREATE TABLE move_edge (
    move_id INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    machine TEXT NOT NULL,
    source TEXT,
    dest TEXT,
    PRIMARY KEY (move_id, ordinal)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE request_ref (
    run_id INTEGER NOT NULL,
    ref INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (run_id, ref)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE event_log (
    key INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    ticket INTEGER,
    t_ns INTEGER NOT NULL,
    ref INTEGER,
    move INTEGER NOT NULL,
    blocks INTEGER,
    cause INTEGER,
    reason TEXT,
    a INTEGER,
    b INTEGER,
    c INTEGER,
    d ANY,
    e INTEGER,
    extra TEXT
) STRICT""",
    """CREATE TABLE step_log (
    run_id INTEGER NOT NULL,
    step INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    ticket INTEGER,
    waiting INTEGER NOT NULL,
    slots_held INTEGER NOT NULL,
    blocks_free INTEGER NOT NULL,
    blocks_prefix_only INTEGER NOT NULL,
    host_blocks INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID""",
)

# Finds how often an id was used. A file of an earlier version gets it when it is next written to.
REQUEST_INDEX: Final = (
    "CREATE INDEX IF NOT EXISTS request_by_id ON request_ref (run_id, request_id, generation)"
)

# What a run that begins with a checkpoint needs; `port.Checkpoint`. In `recovered_run` are runs of
# which a `recover` was taken away: what the `run` view says of them depends on it.
BEGIN_LATER: Final = (
    """CREATE TABLE IF NOT EXISTS checkpoint (
    run_id INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB NOT NULL,
    engine TEXT NOT NULL,
    audit TEXT NOT NULL,
    archive TEXT NOT NULL
) STRICT""",
    "CREATE TABLE IF NOT EXISTS recovered_run (run_id INTEGER PRIMARY KEY) STRICT",
    "DROP VIEW IF EXISTS run",
    f"CREATE VIEW run AS\n{RUN_OF_ARCHIVED}",
    f"PRAGMA user_version = {ARCHIVED_VERSION}",
)

# What turns an empty database into a log. The marks come last: they stand only on a whole schema.
CREATE: Final = (
    *TABLES,
    *(f"CREATE VIEW {name} AS\n{select}" for name, select in VIEWS.items()),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
