"""Two runs on one page: what each did at the first place where they differ."""

from __future__ import annotations

import pytest
from settling import settle

import audit
from audit.reporting.sides import sides_view


@pytest.fixture
def twins(opened):
    with opened("busy", "fewer") as page:
        yield page


def test_the_page_begins_with_where_they_part(twins, logs):
    found = audit.diff(logs("busy"), logs("fewer"))
    sides = sides_view(found)
    assert found.first is not None
    told = twins.locator("#sides .verdict").inner_text()
    assert told.startswith("Same outputs, other schedule.")
    assert f"step {found.first.step}, request {found.first.request}" in told
    shown = twins.locator(".facing tbody tr").all_inner_texts()
    for group in sides.groups:
        for row in group.rows:
            assert any(row.a in text and row.b in text for text in shown)
    changed = twins.locator("table", has_text="Configuration that differs").inner_text()
    assert "scheduler.max_num_seqs\t6\t4" in changed


def test_steps_whose_batches_differ_are_marked(twins, logs):
    schedule = audit.diff(logs("busy"), logs("fewer"), level="schedule").first
    assert schedule is not None
    rows = twins.locator("#around tr").all_inner_texts()
    marked = [text for text in rows if "differs" in text]
    assert marked
    assert marked[0].split("\t")[0] == str(schedule.step)
    assert marked[0].split("\t")[2] == schedule.a.what
    assert marked[0].split("\t")[3] == schedule.b.what


def test_both_lanes_move_together(twins):
    twins.locator(".twin .lanes").first.focus()
    twins.keyboard.press("+")
    for _ in range(3):
        twins.keyboard.press("ArrowRight")
    settle(twins)
    one, other = twins.evaluate("""report.page.sides.twins.map(({ view }) =>
        [view.from, view.to, view.cursor].map((at) => view.run.steps.step[Math.round(at)]))""")
    assert one == other
    assert "step 28" in twins.locator("#lane-voice").inner_text()


def test_everything_else_is_of_the_run_that_is_chosen(twins):
    assert twins.locator("#summary .figures dd").nth(6).is_visible()
    before = twins.locator("#batch-table .place").inner_text()
    twins.get_by_role("radio", name="B fewer.db, run 1").check()
    settle(twins)
    assert twins.locator("#batch-table .place").inner_text() != before
    assert twins.evaluate("report.page.view.run === report.runs[1]")
    assert twins.locator("#summary [data-run='1']").is_visible()
    assert not twins.locator("#summary [data-run='0']").is_visible()


def test_a_side_is_shown_at_the_difference(twins):
    twins.get_by_role("button", name="Show in B").click()
    settle(twins)
    assert twins.evaluate("report.page.view.run === report.runs[1]")
    assert twins.locator("#request-heading").inner_text() == "Request chat-04"
    assert twins.locator("#step-heading").inner_text() == "Step 25"


def test_runs_that_are_the_same_part_nowhere(opened):
    with opened("busy", "again") as page:
        assert page.locator("#sides .verdict").inner_text().strip() == "Identical."
        assert page.locator("#sides .lanes").count() == 0
