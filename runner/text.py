"""Text to token ids and back: the one protocol, and which tokenizer a model folder brings.

No tensors and no model here. Code in a model folder is never run.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as HubTokenizer

from rlt_fsm.errors import CheckpointError

from .demo.tokenizer import ByteTokenizer

TOKENIZER_FILE = "tokenizer.json"
DESCRIPTION_FILE = "tokenizer_config.json"


class Tokenizer(Protocol):
    """Both directions; `decode` leaves special tokens out and never fails on broken text."""

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""

    def decode(self, token_ids: Sequence[int], /) -> str:
        """The text of token ids."""


class FileTokenizer:
    """A `tokenizer.json`, read by the `tokenizers` library."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = HubTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path} is not a tokenizer that can be read: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Ids, with the special tokens that the file's own post-processor adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, token_ids: Sequence[int], /) -> str:
        """Text without special tokens."""
        text: str = self._tokenizer.decode(list(token_ids))
        return text


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a model folder, or None where it has none.

    Raises:
        CheckpointError: there is one, and it cannot be used.
    """
    if (folder / TOKENIZER_FILE).is_file():
        return FileTokenizer(folder / TOKENIZER_FILE)
    path = folder / DESCRIPTION_FILE
    if not path.is_file():
        return None
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    is_bytes = isinstance(description, dict) and (
        description.get("tokenizer_class") == ByteTokenizer.__name__
    )
    # A description of any other class goes with a tokenizer.json, which is not there.
    return ByteTokenizer.from_description(description) if is_bytes else None


def text_so_far(tokenizer: Tokenizer, token_ids: Sequence[int], *, is_final: bool) -> str:
    """The text of a completion; a last character that is still incomplete waits for its rest."""
    text = tokenizer.decode(token_ids)
    return text if is_final else text.rstrip("\N{REPLACEMENT CHARACTER}")
