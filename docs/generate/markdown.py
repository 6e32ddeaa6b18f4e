"""Small pieces of Markdown: tables, code spans, blocks between markers. Knows no content."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

Block = Callable[[], str]

_BLOCK: Final = re.compile(
    r"(?P<head><!-- (?P<kind>generated|measured): (?P<name>[a-z0-9-]+) -->\n)"
    r".*?(?P<tail><!-- end -->)",
    re.DOTALL,
)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> str:
    """A table; `numbers` are the columns to align right."""
    right = set(numbers)
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    lines = [head, rule, *([_cell(cell) for cell in row] for row in rows)]
    assert all(len(line) == len(head) for line in lines), "every row has a cell for each column"
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("\n", " ").replace("|", "\\|")


def code(value: object) -> str:
    """A code span; nothing for an empty value."""
    return f"`{value}`" if str(value) else ""


def fenced(text: str, language: str = "text") -> str:
    """A code block."""
    return f"```{language}\n{text.rstrip()}\n```"


def fill(page: str, blocks: Mapping[str, Block], *, kind: str = "generated") -> str:
    """A page with each of its blocks made anew; measured ones are left where none is given.

    Raises:
        KeyError: the page asks for a generated block that nobody makes.
    """

    def made(match: re.Match[str]) -> str:
        name = match["name"]
        if match["kind"] != kind or (kind == "measured" and name not in blocks):
            return match[0]
        return f"{match['head']}\n{blocks[name]().strip()}\n\n{match['tail']}"

    return _BLOCK.sub(made, page)


def block_names(page: str) -> list[str]:
    """The generated blocks that a page asks for, in order."""
    found = _BLOCK.finditer(page)
    return [match["name"] for match in found if match["kind"] == "generated"]
