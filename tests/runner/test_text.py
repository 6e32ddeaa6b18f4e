"""Which tokenizer a model folder brings, and the text of tokens that are still coming."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from rlt_fsm.errors import CheckpointError
from runner.demo.tokenizer import DESCRIPTION, ByteTokenizer
from runner.text import load_tokenizer, text_so_far


def test_a_tokenizer_json_is_read_by_the_tokenizers_library(tmp_path):
    words = Tokenizer(WordLevel({"<end>": 0, "one": 1, "two": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    words.add_special_tokens(["<end>"])
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Anything"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("one two three") == [1, 2, 3]
    assert tokenizer.decode([2, 1, 0]) == "two one"


def test_a_description_of_the_byte_tokenizer_brings_it(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(DESCRIPTION))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("27+58=é")) == "27+58=é"


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    assert load_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SomeTokenizer"}')
    assert load_tokenizer(tmp_path) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_file_that_cannot_be_read_is_refused(tmp_path, name):
    (tmp_path / name).write_text("{broken")
    with pytest.raises(CheckpointError, match=name):
        load_tokenizer(tmp_path)


def test_a_character_that_is_still_incomplete_waits_for_its_rest():
    tokenizer = ByteTokenizer()
    first, second = tokenizer.encode("é")
    assert text_so_far(tokenizer, [*tokenizer.encode("a"), first], is_final=False) == "a"
    assert text_so_far(tokenizer, [*tokenizer.encode("a"), first, second], is_final=False) == "aé"
    assert text_so_far(tokenizer, [first], is_final=True) == "\N{REPLACEMENT CHARACTER}"
