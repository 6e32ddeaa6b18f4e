"""The public views of a log database (contract §4), as SQL. Column names and order are fixed.

Every view reads a run as one range of `event_log.key` (run << 40 | seq), and `run_id` comes from
`run_log`, so that `WHERE run_id = N` reads that run alone. Rows come in the order of the log. JSON
is parsed only where an event carries some.
"""
# ruff: noqa: S608  # only constants of this file go into the texts

from typing import Final

# The events of each run, in order: `r.run_id`, `e.*`, and the event's move `m`.
_KEYS: Final = """run_log AS r
CROSS JOIN event_log AS e ON e.key BETWEEN r.run_id << 40 AND (r.run_id << 40) + 1099511627775"""
_EVENTS: Final = f"{_KEYS}\nCROSS JOIN move AS m ON m.move_id = e.move"
_SEQ: Final = "e.key - (r.run_id << 40)"
_REQUEST: Final = "LEFT JOIN request_ref AS q ON q.run_id = r.run_id AND q.ref = e.ref"

_RECOVERED: Final = """EXISTS (
            SELECT 1 FROM event_log AS e
            WHERE e.key BETWEEN r.run_id << 40 AND (r.run_id << 40) + 1099511627775
            AND e.move = (SELECT move_id FROM move WHERE "trigger" = 'recover')
        )"""
_RUN: Final = f"""SELECT
    r.run_id AS run_id,
    r.started_at AS started_at,
    f.ended_at AS ended_at,
    CASE
        WHEN f.outcome IS NOT NULL THEN f.outcome
        WHEN {_RECOVERED} THEN 'crashed'
        ELSE 'running'
    END AS outcome,
    r.schema_version AS schema_version,
    r.engine_version AS engine_version,
    r.revision AS revision,
    r.config AS config,
    r.model AS model,
    r.workload AS workload,
    coalesce((
        SELECT e.key FROM event_log AS e
        WHERE e.key BETWEEN r.run_id << 40 AND (r.run_id << 40) + 1099511627775
        ORDER BY e.key DESC LIMIT 1
    ) - (r.run_id << 40), 0) AS last_seq,
    (
        SELECT lower(hex(s.digest)) FROM step_log AS s
        WHERE s.run_id = r.run_id ORDER BY s.step DESC LIMIT 1
    ) AS digest
FROM run_log AS r LEFT JOIN run_end AS f ON f.run_id = r.run_id"""

# Of a file from which events were taken away, a run's `recover` perhaps among them.
RUN_OF_ARCHIVED: Final = _RUN.replace(
    _RECOVERED,
    f"""EXISTS (SELECT 1 FROM recovered_run AS b WHERE b.run_id = r.run_id)
        OR {_RECOVERED}""",
)

# The submit event `s` and the last event `f` of each request are found first, by key alone.
_REQUEST_VIEW: Final = f"""SELECT
    g.run_id AS run_id,
    q.request_id AS request_id,
    q.generation AS generation,
    json_extract(s.extra, '$.prompt_token_ids') AS prompt_token_ids,
    json_array_length(s.extra, '$.prompt_token_ids') AS prompt_len,
    json_extract(s.extra, '$.params.max_tokens') AS max_tokens,
    json_extract(s.extra, '$.params.priority') AS priority,
    json_extract(s.extra, '$.params') AS params,
    g.submit_key - (g.run_id << 40) AS submitted_seq,
    s.step AS submitted_step,
    g.first_output_step AS first_output_step,
    f.step AS finished_step,
    CASE
        WHEN f.key IS NULL THEN NULL
        WHEN g.aborts > 0 THEN 'abort'
        WHEN fm."trigger" = 'transfer_done' THEN 'transferred'
        ELSE json_extract(f.extra, '$.finish_reason')
    END AS finish_reason,
    g.outputs AS outputs,
    g.preemptions AS preemptions
FROM (
    SELECT
        r.run_id AS run_id,
        e.ref AS ref,
        min(CASE WHEN m."trigger" IN ('submit', 'submit_remote') THEN e.key END) AS submit_key,
        min(CASE WHEN m."trigger" = 'output' THEN e.step END) AS first_output_step,
        min(CASE WHEN m.status_to = 'FINISHED' THEN e.key END) AS finish_key,
        sum(m."trigger" = 'abort') AS aborts,
        sum(m."trigger" = 'output') AS outputs,
        sum(m."trigger" IN ('yield', 'offload', 'rewind')) AS preemptions
    FROM {_EVENTS}
    WHERE m."trigger" IN (
        'submit', 'submit_remote', 'output', 'yield', 'offload', 'rewind',
        'finish', 'abort', 'transfer_done'
    )
    GROUP BY r.run_id, e.ref
) AS g
JOIN event_log AS s ON s.key = g.submit_key
LEFT JOIN event_log AS f ON f.key = g.finish_key
LEFT JOIN move AS fm ON fm.move_id = f.move
LEFT JOIN request_ref AS q ON q.run_id = g.run_id AND q.ref = g.ref"""

