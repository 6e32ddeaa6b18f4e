"""What the page holds is what the public views say."""

from __future__ import annotations

import sqlite3

import pytest

import audit

COLUMNS = """(names) => {
    const run = report.runs[0];
    const table = run[names[0]];
    const columns = names.slice(1);
    return Array.from({ length: table.length }, (_, i) => columns.map((name) => table[name][i]));
}"""


@pytest.fixture(scope="module", params=["small", "busy", "large"])
def both(request, opened, logs):
    """(a function that gives columns of the page's table, one that asks the log)."""
    with opened(request.param) as page, sqlite3.connect(logs(request.param)) as db:

        def told(*names: str) -> list[tuple]:
            return [tuple(row) for row in page.evaluate(COLUMNS, list(names))]

        def asked(sql: str) -> list[tuple]:
            return db.execute(sql).fetchall()

        told.page = page
        yield told, asked
    db.close()


def named(page, table: str, *columns: str) -> list[tuple]:
    """Columns of a table with request and step in their own terms."""
    return [tuple(row) for row in page.evaluate(
        """([name, columns]) => {
            const run = report.runs[0];
            const table = run[name];
            return Array.from({ length: table.length }, (_, i) => [
                run.requestNames[table.request[i]],
                ...columns.map((name) => name === "step"
                    ? run.steps.step[table.column[i]] : table[name][i]),
            ]);
        }""", [table, list(columns)])]  # fmt: skip


def test_steps(both):
    told, asked = both
    columns = "step, waiting, slots_held, blocks_free, blocks_prefix_only, host_blocks"
    assert told("steps", *columns.split(", ")) == asked(f"select {columns} from step")


def test_queues_are_as_the_transitions_leave_them(both):
    told, asked = both
    key = "DECODE_RECURRENT"
    by_step = dict(
        asked(f"""select step, sum((dest = 'QUEUED:{key}') - (source = 'QUEUED:{key}'))
        from transition where machine = 'work' group by step""")
    )
    depth, expected = 0, []
    for (step,) in asked("select step from step"):
        depth += by_step.get(step, 0)
        expected.append((depth,))
    assert told("steps", f"queued {key}") == expected


def test_batches(both):
    told, asked = both
    columns = "ticket, rows, tokens, submitted_seq, completed_seq, retired_seq"
    assert told("batches", *columns.split(", ")) == asked(
        f"select {columns} from batch order by ticket"
    )
    words = told.page.evaluate("""(() => { const run = report.runs[0]; const b = run.batches;
        return Array.from({ length: b.length }, (_, i) => [run.steps.step[b.column[i]],
            run.names[b.operation[i]], run.names[b.works[i]], run.names[b.reason[i]]]); })()""")
    assert [tuple(row) for row in words] == asked(
        "select step, operation, works, reason from batch order by ticket"
    )


def test_rows_of_batches(both):
    told, asked = both
    rows = told.page.evaluate("""(() => { const run = report.runs[0]; const r = run.rows;
        return Array.from({ length: r.length }, (_, i) => [run.batches.ticket[r.batch[i]], r.row[i],
            run.requestNames[r.request[i]], run.names[r.work[i]], r.start[i], r.count[i],
            r.depth[i], r.replay[i]]); })()""")
    assert sorted(map(tuple, rows)) == sorted(
        asked("""select ticket, row, request_id, work,
        token_start, token_count, coalesce(depth, -1), replay from batch_row""")
    )


def test_outputs(both):
    told, asked = both
    columns = ("step", "idx", "token", "exit_depth", "seq")
    assert sorted(named(told.page, "outputs", *columns)) == sorted(
        asked("select request_id, step, idx, token_id, exit_depth, seq from output")
    )


def test_requests(both):
    told, asked = both
    rows = told.page.evaluate("""(() => { const run = report.runs[0]; const r = run.requests;
        const step = (column) => (column < 0 ? null : run.steps.step[column]);
        return Array.from({ length: r.length }, (_, i) => [run.requestNames[i], r.prompt_len[i],
            r.max_tokens[i], r.priority[i], r.submitted_seq[i], step(r.submitted[i]),
            step(r.first_output[i]), step(r.ended[i]), run.ends[i], r.outputs[i],
            r.preemptions[i]]); })()""")
    assert sorted(map(tuple, rows)) == sorted(
        asked("""select request_id, prompt_len, max_tokens,
        priority, submitted_seq, submitted_step, first_output_step, finished_step, finish_reason,
        outputs, preemptions from request""")
    )


def test_status_slot_and_kv_of_every_request_after_every_step(both):
    told, asked = both
    for machine, name in (("status", "status"), ("slot", "slot"), ("kv", "kv")):
        page = {}
        for request, step, number in named(told.page, "machines", "step", name):
            page.setdefault(request, {})[step] = number
        names = told.page.evaluate("report.runs[0].names")
        log: dict[str, dict[int, str]] = {}
        for request, step, dest in asked(f"""select request_id, step, coalesce(dest, 'NULL')
                from transition where machine = '{machine}' order by seq"""):
            log.setdefault(request, {})[step] = dest
        for request, dests in log.items():
            for step, dest in dests.items():
                known = max((s for s in page[request] if s <= step), default=None)
                assert names[page[request][known]] == dest, (machine, request, step)


def test_exit_depths_and_waits_in_steps(both):
    told, asked = both
    page = told.page
    bars = [row.split("\t")[:2] for row in page.locator(".bars tbody tr").all_inner_texts()]
    bars = {int(depth): int(count.replace(",", "")) for depth, count in bars}
    depths = dict(asked("select exit_depth, count(*) from output group by 1"))
    assert {depth: count for depth, count in bars.items() if count} == depths
    first = sorted(
        n
        for (n,) in asked("""select first_output_step - submitted_step from request
        where first_output_step is not null""")
    )
    between = sorted(
        n
        for (n,) in asked("""select step - lag(step) over
        (partition by request_id order by idx) as gap from output""")
        if n is not None
    )
    rows = page.locator("#waits table").first.locator("tbody tr").all_inner_texts()
    for text, values in ((rows[0], first), (rows[2], between)):
        cells = [cell.replace(",", "") for cell in text.split("\t")]
        count, p50, most = cells[2], cells[4], cells[-1]
        assert (int(count), int(most)) == (len(values), values[-1])
        assert int(p50) == values[-(-len(values) // 2) - 1]


def test_lanes_show_a_row_of_a_batch_where_there_is_one(both):
    told, asked = both
    page = told.page
    rows = asked("""select b.step, r.request_id, r.work, r.replay from batch_row r
        join batch b using (run_id, ticket)""")[::5]
    shown = page.evaluate(
        """(rows) => { const run = report.runs[0];
            return rows.map(([step, name]) => run.kinds[run.kindAt(run.requestNames.indexOf(name),
                run.columnOf(step))][1]); }""", rows)  # fmt: skip
    again = "computed again after a rewind"
    assert shown == [again if replay else work for _, _, work, replay in rows]


def test_findings_are_the_audits(opened, logs):
    with opened("with_findings") as page:
        shown = page.evaluate(
            "report.runs[0].findings.map((f) => [f.invariant, f.step, f.seq, f.message])"
        )
        found = audit.verify(logs("with_findings")).findings
        assert [tuple(row) for row in shown] == [
            (f.invariant, f.step, f.seq, f.message) for f in found
        ]
        texts = page.locator(".findings li").all_text_contents()
        assert all(f.message in text for f, text in zip(found, texts, strict=True))
