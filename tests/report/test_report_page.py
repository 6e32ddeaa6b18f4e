"""The page in a real browser: it opens, shows, filters, zooms, and jumps to findings."""

from __future__ import annotations

import sqlite3

import pytest
from settling import settle

SECTIONS = ["Summary", "Over time", "Batches", "Waits and exits", "Requests", "Configuration"]


@pytest.mark.parametrize("name", ["small", "busy", "large", "with_findings"])
def test_a_report_opens_alone_and_has_every_section(name, opened):
    with opened(name) as page:  # no error, nothing on the console, nothing loaded
        assert page.locator("main > section > h2").all_inner_texts() == SECTIONS
        assert page.locator("#request-table tbody tr").count() > 0
        assert page.locator("#batch-table tbody tr").count() > 0
        assert "data-ready" in page.content()


def test_the_drawings_are_not_empty(opened):
    with opened("busy") as page:
        painted = page.evaluate("""[...document.querySelectorAll("canvas")]
            .filter((canvas) => canvas.offsetParent)
            .map((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
                .data.some((value) => value > 0))""")
        assert len(painted) >= 7
        assert all(painted)


def test_the_verdict_stands_first(opened):
    with opened("busy") as page:
        assert page.locator(".verdict").inner_text().startswith("Clean Every invariant holds over")
    with opened("with_findings") as page:
        assert page.locator(".verdict").inner_text().startswith("Findings ")
        assert page.locator(".findings li").count() >= 3
        evidence = page.locator(".findings .evidence").first.inner_text()
        assert evidence.strip()


def test_a_part_of_an_id_leaves_the_requests_that_have_it(opened, logs):
    with sqlite3.connect(logs("busy")) as db:
        preempted = db.execute("select request_id from request where preemptions > 0").fetchall()
    db.close()
    with opened("busy") as page:
        assert page.locator("#filter-count").inner_text() == "24 of 24 requests"
        page.get_by_label("Request id").fill("CHAT-1")
        assert page.locator("#filter-count").inner_text() == "7 of 24 requests"
        names = page.locator("#request-table tbody td:first-child").all_inner_texts()
        assert len(names) == 7
        assert all(name.startswith("chat-1") for name in names)
        page.get_by_role("combobox", name="Show").select_option("preempted")
        page.get_by_label("Request id").fill("")
        assert page.locator("#filter-count").inner_text() == f"{len(preempted)} of 24 requests"
        names = page.locator("#request-table tbody td:first-child").all_inner_texts()
        assert names == [name for (name,) in preempted]


def test_a_finding_is_shown_where_it_is(opened):
    with opened("with_findings") as page:
        finding = page.evaluate("report.runs[0].findings.find((f) => f.request !== null)")
        place = page.evaluate("report.runs[0].findings.findIndex((f) => f.request !== null)")
        page.locator(f'[data-finding="{place}"]').click()
        settle(page)
        name = page.evaluate(f"report.runs[0].requestNames[{finding['request']}]")
        assert page.locator("#request-heading").inner_text() == f"Request {name}"
        assert page.locator("#step-heading").inner_text() == f"Step {finding['step']:,}"
        assert page.evaluate("document.activeElement.id") == "lanes"
        assert page.evaluate("report.page.view.span") <= 120
        lines = page.evaluate(
            "report.page.lanes.lines(report.page.view.request, report.page.view.cursor)"
        )
        assert finding["message"] in [text for _, text, *_ in lines]


def test_zoom_goes_to_the_cursor_and_all_comes_back(opened):
    with opened("busy") as page:
        page.get_by_label("Cursor", exact=True).fill("400")
        page.get_by_label("Cursor", exact=True).press("Enter")
        for _ in range(3):
            page.get_by_role("button", name="Zoom in").click()
        begin, end = page.evaluate("[report.page.view.from, report.page.view.to]")
        assert begin <= 400 < end
        assert end - begin < 110
        page.get_by_role("button", name="Later steps").click()
        assert page.evaluate("report.page.view.from") > begin
        page.get_by_label("Steps", exact=True).fill("10")
        page.get_by_label("Steps", exact=True).press("Enter")
        assert page.evaluate("Math.round(report.page.view.from)") == 10
        page.get_by_role("button", name="All", exact=True).click()
        assert page.evaluate("report.page.view.span === report.runs[0].columns")


def test_the_chosen_step_shows_its_batch_and_why(opened):
    with opened("busy") as page:
        page.evaluate("report.page.view.setCursor(report.runs[0].columnOf(60))")
        settle(page)
        facts = page.locator("#step-facts").inner_text()
        assert "ticket 60" in facts
        assert "tokens were ready to be embedded (prelude-ready)" in facts
        row = page.locator("#step-rows tbody tr").first
        assert "DECODE_PRELUDE" in row.inner_text()
        name = row.locator("button").inner_text()
        row.locator("button").click()
        settle(page)
        assert page.locator("#request-heading").inner_text() == f"Request {name}"


def test_a_tooltip_follows_the_pointer(opened):
    with opened("busy") as page:
        page.locator("#lanes").scroll_into_view_if_needed()
        page.locator("#lanes canvas").hover(position={"x": 300, "y": 30})
        assert "chat-01" in page.locator("#tooltip").inner_text()
        page.locator(".chart canvas").first.hover(position={"x": 300, "y": 30})
        assert "slots held" in page.locator("#tooltip").inner_text()


def test_requests_are_sorted_by_their_headings(opened):
    with opened("busy") as page:
        page.get_by_role("button", name="waited (steps)").click()
        page.get_by_role("button", name="waited (steps)").click()
        cells = page.locator("#request-table tbody td:nth-child(6)").all_inner_texts()
        waited = [int(cell.replace(",", "")) for cell in cells]
        assert waited == sorted(waited, reverse=True)
        heading = page.locator("#request-table th", has_text="waited (steps)")
        assert heading.get_attribute("aria-sort") == "descending"


def test_print_has_what_is_known_and_no_controls(opened):
    with opened("with_findings") as page:
        page.emulate_media(media="print")
        assert page.locator(".verdict").first.is_visible()
        assert page.locator(".findings").first.is_visible()
        assert page.locator("#axis").is_visible()
        assert not page.locator("#filter").is_visible()
        assert not page.get_by_role("button", name="Zoom in").is_visible()
        assert len(page.pdf()) > 10_000
