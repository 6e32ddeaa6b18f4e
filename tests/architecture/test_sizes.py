"""Files, functions and lines stay short enough to read; exceptions are listed with their reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rlt_fsm", "runner", "audit", "docs", "tests")
MOST_LINES, MOST_FUNCTION_LINES, MOST_COLUMNS = 300, 50, 100

LONG_FILES = {
    "audit/fold.py": "the auditor's own fold: one case for every trigger of a log",
    "tests/audit/handmade.py": "the one driver that makes logs by hand, event by event",
    "tests/cli/test_run_command.py": "every option and every mistake of one command",
    "tests/audit/test_explain.py": "one case for every way in which a request waits",
    "tests/log/test_log_contract.py": "the one contract that every adapter of the log passes",
}
LONG_FUNCTIONS = {
    "rlt_fsm/codec.py:decode": "one flat match over every trigger of a request",
    "runner/kernels/decode_attention.py:_decode": "one Triton kernel: where its rows lie and go",
}
# A comment that gives a tool its reason must stand on the line that it excuses.
REASON = re.compile(r"  # (noqa|type: ignore)\b.*$")

FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def functions() -> Iterator[tuple[str, int]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield f"{name_of(path)}:{node.name}", node.end_lineno - node.lineno + 1


def test_there_are_files_to_look_at():
    assert len(FILES) > 100


def test_no_file_is_too_long_but_those_with_a_reason():
    too_long = {name_of(path) for path in FILES if len(lines_of(path)) > MOST_LINES}
    assert too_long == set(LONG_FILES), f"over {MOST_LINES} lines without, or listed for nothing"


def test_no_function_is_too_long_but_those_with_a_reason():
    too_long = {name for name, length in functions() if length > MOST_FUNCTION_LINES}
    assert too_long == set(LONG_FUNCTIONS), f"over {MOST_FUNCTION_LINES} lines, or for nothing"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_line_is_too_wide(path):
    wide = [
        number
        for number, line in enumerate(lines_of(path), start=1)
        if len(REASON.sub("", line)) > MOST_COLUMNS
    ]
    assert wide == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_lives_in_it(path):
    lines = lines_of(path)
    is_empty = not lines
    is_test = path.name.startswith("test_") or path.name == "conftest.py"
    assert is_empty or is_test or ast.get_docstring(ast.parse("\n".join(lines)))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_lint_exception_has_its_reason(path):
    without = [
        number
        for number, line in enumerate(lines_of(path), start=1)
        if re.search(r"# noqa(: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)*)?$", line)
    ]
    assert without == []
