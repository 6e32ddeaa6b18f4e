"""A second, slow reading of the Ouro architecture, to hold the runner against.

Plain functions over a dict of tensors (checkpoint names) and config.json's object: one token at a
time, keys and values in dictionaries, nothing shared with the code under test. Loops are counted
from 1 here (`loop`), planes from 0.
"""

import math
from dataclasses import dataclass, field

import torch

Weights = dict[str, torch.Tensor]


# ---- arithmetic ----------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    wide = x.to(torch.float32)
    return (wide / torch.sqrt((wide**2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, position, theta):
    """Rotary embedding of x [heads, dim] as complex numbers: pairs are (j, j + dim/2)."""
    half = x.shape[-1] // 2
    angles = torch.tensor([position * theta ** (-2 * j / (2 * half)) for j in range(half)])
    turned = torch.complex(x[:, :half].float(), x[:, half:].float()) * torch.polar(
        torch.ones(half), angles
    )
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)


def attend(q, history):
    """q [heads, dim] over history [(k, v), …], each [kv_heads, dim]; query heads share kv heads."""
    group = q.shape[0] // history[0][0].shape[0]
    outputs = []
    for head in range(q.shape[0]):
        keys = torch.stack([k[head // group] for k, _ in history])
        values = torch.stack([v[head // group] for _, v in history])
        weights = torch.softmax((keys @ q[head]).float() / math.sqrt(q.shape[1]), dim=0)
        outputs.append(weights.to(values.dtype) @ values)
    return torch.stack(outputs)


# ---- storage -------------------------------------------------------------------------------


class DenseCache:
    """Keys and values by (plane, layer, position), under one of the two layouts.

    last_exited: one plane per loop; a token that left after loop e shows version min(loop, e).
    shared: one plane; every loop overwrites the token's entry.
    """

    def __init__(self, layout, loops, layers):
        assert layout in {"last_exited", "shared"}
        self.layout, self.loops, self.layers = layout, loops, layers
        self.entries = {}

    def plane(self, loop):
        return loop - 1 if self.layout == "last_exited" else 0

    def write(self, loop, layer, position, k, v):
        self.entries[self.plane(loop), layer, position] = (k, v)

    def read(self, loop, layer, position):
        """What a query of `loop` at `position` sees: positions 0 … position."""
        return [self.entries[self.plane(loop), layer, p] for p in range(position + 1)]

    def exit(self, position, loops_done):
        if self.layout == "shared":
            return
        for loop in range(loops_done + 1, self.loops + 1):
            for layer in range(self.layers):
                k, v = self.entries[self.plane(loops_done), layer, position]
                self.write(loop, layer, position, k.clone(), v.clone())


# ---- one token, one loop -------------------------------------------------------------------


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def run_layer(weights, config, layer, x, position, *, loop, cache):
    name = f"model.layers.{layer}."
    eps, dim, theta = config["rms_norm_eps"], head_dim(config), config["rope_theta"]

    def norm(which, value):
        return rms_norm(value, weights[f"{name}{which}.weight"], eps)

    def project(which, value):
        return weights[f"{name}{which}.weight"] @ value

    y = norm("input_layernorm", x)
    q = rotate(project("self_attn.q_proj", y).reshape(-1, dim), position, theta)
    k = rotate(project("self_attn.k_proj", y).reshape(-1, dim), position, theta)
    v = project("self_attn.v_proj", y).reshape(-1, dim)
    cache.write(loop, layer, position, k, v)
    read = attend(q, cache.read(loop, layer, position)).reshape(-1)
    x = x + norm("input_layernorm_2", project("self_attn.o_proj", read))

    y = norm("post_attention_layernorm", x)
    gate, up = project("mlp.gate_proj", y), project("mlp.up_proj", y)
    down = project("mlp.down_proj", gate * torch.sigmoid(gate) * up)
    return x + norm("post_attention_layernorm_2", down)


def run_loop(weights, config, x, position, *, loop, cache):
    """One pass of a token through every layer → its normed state and its gate logit."""
    for layer in range(config["num_hidden_layers"]):
        x = run_layer(weights, config, layer, x, position, loop=loop, cache=cache)
    x = rms_norm(x, weights["model.norm.weight"], config["rms_norm_eps"])
    gate, bias = weights["model.early_exit_gate.weight"], weights["model.early_exit_gate.bias"]
    return x, float((gate.float() @ x.float() + bias.float())[0])


def embed(weights, token):
    return weights["model.embed_tokens.weight"][token]


def read_out(weights, state):
    return weights["lm_head.weight"] @ state


# ---- whole sequences -----------------------------------------------------------------------


def whole_sequence(weights, config, tokens):
    """h = embed; for each loop: h = norm(layers(h)), keys and values of each loop apart.

    Returns one (states [T, hidden], gate logits [T]) per loop.
    """
    loops = config["total_ut_steps"]
    cache = DenseCache("last_exited", loops, config["num_hidden_layers"])
    states = [embed(weights, token) for token in tokens]
    result = []
    for loop in range(1, loops + 1):
        ran = [
            run_loop(weights, config, x, position, loop=loop, cache=cache)
            for position, x in enumerate(states)
        ]
        states = [state for state, _ in ran]
        result.append((torch.stack(states), torch.tensor([gate for _, gate in ran])))
    return result


# ---- generation ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ExitRule:
    """Leave after loop t when t = max_loops, or t ≥ min_loops and 1 - Π(1 - hazard) ≥ threshold."""

    threshold: float = 1.0
    min_loops: int = 2
    max_loops: int | None = None


@dataclass
class Generation:
    """Entry i belongs to output i; `gates[i]` are the logits of the loops its input token ran."""

    tokens: list[int] = field(default_factory=list)
    exit_depths: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    gates: list[list[float]] = field(default_factory=list)
    cache: DenseCache | None = None


def leaves(rule, gates, full_depth):
    """Does a token whose loops so far had these gate logits leave now?"""
    done = len(gates)
    if done >= (rule.max_loops or full_depth):
        return True
    if rule.threshold >= 1 or done < rule.min_loops:
        return False
    survival = torch.tensor(1.0)
    for gate in gates:
        survival = survival * (1 - torch.sigmoid(torch.tensor(gate)))
    return bool(1 - survival >= rule.threshold)


def run_token(weights, config, token, position, *, cache, rule):
    """All loops of one token → its exit state and the gate logit of every loop it ran."""
    x, gates = embed(weights, token), []
    while not gates or not leaves(rule, gates, config["total_ut_steps"]):
        x, gate = run_loop(weights, config, x, position, loop=len(gates) + 1, cache=cache)
        gates.append(gate)
    cache.exit(position, len(gates))
    return x, gates


def generate(
    weights, config, prompt, depths_or_rule, layout="last_exited", *, max_tokens=16, stop_ids=()
):
    """Greedy decoding, one token after the other; the prompt and so output 0 run at full depth.

    `depths_or_rule`: the depth of every output (entry 0 the full depth), or an ExitRule. Output
    i ≥ 1 is read from the state of output i - 1 as input, so its depth is that token's.
    """
    full = config["total_ut_steps"]
    cache = DenseCache(layout, full, config["num_hidden_layers"])
    result = Generation(cache=cache)
    for position, token in enumerate(prompt):
        state, gates = run_token(weights, config, token, position, cache=cache, rule=ExitRule())
    while True:
        logits = read_out(weights, state)
        result.tokens.append(int(logits.argmax()))
        result.exit_depths.append(len(gates))
        result.logits.append(logits)
        result.gates.append(gates)
        count = len(result.tokens)
        if count == max_tokens or result.tokens[-1] in stop_ids:
            return result
        rule = depths_or_rule
        if not isinstance(rule, ExitRule):
            rule = ExitRule(max_loops=depths_or_rule[count])
        position = len(prompt) + count - 1
        state, gates = run_token(
            weights, config, result.tokens[-1], position, cache=cache, rule=rule
        )
