"""Whoever has no mouse, no colours or no eyes for a drawing gets the same."""

from __future__ import annotations

import pytest
from settling import settle

pytest.importorskip("playwright", reason="playwright is not installed")


GRAVE = {"serious", "critical"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("names", [("busy",), ("with_findings",), ("busy", "fewer")], ids="-".join)
def test_axe_finds_nothing_grave(names, scheme, opened):
    sync_axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # The checker is a script of its own, which the page's policy would keep out.
    with opened(*names, scheme=scheme, bypass_csp=True) as page:
        page.evaluate("report.page.view.choose(3)")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        settle(page)
        answer = sync_axe.Axe().run(page, options={}).response
        rules = {rule["id"] for rule in answer["passes"]}
        assert {"color-contrast", "label", "aria-valid-attr-value"} <= rules, "it was looked at"
        grave = [
            (found["id"], node["html"], node["failureSummary"])
            for found in answer["violations"]
            if found["impact"] in GRAVE
            for node in found["nodes"]
        ]
        assert grave == []


def test_tab_reaches_every_control_in_the_order_of_the_page(opened):
    with opened("with_findings") as page:
        page.evaluate("report.page.view.choose(3)")
        settle(page)
        page.evaluate("""globalThis.wanted = [...document.querySelectorAll(
            "a, button, input, select, summary, [tabindex='0']")]
            .filter((one) => one.checkVisibility() && !one.disabled)""")
        count = page.evaluate("wanted.length")
        assert count > 30
        reached = []
        for _ in range(count):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("wanted.indexOf(document.activeElement)"))
        assert reached == list(range(count))


def test_every_control_has_a_name(opened):
    with opened("with_findings") as page:
        nameless = page.evaluate("""[...document.querySelectorAll("button, input, select")]
            .filter((one) => !one.ariaLabel && !one.labels?.length && !one.textContent.trim())
            .map((one) => one.outerHTML)""")
        assert nameless == []


def test_arrows_in_the_lanes_walk_and_enter_chooses(opened):
    with opened("busy") as page:
        page.get_by_role("button", name="All", exact=True).focus()
        page.locator("#lanes").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        for _ in range(12):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        settle(page)
        assert page.locator("#request-heading").inner_text() == "Request chat-02"
        stride = page.evaluate("report.page.view.stride")
        assert page.evaluate("report.page.view.cursor") == 12 * stride
        said = page.locator("#lane-voice").inner_text()
        assert said.startswith(f"request chat-02, step {12 * stride}")
        assert "chat-02" in page.locator("#tooltip").inner_text()
        page.keyboard.press("Tab")
        assert page.locator("#tooltip").is_hidden()


def test_a_chart_says_its_numbers_as_a_slider(opened):
    with opened("busy") as page:
        chart = page.get_by_role("slider", name="Slots per step")
        chart.focus()
        page.keyboard.press("End")
        settle(page)
        assert chart.get_attribute("aria-valuenow") == chart.get_attribute("aria-valuemax")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        settle(page)
        assert chart.get_attribute("aria-valuetext") == "step 2, slots held 1, of 6"
        assert "slots held" in page.locator("#tooltip").inner_text()
        page.keyboard.press("+")
        settle(page)
        assert page.evaluate("report.page.view.span") == page.evaluate("report.runs[0].columns / 2")


def test_the_life_of_the_chosen_request_is_a_table_too(opened):
    with opened("busy") as page:
        page.evaluate("report.page.view.choose(0)")
        settle(page)
        life = page.locator("#request-life table")
        assert life.locator("caption").inner_text() == "Life of request batch-00"
        first = life.locator("tbody tr").first.inner_text()
        assert "submitted: 8 prompt tokens, at most 6 outputs, priority 2" in first
        page.get_by_role("button", name="Later rows: Life of the request").click()
        assert life.locator("tbody tr").first.inner_text() != first


def test_the_keyboard_stays_where_it_is_when_a_table_is_made_anew(opened):
    with opened("busy") as page:
        page.evaluate("report.page.view.setCursor(100)")
        settle(page)
        page.locator("#step-rows tbody button").nth(1).focus()
        page.keyboard.press("Enter")
        settle(page)
        assert page.evaluate("document.activeElement.closest('table').caption.textContent") == (
            "Rows of the step's batch"
        )
        page.evaluate("report.page.view.setCursor(770)")
        settle(page)
        later = page.get_by_role("button", name="Later rows: Batches")
        later.focus()
        while later.is_enabled():
            page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel") == "Earlier rows: Batches"


def test_a_request_of_the_table_leads_to_its_panel(opened):
    with opened("busy") as page:
        page.get_by_role("button", name="Choose request batch-21").press("Enter")
        settle(page)
        assert page.evaluate("document.activeElement.id") == "request-heading"
        assert page.locator("#request-heading").inner_text() == "Request batch-21"
        assert page.locator("#step-heading").inner_text() == "Step 126"


def test_without_scripts_the_verdict_and_the_waits_are_there(running, reports):
    context = running.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(reports("with_findings").as_uri())
    assert page.locator(".findings li").count() >= 3
    assert page.get_by_text("from submit to output 0").is_visible()
    assert page.get_by_text("is drawn by scripts: they are at work, or switched off").is_visible()
    context.close()
