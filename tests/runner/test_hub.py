"""Where models come from: the demo, a folder, or a hub that is really asked: one of our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from driving import tiny_model
from small_hub import small_hub

from rlt_fsm.errors import CheckpointError
from runner import hub
from runner.models.weights import save_checkpoint

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def checkpoint(tmp_path):
    loaded = tiny_model()
    save_checkpoint(tmp_path / "there", loaded.config, loaded.model)
    (tmp_path / "there" / "modeling_ouro.py").write_text("raise SystemExit('code ran')")
    return tmp_path / "there"


@pytest.fixture
def asking(tmp_path):
    """Run a snippet in a fresh process whose hub is at an address, with a cache of its own."""

    def ask(address, code):
        env = os.environ | {
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "0",
        }
        done = subprocess.run(
            [sys.executable, "-c", f"from runner.hub import *\n{code}"],
            cwd=ROOT, env=env, text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    return ask


SENTENCE = """
try:
    find_model({name!r})
except CheckpointError as error:
    print(error)
"""


def test_a_repository_is_fetched_without_its_code_and_loads(checkpoint, asking):
    loading = """
from runner.loading import load_model
loaded = load_model("owner/name", "cpu", "float32")
print(loaded.name, loaded.config.vocab_size, sorted(file.name for file in loaded.folder.iterdir()))
"""
    with small_hub("owner/name", checkpoint) as (address, asked):
        done = asking(address, loading)
    assert done.stdout == "owner/name 64 ['config.json', 'model.safetensors']\n"
    assert "modeling_ouro.py" not in asked
    assert done.stderr == "", "nothing is shown where nobody watches"


def test_descriptions_alone_do_not_fetch_the_weights(checkpoint, asking):
    with small_hub("owner/name", checkpoint) as (address, asked):
        asking(address, 'print(find_model("owner/name", patterns=DESCRIPTIONS))')
    assert set(asked) == {"config.json"}


def test_a_repository_that_was_fetched_is_there_without_a_network(checkpoint, asking):
    fetch = 'print(find_model("owner/name"))'
    with small_hub("owner/name", checkpoint) as (address, _):
        first = asking(address, fetch)
    assert asking(NOWHERE, fetch).stdout == first.stdout


def test_without_a_network_one_sentence_says_what_to_do(asking):
    assert asking(NOWHERE, SENTENCE.format(name="owner/name")).stdout == (
        "'owner/name' is not a local folder, and the hub cannot be reached from here: download the "
        "model where it can, and give its folder\n"
    )


def test_a_repository_that_is_not_there_is_told_from_one_that_cannot_be_reached(checkpoint, asking):
    with small_hub("owner/name", checkpoint) as (address, _):
        done = asking(address, SENTENCE.format(name="owner/other"))
    assert done.stdout == (
        "'owner/other' is not a local folder, and the hub has no such repository: check the name, "
        "or log in if it is private\n"
    )


def test_a_gated_repository_says_that_its_terms_come_first(checkpoint, asking):
    with small_hub("owner/name", checkpoint, gated=True) as (address, _):
        done = asking(address, SENTENCE.format(name="owner/name"))
    assert "the hub wants its terms accepted first: accept them, log in" in done.stdout


def test_a_hub_id_without_the_hubs_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match=r"needs huggingface_hub: install rlt-fsm\[hub\], or"):
        hub.find_model("owner/name")


@pytest.mark.parametrize("model", ["nowhere", "./nowhere", "a/b/c", "../up", Path("owner/name")])
def test_what_is_neither_a_folder_nor_a_hub_id_is_refused_without_asking(model):
    with pytest.raises(CheckpointError, match="is not a folder: give 'demo', a folder with"):
        hub.find_model(model)


@pytest.mark.parametrize("model", ["", None, 3])
def test_what_is_no_name_at_all_is_refused(model):
    with pytest.raises(CheckpointError, match="give 'demo', a folder or a hub id"):
        hub.find_model(model)


def test_a_local_folder_wins_over_a_hub_id_of_the_same_name(monkeypatch, tmp_path):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub.find_model("owner/name") == (tmp_path / "owner" / "name").resolve()
    assert hub.is_local("owner/name")
