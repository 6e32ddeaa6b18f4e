"""What the documentation says is what happens: commands, snippets, links, generated parts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate.pasted import (
    FILE,
    MAIN_COMMAND,
    NOT_RUN,
    ROOT,
    RUN_LANGUAGES,
    TEST_COMMAND,
    fences,
    repasted,
    without_times,
)

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_ONLY = {"text", "mermaid", "json"}  # outputs and pictures
PATH_IN_CODE = re.compile(r"`((?:docs|tests|rlt_fsm|runner|audit)/[\w./-]*\w)`")
LINK = re.compile(r"\[[^\]]+\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def shows_something_to_run(page: Path) -> bool:
    return any(fence.language in RUN_LANGUAGES for fence in fences(text_of(page)))


def marked(mark: str) -> str:
    (text,) = [fence.text for fence in fences(text_of(README)) if fence.mark == mark]
    return text.strip()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if shows_something_to_run(page)], ids=page_name
)
def test_every_command_and_snippet_prints_what_its_page_shows(page):
    shown = text_of(page)
    assert without_times(repasted(shown)) == without_times(shown)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_is_run_or_says_why_not(page):
    for fence in fences(text_of(page)):
        if fence.language not in SHOWN_ONLY | RUN_LANGUAGES:
            assert fence.mark.startswith((FILE, NOT_RUN)), f"a block of {fence.language} is a file"
        if fence.mark.startswith(NOT_RUN):
            assert len(fence.mark.removeprefix(NOT_RUN)) > 10, "a reason"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_no_page_shows_a_traceback(page):
    assert "Traceback (most recent" not in text_of(page)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_file_that_is_named_is_there(page):
    named = PATH_IN_CODE.findall(text_of(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_main_command_makes_an_environment_installs_and_runs():
    make, install, run = marked(MAIN_COMMAND).split(" && ")
    assert make == "python3 -m venv .venv"
    assert install == ".venv/bin/pip install ."
    assert run.startswith(".venv/bin/rlt-fsm run ")


def test_the_test_command_makes_an_environment_installs_and_tests():
    make, install, test = marked(TEST_COMMAND).split(" && ")
    assert make == "python3 -m venv .venv"
    assert install == ".venv/bin/pip install '.[test]'"
    assert test.startswith(".venv/bin/python -m pytest")


def test_no_generated_part_is_stale():
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run python -m docs.generate"


def heading_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(text_of(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{target} is not there"
        if anchor:
            assert anchor in heading_anchors(path), f"{target}#{anchor} is no heading"


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target, _ in LINK.findall(text_of(index))}
    pages = {page for page in PAGES if page not in (index, README)}
    assert pages <= listed
