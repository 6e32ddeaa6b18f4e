"""A second, slow reading of the Huginn architecture, to hold the runner against.

Plain functions over a dict of tensors (checkpoint names) and config.json's object: one token at a
time, keys and values in dictionaries, random numbers from integers and the standard library;
nothing is shared with the code under test. Loops are counted from 1 here (`loop`).
"""

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import torch

# ---- random numbers ------------------------------------------------------------------------


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011), on Python's integers."""
    words, keys, low = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        high_product, low_product = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            low_product >> 32 ^ words[1] ^ keys[0],
            low_product & low,
            high_product >> 32 ^ words[3] ^ keys[1],
            high_product & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    return words


def normal_within_three(word):
    """A normal number between -3 and 3 from 32 bits: the inverse of its distribution."""
    normal = NormalDist()
    least, most = normal.cdf(-3), normal.cdf(3)
    return normal.inv_cdf(least + (word + 0.5) / 2**32 * (most - least))


def initial_state(config, seed, position):
    size, numbers = config["n_embd"], []
    for block in range(math.ceil(size / 4)):
        words = philox((block, position, 1, 0), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
        numbers += [normal_within_three(word) for word in words]
    return torch.tensor(numbers[:size]) * math.sqrt(2 / (5 * size)) * math.sqrt(size)


# ---- arithmetic ----------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    wide = x.to(torch.float32)
    return (wide / torch.sqrt((wide**2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, position, base):
    """Neighbours of x [heads, dim] as complex numbers, turned."""
    dim = x.shape[-1]
    angles = torch.tensor([position * base ** (-2 * j / dim) for j in range(dim // 2)])
    turned = torch.view_as_complex(x.float().reshape(-1, dim // 2, 2).contiguous())
    turned = turned * torch.polar(torch.ones(dim // 2), angles)
    return torch.view_as_real(turned).reshape(-1, dim).to(x.dtype)


def attend(q, history):
    outputs = []
    for head in range(q.shape[0]):
        keys = torch.stack([k[head] for k, _ in history])
        values = torch.stack([v[head] for _, v in history])
        weights = torch.softmax((keys @ q[head]) / math.sqrt(q.shape[1]), dim=0)
        outputs.append(weights @ values)
    return torch.stack(outputs)


# ---- one layer, one token ------------------------------------------------------------------


def run_layer(weights, config, name, x, position, *, place, cache):
    """`place` names the plane; cache[place, name, position] = (k, v)."""
    eps, heads = config["norm_eps"], config["n_heads"]

    def norm(which, value):
        return rms_norm(value, weights[f"{name}.{which}.weight"], eps)

    y = norm("norm_1", x)
    thirds = (weights[f"{name}.attn.Wqkv.weight"] @ y).split(config["n_embd"])
    q, k, v = (third.reshape(heads, -1) for third in thirds)
    bias = weights[f"{name}.attn.qk_bias"]
    q = rotate(q + bias[0, 0], position, config["rope_base"])
    k = rotate(k + bias[1, 0], position, config["rope_base"])
    cache[place, name, position] = (k, v)
    read = attend(q, [cache[place, name, p] for p in range(position + 1)]).reshape(-1)
    x = norm("norm_2", weights[f"{name}.attn.proj.weight"] @ read + x)

    gate, up = (weights[f"{name}.mlp.fc.weight"] @ norm("norm_3", x)).chunk(2)
    mixed = weights[f"{name}.mlp.proj.weight"] @ (gate * torch.sigmoid(gate) * up)
    return norm("norm_4", mixed + x)


def run_layers(weights, config, part, x, position, *, place, cache):
    count = config[f"n_layers_in_{'recurrent_block' if part == 'core_block' else part}"]
    for layer in range(count):
        name = f"transformer.{part}.{layer}"
        x = run_layer(weights, config, name, x, position, place=place, cache=cache)
    return x


# ---- generation ----------------------------------------------------------------------------


@dataclass
class Generation:
    tokens: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)


def run_token(weights, config, token, position, *, depth, seed, layout, cache):
    """A token through `depth` loops, and its logits."""
    embedded = weights["transformer.wte.weight"][token] * math.sqrt(config["n_embd"])
    embedded = run_layers(
        weights, config, "prelude", embedded, position, place="before", cache=cache
    )
    x = initial_state(config, seed, position)
    for loop in range(1, depth + 1):
        place = loop if layout == "last_exited" else 1
        x = weights["transformer.adapter.weight"] @ torch.cat([x, embedded])
        x = run_layers(weights, config, "core_block", x, position, place=place, cache=cache)
    if layout == "last_exited":
        for loop in range(depth + 1, config["mean_recurrence"] + 1):
            for layer in range(config["n_layers_in_recurrent_block"]):
                name = f"transformer.core_block.{layer}"
                cache[loop, name, position] = cache[depth, name, position]

    def norm(value):
        return rms_norm(value, weights["transformer.ln_f.weight"], config["norm_eps"])

    x = run_layers(weights, config, "coda", norm(x), position, place="after", cache=cache)
    return weights["transformer.wte.weight"] @ norm(x)


def generate(
    weights, config, prompt, depths, *, max_tokens, seed=0, layout="last_exited", stop_ids=()
):
    """Greedy decoding: prompt and output 0 at full depth; output i ran `depths[i]` loops."""
    cache, result = {}, Generation()
    how = {"seed": seed, "layout": layout, "cache": cache}
    full = config["mean_recurrence"]
    for position, token in enumerate(prompt):
        logits = run_token(weights, config, token, position, depth=full, **how)
    while True:
        result.tokens.append(int(logits.argmax()))
        result.logits.append(logits)
        count = len(result.tokens)
        if count == max_tokens or result.tokens[-1] in stop_ids:
            return result
        position = len(prompt) + count - 1
        logits = run_token(weights, config, result.tokens[-1], position, depth=depths[count], **how)
