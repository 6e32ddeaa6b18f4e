"""`rlt-fsm run` with a model on disk: texts in, texts out, and workloads in its own vocabulary."""

import json

import pytest
import torch
from typer.testing import CliRunner

from runner import cli
from runner.demo.tokenizer import DESCRIPTION
from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import save_checkpoint

torch.set_num_threads(1)


@pytest.fixture
def rlt_fsm(tmp_path, monkeypatch):
    """Call the command in a folder that holds the random model `tiny` with the byte tokenizer."""
    config = OuroConfig(
        vocab_size=257,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        total_ut_steps=3,
        eos_token_ids=(0,),
    )
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "tiny", config, OuroModel(config))
    (tmp_path / "tiny" / "tokenizer_config.json").write_text(json.dumps(DESCRIPTION))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli.app, list(arguments), prog_name="rlt-fsm")

    return call


def test_each_prompt_is_followed_by_its_completion_on_one_line(rlt_fsm):
    arguments = ("run", "--model", "tiny", "--prompt", "27+58=", "--prompt", "9-1=")
    result = rlt_fsm(*arguments, "--max-tokens", "4", "--exit-threshold", "0.5")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].startswith("27+58=")
    assert lines[2].startswith("9-1=")
    column = lines[0].index("exit depths")
    assert lines[1][column] == "3"
    assert lines[-1].startswith("audit clean: ")


def test_json_tells_texts_and_tokens(rlt_fsm):
    arguments = ("run", "--model", "tiny", "--prompt", "ab", "--max-tokens", "3", "--json")
    output = json.loads(rlt_fsm(*arguments).stdout)["outputs"][0]
    assert output["prompt"] == "ab"
    assert isinstance(output["text"], str)
    assert len(output["token_ids"]) == len(output["exit_depths"]) == 3


def test_a_workload_runs_on_a_model_in_its_vocabulary_and_context(rlt_fsm, tmp_path):
    workload = {
        "format": "rlt-workload/1",
        "model": "tiny",
        "requests": [
            {"id": "a", "prompt_len": 9, "max_tokens": 3, "exit_depths": [3, 2, 3]},
            {"id": "long", "prompt_len": 65},
        ],
        "expect": {"finish": {"a": "length"}, "refuse": ["long"]},
    }
    (tmp_path / "w.json").write_text(json.dumps(workload))
    result = rlt_fsm("run", "--workload", "w.json", "--json")
    assert result.exit_code == 0, result.output
    ran = json.loads(result.stdout)
    assert ran["outputs"][0]["exit_depths"] == [3, 2, 3]
    assert ran["audit"]["verdict"] == "clean"


@pytest.mark.parametrize(
    ("request_changes", "actions", "sentence"),
    [
        ({"eos_at": 1}, [], "'eos_at' and 'stop_at' script the sim"),
        ({}, [{"at": 1, "fail": True}], "use model sim"),
    ],
)
def test_what_only_the_sim_can_do_is_refused(rlt_fsm, tmp_path, request_changes, actions, sentence):
    request = {"id": "a", "prompt_len": 3} | request_changes
    workload = {
        "format": "rlt-workload/1",
        "model": "tiny",
        "requests": [request],
        "actions": actions,
    }
    (tmp_path / "w.json").write_text(json.dumps(workload))
    result = rlt_fsm("run", "--workload", "w.json")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not (tmp_path / "run.db").exists()


def test_a_model_that_is_not_there_is_one_sentence(rlt_fsm, tmp_path):
    result = rlt_fsm("run", "--model", "./nowhere")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "run.db").exists()
