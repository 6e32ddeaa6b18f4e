"""The invariants page, from the docstrings of the auditor's classes."""

import inspect
import re

from audit.invariants import ALL, Invariant, S13Log

from .markdown import Block, table


def in_order() -> list[type[Invariant]]:
    """Every invariant: S, F, L, D, each by number."""

    def key(invariant: type[Invariant]) -> tuple[int, int]:
        return "SFLD".index(invariant.id[0]), int(invariant.id[1:])

    return sorted({*ALL, S13Log}, key=key)


def _sentence_and_rest(invariant: type[Invariant]) -> tuple[str, str]:
    text = inspect.getdoc(invariant)
    assert text, f"{invariant.id} has a docstring: it is the exact reading of the contract"
    sentence, _, rest = text.partition("\n\n")
    return " ".join(sentence.split()), rest


def overview() -> str:
    """One line for each invariant."""
    rows = [(f"[{i.id}](#{i.id.lower()})", _sentence_and_rest(i)[0]) for i in in_order()]
    return table(["id", "what must hold"], rows)


def in_full() -> str:
    """The exact reading of each; a part `(a)` begins a line of its own."""
    sections = []
    for invariant in in_order():
        sentence, rest = _sentence_and_rest(invariant)
        paragraphs = [" ".join(part.split()) for part in rest.split("\n\n")]
        text = re.sub(r" (?=\([a-z]\) )", "\n- ", "\n\n".join(paragraphs))
        text = re.sub(r"^(?=\([a-z]\) )", "- ", text, flags=re.MULTILINE)
        text = re.sub(r"^(?!- )(.*)\n- ", r"\1\n\n- ", text, flags=re.MULTILINE)
        sections.append(f"### {invariant.id}\n\n**{sentence}**\n\n{text}".rstrip())
    return "\n\n".join(sections)


BLOCKS: dict[str, Block] = {"invariants": overview, "invariants-in-full": in_full}
