"""The command: fill every page, paste its outputs anew, or say which are stale (status 1).

Files that are made as a whole, from pages, come last.
"""

import sys
from pathlib import Path

from . import (
    cli,
    configuration,
    events,
    invariants,
    log_views,
    machines,
    modes,
    modes_compared,
    queries,
)
from .markdown import Block, block_names, fill
from .pasted import ROOT, repasted

BLOCKS: dict[str, Block] = {
    **machines.BLOCKS,
    **events.BLOCKS,
    **log_views.BLOCKS,
    **invariants.BLOCKS,
    **configuration.BLOCKS,
    **cli.BLOCKS,
    **modes.BLOCKS,
    **modes_compared.BLOCKS,
}


def pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments: list[str]) -> int:
    """Fill the pages; `--outputs` pastes outputs too, `--check` changes nothing."""
    if arguments not in ([], ["--check"], ["--outputs"]):
        sys.stderr.write("usage: python -m docs.generate [--check | --outputs]\n")
        return 2
    is_check, has_outputs = arguments == ["--check"], arguments == ["--outputs"]
    used: set[str] = set()
    stale: list[Path] = []
    for path in pages():
        before = path.read_text(encoding="utf-8")
        used.update(block_names(before))
        after = fill(before, BLOCKS)
        if has_outputs:
            after = repasted(after)
        if after != before:
            stale.append(path)
            if not is_check:
                path.write_text(after, encoding="utf-8")
    for path, make in queries.FILES.items():
        after = make()
        if not path.exists() or path.read_text(encoding="utf-8") != after:
            stale.append(path)
            if not is_check:
                path.write_text(after, encoding="utf-8")
    for path in stale:
        sys.stdout.write(f"{'stale' if is_check else 'written'}: {path.relative_to(ROOT)}\n")
    for name in sorted(BLOCKS.keys() - used):
        sys.stdout.write(f"no page shows: {name}\n")
    return int((is_check and bool(stale)) or bool(BLOCKS.keys() - used))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
