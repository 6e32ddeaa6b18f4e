"""Batched loops with early exits give the dense reference's numbers, and can be trained."""

import json

import pytest
import torch
from reference import dense_ouro

from runner.demo import evaluate, train
from runner.demo.arithmetic import Problems, encode, sample
from runner.demo.looped import ExitPlan, answer, run_loops
from runner.demo.objective import losses
from runner.demo.tokenizer import EOS_TOKEN_ID, VOCAB_SIZE
from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import load_checkpoint

CONFIG = OuroConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    total_ut_steps=4,
    rope_theta=10_000.0,
    eos_token_ids=(EOS_TOKEN_ID,),
)
TINY_RUN = ["--device", "cpu", "--batch", "8", "--hidden", "32", "--inner", "32", "--prompts", "9"]


@pytest.fixture
def model():
    torch.manual_seed(3)
    return OuroModel(CONFIG)


def generate(model, prompt, rule, max_tokens):
    return dense_ouro.generate(
        model.state_dict(), CONFIG.to_mapping(), prompt, rule, max_tokens=max_tokens
    )


@torch.no_grad()
def test_forced_exits_give_the_references_states(model):
    prompt = [51, 44, 53, 62]
    forced = [4, 2, 1, 3]
    wanted = generate(model, prompt, forced, max_tokens=4)
    tokens = torch.tensor([prompt + wanted.tokens[:-1]])
    depth = torch.tensor([[4] * len(prompt) + forced[1:]])
    never, at_least = torch.ones(1, 7), torch.ones_like(depth)
    loops = run_loops(model, tokens, ExitPlan(depth, never, at_least))
    assert torch.equal(loops.exit_depth, depth)
    logits = model.coda(loops.states[-1][0])
    for index, wanted_logits in enumerate(wanted.logits):
        assert torch.allclose(logits[3 + index], wanted_logits, atol=1e-5, rtol=0)
        for loop, gate in enumerate(wanted.gates[index]):
            assert float(loops.gates[loop][0, 3 + index]) == pytest.approx(gate, abs=1e-5)
            assert loops.ran[loop][0, 3 + index]


@pytest.mark.parametrize("min_loops", [1, 2])
@torch.no_grad()
def test_batched_answers_equal_the_references_one_by_one(model, min_loops):
    model.model.early_exit_gate.weight.mul_(4.0)  # hazards on both sides of the threshold
    problems = sample(6, torch.Generator().manual_seed(0))
    sequences = encode(problems)
    ours = answer(
        model, sequences.tokens, sequences.prompt_length, threshold=0.7, min_loops=min_loops
    )
    rule = dense_ouro.ExitRule(0.7, min_loops=min_loops)
    depths = set()
    for row in range(6):
        prompt = sequences.tokens[row, : sequences.prompt_length[row]].tolist()
        wanted = generate(model, prompt, rule, max_tokens=5)
        assert ours.tokens[row].tolist() == wanted.tokens
        assert ours.exit_depths[row].tolist() == wanted.exit_depths
        depths |= set(wanted.exit_depths[1:])
    assert len(depths) > 1


def test_an_answer_ends_at_the_first_end_token(model, monkeypatch):
    said = iter([[51, 0], [0, 0], [52, 7], [0, 0], [53, 9]])
    monkeypatch.setattr(
        model, "coda", lambda _: torch.nn.functional.one_hot(torch.tensor(next(said)), 60)
    )
    prompts = torch.tensor([[51, 44, 51, 62], [51, 44, 51, 62]])
    answers = answer(model, prompts, torch.tensor([4, 4]), threshold=1.0, min_loops=2)
    assert answers.lengths.tolist() == [2, 1]


def test_held_out_problems_teach_nothing(model):
    held = evaluate.evaluation_problems(16)
    loss = losses(model, held, torch.Generator().manual_seed(0), gate_share=0.3)
    assert loss.answers.item() == 0
    assert loss.gate.item() == 0


def test_both_losses_reach_their_parameters(model):
    problems = sample(64, torch.Generator().manual_seed(0))
    loss = losses(model, problems, torch.Generator().manual_seed(0), gate_share=0.3)
    (loss.answers + loss.gate).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    assert 0 <= loss.accuracy.item() <= 1


def test_a_score_counts_exact_answers_and_loops(model, monkeypatch):
    problems = Problems(*torch.tensor([[0, 27, 58], [1, 90, 17]]).unbind(dim=1))
    sequences = encode(problems)

    def almost(*_args, **_options):
        from runner.demo.looped import Answers  # noqa: PLC0415 (only this fake needs it)

        tokens = torch.stack([row[n:][:5] for row, n in zip(*sequences[:2], strict=True)])
        tokens[1, 1] += 1
        depths = torch.tensor([[4, 2, 1, 9, 9], [4, 2, 2, 9, 9]])
        return Answers(tokens, depths, torch.tensor([3, 3]))

    monkeypatch.setattr(evaluate, "answer", almost)
    row = evaluate.score(model, problems, threshold=0.5, min_loops=1)
    assert row.exact == 0.5
    assert row.mean_depth == pytest.approx(15 / 6)
    assert row.mean_depth_after_first == pytest.approx(7 / 4)
    assert row.fewer_loops == pytest.approx(4 / 2.5)
    assert row.depth_counts == [1, 3, 0, 2]


def test_the_script_writes_a_checkpoint_that_loads_and_a_report(tmp_path, capsys):
    assert train.main(["--out", str(tmp_path), "--steps", "3", *TINY_RUN]) == 0
    config, loaded = load_checkpoint(tmp_path, torch.float32)
    report = json.loads((tmp_path / "report.json").read_text())
    assert config.total_ut_steps == 4
    assert report["model"]["parameters"] == sum(p.numel() for p in loaded.parameters())
    assert report["training"]["all"]["steps"] + report["training"]["gate"]["steps"] == 4
    assert {row["prompts"] for row in report["evaluation"]} == {9}
    assert "| threshold | min loops | exact |" in capsys.readouterr().out


def test_resuming_trains_the_gate_and_nothing_else(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    train.main(["--out", str(first), "--steps", "2", *TINY_RUN])
    train.main(["--out", str(second), "--steps", "5", *TINY_RUN, "--resume", str(first)])
    before = load_checkpoint(first, torch.float32)[1].state_dict()
    after = load_checkpoint(second, torch.float32)[1].state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"model.early_exit_gate.weight", "model.early_exit_gate.bias"}
