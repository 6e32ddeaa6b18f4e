"""What the documentation says is what happens: commands, snippets, links, generated parts."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from doc_blocks import PAGES, ROOT, fences, page_name, typed, without_times

README = ROOT / "README.md"
MAIN_COMMAND, TEST_COMMAND = "the main command", "the test command"
LINK = re.compile(r"\[[^\]]+\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(f.language == language for f in fences(page))]


def marked(mark: str) -> str:
    (text,) = [fence.text for fence in fences(README) if fence.mark == mark]
    return text


@pytest.mark.parametrize("page", pages_with("console"), ids=page_name)
def test_every_command_of_a_page_prints_what_the_page_shows(page, shell):
    if page == README:
        shell(main_job())
    for fence in fences(page):
        if fence.language == "console":
            for command, output in typed(fence.text):
                assert without_times(shell(command)) == without_times(output), command


@pytest.mark.parametrize("page", pages_with("python"), ids=page_name)
def test_every_snippet_of_a_page_runs_and_prints_what_the_page_shows(page, shell, tmp_path):
    blocks = fences(page)
    for number, fence in enumerate(blocks):
        if fence.language != "python":
            continue
        path = tmp_path / "work" / "snippet.py"
        path.write_text(fence.text)
        printed = shell("python snippet.py && echo ended well")
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        shown = following.text if following is not None and following.language == "text" else ""
        assert without_times(printed) == without_times(f"{shown}ended well"), fence.text


def main_job() -> str:
    """What README's first command does once the package is installed."""
    return marked(MAIN_COMMAND).strip().split(" && ")[-1].removeprefix(".venv/bin/")


def test_the_main_command_installs_and_prints_what_readme_shows(shell):
    text = marked(MAIN_COMMAND)
    *install, run = text.strip().split(" && ")
    assert install == ["python3 -m venv .venv", ".venv/bin/pip install ."]
    assert run.startswith(".venv/bin/rlt-fsm run ")
    blocks = fences(README)
    (shown,) = [after for before, after in pairwise(blocks) if before.mark == MAIN_COMMAND]
    assert without_times(shell(main_job())) == without_times(shown.text)


def test_the_test_command_uses_the_environment_that_it_makes():
    make, install, test = marked(TEST_COMMAND).strip().split(" && ")
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
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{target} is not there"
        if anchor:
            assert anchor in heading_anchors(path), f"{target}#{anchor} is no heading"


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    pages = {page for page in PAGES if page not in (index, README)}
    assert pages <= listed