# An event whose move is unknown is shown with its trigger NULL rather than left out.
_EVENT: Final = f"""SELECT
    r.run_id AS run_id,
    {_SEQ} AS seq,
    e.step AS step,
    e.ticket AS ticket,
    e.t_ns AS t_ns,
    q.request_id AS request_id,
    q.generation AS generation,
    m."trigger" AS "trigger",
    m.status_from AS status_from,
    m.status_to AS status_to,
    m.work_from AS work_from,
    m.work_to AS work_to,
    m.slot_from AS slot_from,
    m.slot_to AS slot_to,
    m.kv_from AS kv_from,
    m.kv_to AS kv_to,
    e.blocks AS blocks,
    e.cause AS cause,
    e.reason AS reason,
    CASE
        WHEN e.extra IS NOT NULL THEN e.extra
        WHEN m."trigger" = 'select' THEN json_object(
            'row', e.a, 'token_start', e.b, 'token_count', e.c, 'depth', e.d, 'replay', e.e)
        WHEN m."trigger" = 'output' THEN json_object(
            'idx', e.a, 'token_id', e.b, 'exit_depth', e.c, 'logprob', e.d)
        WHEN m."trigger" = 'enqueue' AND e.a IS NOT NULL THEN json_object('exit_depth', e.a)
    END AS data
FROM {_KEYS}
LEFT JOIN move AS m ON m.move_id = e.move
{_REQUEST}"""

_TRANSITION: Final = f"""SELECT
    r.run_id AS run_id,
    {_SEQ} AS seq,
    e.step AS step,
    e.ticket AS ticket,
    e.t_ns AS t_ns,
    q.request_id AS request_id,
    q.generation AS generation,
    d.machine AS machine,
    m."trigger" AS "trigger",
    d.source AS source,
    d.dest AS dest
FROM {_EVENTS}
CROSS JOIN move_edge AS d ON d.move_id = e.move
{_REQUEST}"""

# A batch that failed was never completed: its completed_seq and t_completed_ns are NULL.
_BATCH: Final = f"""SELECT
    g.run_id AS run_id,
    g.ticket AS ticket,
    s.step AS step,
    json_extract(s.extra, '$.operation') AS operation,
    (
        SELECT group_concat(work, '+')
        FROM (SELECT value AS work FROM json_each(s.extra, '$.works') ORDER BY value)
    ) AS works,
    json_extract(s.extra, '$.rows') AS "rows",
    json_extract(s.extra, '$.tokens') AS tokens,
    s.reason AS reason,
    g.submit_key - (g.run_id << 40) AS submitted_seq,
    g.complete_key - (g.run_id << 40) AS completed_seq,
    g.retire_key - (g.run_id << 40) AS retired_seq,
    s.t_ns AS t_submitted_ns,
    c.t_ns AS t_completed_ns
FROM (
    SELECT
        r.run_id AS run_id,
        e.ticket AS ticket,
        min(CASE WHEN m."trigger" = 'submit_batch' THEN e.key END) AS submit_key,
        min(CASE WHEN m."trigger" = 'complete_batch' THEN e.key END) AS complete_key,
        min(CASE WHEN m."trigger" = 'retire_batch' THEN e.key END) AS retire_key
    FROM {_EVENTS}
    WHERE m."trigger" IN ('submit_batch', 'complete_batch', 'retire_batch')
    GROUP BY r.run_id, e.ticket
) AS g
JOIN event_log AS s ON s.key = g.submit_key
LEFT JOIN event_log AS c ON c.key = g.complete_key"""

_BATCH_ROW: Final = f"""SELECT
    r.run_id AS run_id,
    e.ticket AS ticket,
    e.a AS "row",
    q.request_id AS request_id,
    q.generation AS generation,
    substr(m.work_from, length('QUEUED:') + 1) AS work,
    e.b AS token_start,
    e.c AS token_count,
    e.d AS depth,
    e.e AS replay
FROM {_EVENTS}
{_REQUEST}
WHERE m."trigger" = 'select'"""

_OUTPUT: Final = f"""SELECT
    r.run_id AS run_id,
    q.request_id AS request_id,
    q.generation AS generation,
    e.a AS idx,
    e.b AS token_id,
    e.c AS exit_depth,
    e.d AS logprob,
    e.step AS step,
    {_SEQ} AS seq
FROM {_EVENTS}
{_REQUEST}
WHERE m."trigger" = 'output'"""

_REFUSAL: Final = f"""SELECT
    r.run_id AS run_id,
    {_SEQ} AS seq,
    e.step AS step,
    q.request_id AS request_id,
    q.generation AS generation,
    json_extract(e.extra, '$.prompt_token_ids') AS prompt_token_ids,
    json_extract(e.extra, '$.params') AS params,
    e.reason AS reason
FROM {_EVENTS}
{_REQUEST}
WHERE m."trigger" = 'refuse'"""

# One row for each kind of change that an event made; a change of no block is none.
_BLOCK_CHANGE: Final = f"""SELECT
    r.run_id AS run_id,
    {_SEQ} AS seq,
    q.request_id AS request_id,
    q.generation AS generation,
    j.key AS change,
    j.value AS blocks
FROM {_EVENTS}
CROSS JOIN json_each(e.extra) AS j
{_REQUEST}
WHERE e.extra IS NOT NULL
AND j.key IN ('take', 'share', 'drop', 'publish', 'evict', 'pin', 'unpin')
AND j.type = 'array'
AND j.value <> '[]'"""

_STEP: Final = """SELECT
    s.run_id AS run_id,
    s.step AS step,
    s.first_seq AS first_seq,
    s.last_seq AS last_seq,
    s.ticket AS ticket,
    s.waiting AS waiting,
    s.slots_held AS slots_held,
    s.blocks_free AS blocks_free,
    s.blocks_prefix_only AS blocks_prefix_only,
    s.host_blocks AS host_blocks,
    lower(hex(s.digest)) AS digest
FROM step_log AS s"""

VIEWS: Final = {
    "run": _RUN,
    "request": _REQUEST_VIEW,
    "event": _EVENT,
    "transition": _TRANSITION,
    "batch": _BATCH,
    "batch_row": _BATCH_ROW,
    "output": _OUTPUT,
    "refusal": _REFUSAL,
    "block_change": _BLOCK_CHANGE,
    "step": _STEP,
}
