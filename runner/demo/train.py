"""Train the demo model from nothing, on a GPU or a CPU, and publish what it can do.

    python -m runner.demo.train --out DIR --minutes 5

writes a checkpoint folder (config.json, model.safetensors, tokenizer_config.json) and report.json.
Most of the budget trains everything; the last part trains the exit gate alone. Needs torch, numpy,
safetensors and msgspec, nothing else. What is learnt and how it is scored live beside this file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import SINGLE_FILE, load_checkpoint, save_checkpoint

from .arithmetic import VALIDATION_BUCKET, Problems, held_out, sample
from .evaluate import Score, as_markdown, evaluation_problems, score, table
from .objective import losses
from .schedule import Budget, Progress, say, set_learning_rate
from .tokenizer import DESCRIPTION, EOS_TOKEN_ID, VOCAB_SIZE

GATE_STAGE_SHARE = 0.1  # of the budget
GATE_LOSS_WEIGHT = 0.1  # while the trunk learns too
GATE_SHARE = 0.3  # of the sequences leave by the gate, and as many at random
VALIDATIONS = 10


@dataclass(frozen=True)
class Options:
    """The command line."""

    out: Path
    device: str
    minutes: float
    steps: int | None
    batch: int
    seed: int
    learning_rate: float
    hidden: int
    inner: int
    layers: int
    heads: int
    prompts: int
    resume: Path | None


def demo_config(options: Options) -> OuroConfig:
    """The architecture: four loops over a byte vocabulary, plain multi-head attention."""
    return OuroConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=options.hidden,
        intermediate_size=options.inner,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.heads,
        head_dim=options.hidden // options.heads,
        max_position_embeddings=128,
        total_ut_steps=4,
        rope_theta=10_000.0,
        bos_token_id=EOS_TOKEN_ID,
        eos_token_ids=(EOS_TOKEN_ID,),
    )


# ---- stages ----------------------------------------------------------------------------------


class Best:
    """The weights that did best on the validation prompts at full depth; ties go to the later."""

    def __init__(self, model: OuroModel, problems: Problems) -> None:
        self.model = model
        self.problems = problems
        self.exact = -1.0
        self.weights: dict[str, Tensor] = {}

    def validate(self) -> None:
        """Score the model as it is now, and remember its weights if none were better."""
        full = score(self.model, self.problems, threshold=1.0, min_loops=2)
        early = score(self.model, self.problems, threshold=0.9, min_loops=1)
        say(
            f"     validation: {full.exact:.1%} exact at full depth, {early.exact:.1%} at a mean "
            f"depth of {early.mean_depth:.2f} (threshold 0.9, one loop at least)"
        )
        if full.exact >= self.exact:
            self.exact = full.exact
            self.weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}


def train_all(model: OuroModel, options: Options, generator: torch.Generator) -> dict[str, Any]:
    """Train trunk and gate together; the model ends with its best validated weights."""
    budget = _budget(options, 1 - GATE_STAGE_SHARE)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim == 2], "weight_decay": 0.01},
            {"params": [p for p in parameters if p.ndim != 2], "weight_decay": 0.0},
        ],
        lr=options.learning_rate,
        betas=(0.9, 0.98),
        fused=options.device.startswith("cuda"),
    )
    best = Best(model, held_out(options.prompts, VALIDATION_BUCKET, options.seed))
    progress, next_validation, steps = Progress("all", budget), 1 / VALIDATIONS, 0
    for step, share in budget.shares():
        set_learning_rate(optimizer, options.learning_rate, share)
        loss = losses(model, sample(options.batch, generator), generator, gate_share=GATE_SHARE)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss.answers + GATE_LOSS_WEIGHT * loss.gate)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        progress.show(step, share, loss)
        if share >= next_validation:
            next_validation += 1 / VALIDATIONS
            best.validate()
        steps = step + 1
    best.validate()
    model.load_state_dict(best.weights)
    return {"steps": steps, "seconds": budget.elapsed_s, "validation_exact": best.exact}


def train_gate(model: OuroModel, options: Options, generator: torch.Generator) -> dict[str, Any]:
    """Train the exit gate alone, on what the finished trunk gets right and when."""
    budget = _budget(options, 1.0 if options.resume else GATE_STAGE_SHARE)
    model.requires_grad_(requires_grad=False)
    gate = model.model.early_exit_gate.requires_grad_(requires_grad=True)
    rate = 3 * options.learning_rate
    optimizer = torch.optim.Adam(gate.parameters(), lr=rate)
    progress, steps = Progress("gate", budget), 0
    for step, share in budget.shares():
        set_learning_rate(optimizer, rate, share)
        loss = losses(model, sample(options.batch, generator), generator, gate_share=GATE_SHARE)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss.gate)
        optimizer.step()
        progress.show(step, share, loss)
        steps = step + 1
    return {"steps": steps, "seconds": budget.elapsed_s}


def _budget(options: Options, share: float) -> Budget:
    steps = None if options.steps is None else max(1, round(options.steps * share))
    return Budget(steps=steps, seconds=60 * share * options.minutes)


# ---- results ---------------------------------------------------------------------------------


def _read(folder: Path, device: str) -> tuple[OuroConfig, OuroModel]:
    config, model = load_checkpoint(folder, torch.float32, device)
    assert isinstance(config, OuroConfig)
    assert isinstance(model, OuroModel)
    return config, model


def publish(
    model: OuroModel, options: Options, training: dict[str, Any]
) -> tuple[list[Score], dict[str, Any]]:
    """Write the checkpoint in fp16, read it back in fp32, score that, and write report.json."""
    save_checkpoint(options.out, model.config, model.half())
    text = json.dumps(DESCRIPTION, indent=2)
    (options.out / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    config, shipped = _read(options.out, options.device)
    scores = table(shipped, evaluation_problems(options.prompts))
    report = {
        "model": {
            "parameters": sum(p.numel() for p in shipped.parameters()),
            "bytes": (options.out / SINGLE_FILE).stat().st_size,
            "stored_as": "float16",
            "config": config.to_mapping(),
        },
        "training": {
            **training,
            "batch": options.batch,
            "seed": options.seed,
            "learning_rate": options.learning_rate,
            "torch": torch.__version__,
            "device": _device_name(options.device),
        },
        "evaluation": msgspec.to_builtins(scores),
    }
    text = json.dumps(report, indent=2)
    (options.out / "report.json").write_text(text + "\n", encoding="utf-8")
    return scores, report


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


# ---- command line ----------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> Options:
    """Options from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.demo.train",
        description="Train the demo model: sums and differences of up to three digits.",
        epilog="example: python -m runner.demo.train --out /tmp/demo --minutes 5",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoint and report")
    parser.add_argument("--device", help="cuda or cpu; cuda where there is one")
    parser.add_argument("--minutes", type=float, default=5.0, help="wall-clock budget of training")
    parser.add_argument("--steps", type=int, help="budget in steps instead of minutes")
    parser.add_argument("--batch", type=int, default=2048, help="problems per step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="peak")
    parser.add_argument("--hidden", type=int, default=256, help="width of the residual stream")
    parser.add_argument("--inner", type=int, default=640, help="width inside the MLP")
    parser.add_argument("--layers", type=int, default=2, help="layers in the shared stack")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--prompts", type=int, default=500, help="unseen prompts of the table")
    parser.add_argument("--resume", type=Path, help="train only the gate of this checkpoint folder")
    given = vars(parser.parse_args(arguments))
    if given["device"] is None:
        given["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    return Options(**given)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, write, and print the table."""
    options = parse(arguments)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    generator = torch.Generator(options.device).manual_seed(options.seed)
    training: dict[str, Any] = {}
    if options.resume is None:
        model = OuroModel(demo_config(options)).to(options.device)
        say(f"{sum(p.numel() for p in model.parameters()):,} parameters on {options.device}")
        training["all"] = train_all(model, options, generator)
    else:
        _, model = _read(options.resume, options.device)
    training["gate"] = train_gate(model, options, generator)
    torch.set_float32_matmul_precision("highest")
    scores, report = publish(model, options, training)
    sys.stdout.write(as_markdown(scores) + "\n")
    say(
        f"{options.out}: {report['model']['parameters']:,} parameters, "
        f"{report['model']['bytes']:,} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
