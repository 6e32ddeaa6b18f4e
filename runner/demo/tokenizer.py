"""The demo's tokenizer: every byte is a token, so every text can be encoded.

Ids are byte + 1; 0 ends a text. No tensors here.
"""

from collections.abc import Sequence

from rlt_fsm.errors import CheckpointError

EOS_TOKEN_ID = 0
VOCAB_SIZE = 257

# What tokenizer_config.json of a folder with this tokenizer says.
DESCRIPTION = {
    "tokenizer_class": "ByteTokenizer",
    "vocab_size": VOCAB_SIZE,
    "byte_offset": 1,
    "eos_token_id": EOS_TOKEN_ID,
}


class ByteTokenizer:
    """UTF-8 bytes as token ids; the same two methods as any tokenizer the runner uses."""

    eos_token_ids = (EOS_TOKEN_ID,)
    vocab_size = VOCAB_SIZE

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without an end token."""
        return [byte + 1 for byte in text.encode("utf-8")]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids; the end token is left out, broken UTF-8 becomes U+FFFD."""
        known = range(VOCAB_SIZE)
        assert all(token in known for token in token_ids), "a byte tokenizer has 257 ids"
        data = bytes(token - 1 for token in token_ids if token != EOS_TOKEN_ID)
        return data.decode("utf-8", errors="replace")

    @classmethod
    def from_description(cls, description: object) -> "ByteTokenizer":
        """The tokenizer that a tokenizer_config.json describes, if it is this one."""
        if description != DESCRIPTION:
            raise CheckpointError(
                f"tokenizer_config.json: {description!r} is not the byte tokenizer {DESCRIPTION!r}"
            )
        return cls()
