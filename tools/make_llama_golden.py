#!/usr/bin/env python3
"""Writes tests/golden/llama/CASE/ with PyTorch's own modules and complex numbers.

usage: /usr/bin/python3 tools/make_llama_golden.py OUT_DIR

Needs Debian's python3-torch (1.13), which has neither a Llama nor its parts: linear maps, embeddings, SiLU and softmax are
PyTorch's; rotary positions are written as what they are, products with complex numbers of length 1, and the norm by its
formula. Files are those that make_gpt_golden.py describes.
"""
import json
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import DEVIATION, expected_steps, write_safetensors

# Sizes that divide nothing: rows, vectors and tiles (64 queries) all end in the middle.
CASES = {
    "grouped": dict(model_type="llama", layers=2, width=24, heads=4, key_heads=2, head_width=6, hidden=40, context=10,
                    vocabulary=37, epsilon=1e-5, theta=500.0, tied=False, samples=3, tokens=9, seed=1,
                    scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
                                 original_max_position_embeddings=40)),
    "biased": dict(model_type="qwen2", layers=1, width=9, heads=3, key_heads=1, head_width=4, hidden=7, context=8,
                   vocabulary=5, epsilon=1e-6, theta=100.0, tied=True, samples=2, tokens=7, seed=2,
                   scaling=dict(rope_type="linear", factor=2.5)),
    "normed-heads": dict(model_type="qwen3", layers=1, width=6, heads=2, key_heads=2, head_width=8, hidden=13, context=67,
                         vocabulary=11, epsilon=1e-5, theta=1e4, tied=True, samples=1, tokens=67, seed=3, scaling=None),
}


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + self.epsilon) * self.weight


def angles_per_position(case):
    turns = []
    for i in range(case["head_width"] // 2):
        turn = case["theta"] ** (-2 * i / case["head_width"])
        scaling = case["scaling"] or dict(rope_type="default")
        if scaling["rope_type"] == "linear":
            turn /= scaling["factor"]
        if scaling["rope_type"] == "llama3":
            wave = 2 * math.pi / turn
            longest = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
            shortest = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
            if wave > longest:
                turn /= scaling["factor"]
            elif wave >= shortest:
                smooth = (scaling["original_max_position_embeddings"] / wave - scaling["low_freq_factor"]) / (
                    scaling["high_freq_factor"] - scaling["low_freq_factor"])
                turn = (1 - smooth) * turn / scaling["factor"] + smooth * turn
        turns.append(turn)
    return torch.tensor(turns, dtype=torch.float64)


def rotated(x, turns):
    """x: [samples, tokens, heads, head width]; elements i and i + half are a complex number."""
    half = x.shape[-1] // 2
    numbers = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), turns)
    turned = numbers * torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    return torch.cat([turned.real, turned.imag], -1)


class Attention(nn.Module):
    def __init__(self, case):
        super().__init__()
        queries, keys = case["heads"] * case["head_width"], case["key_heads"] * case["head_width"]
        has_bias = case["model_type"] == "qwen2"
        self.case, self.turns = case, angles_per_position(case)
        self.q_proj = nn.Linear(case["width"], queries, bias=has_bias)
        self.k_proj = nn.Linear(case["width"], keys, bias=has_bias)
        self.v_proj = nn.Linear(case["width"], keys, bias=has_bias)
        self.o_proj = nn.Linear(queries, case["width"], bias=False)
        if case["model_type"] == "qwen3":
            self.q_norm = RmsNorm(case["head_width"], case["epsilon"])
            self.k_norm = RmsNorm(case["head_width"], case["epsilon"])

    def forward(self, x):
        samples, tokens, _ = x.shape
        q, k, v = (m(x).view(samples, tokens, -1, self.case["head_width"]) for m in (self.q_proj, self.k_proj, self.v_proj))
        if self.case["model_type"] == "qwen3":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotated(q, self.turns), rotated(k, self.turns)
        group = self.case["heads"] // self.case["key_heads"]
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.case["head_width"])
        scores = scores + torch.full((tokens, tokens), float("-inf"), dtype=x.dtype).triu(1)
        return self.o_proj(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).reshape(samples, tokens, -1))


class Mlp(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.gate_proj = nn.Linear(case["width"], case["hidden"], bias=False)
        self.up_proj = nn.Linear(case["width"], case["hidden"], bias=False)
        self.down_proj = nn.Linear(case["hidden"], case["width"], bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.self_attn, self.mlp = Attention(case), Mlp(case)
        self.input_layernorm = RmsNorm(case["width"], case["epsilon"])
        self.post_attention_layernorm = RmsNorm(case["width"], case["epsilon"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Modules are called as Hugging Face calls them, so names of parameters are its names."""

    def __init__(self, case):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(case["vocabulary"], case["width"])
        self.model.layers = nn.ModuleList(Layer(case) for _ in range(case["layers"]))
        self.model.norm = RmsNorm(case["width"], case["epsilon"])
        if not case["tied"]:
            self.lm_head = nn.Linear(case["width"], case["vocabulary"], bias=False)
        self.is_tied = case["tied"]

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return functional.linear(self.model.norm(x), (self.model.embed_tokens if self.is_tied else self.lm_head).weight)


def make_model(case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Llama(case).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = DEVIATION * torch.randn(parameter.shape, generator=generator)
            parameter.copy_((1 + drawn if "norm" in name else drawn).float())
    drawn = torch.randint(case["vocabulary"], (case["samples"], case["tokens"] + 1), generator=generator)
    return model, drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def config_of(case):
    config = {"architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM",
                                 "qwen3": "Qwen3ForCausalLM"}[case["model_type"]]],
              "model_type": case["model_type"], "hidden_act": "silu", "num_hidden_layers": case["layers"],
              "hidden_size": case["width"], "num_attention_heads": case["heads"],
              "num_key_value_heads": case["key_heads"], "head_dim": case["head_width"],
              "intermediate_size": case["hidden"], "max_position_embeddings": case["context"],
              "vocab_size": case["vocabulary"], "rms_norm_eps": case["epsilon"], "rope_theta": case["theta"],
              "tie_word_embeddings": case["tied"], "torch_dtype": "float32"}
    if case["scaling"]:
        config["rope_scaling"] = case["scaling"]
    return config


def write_case(folder, case):
    folder.mkdir(parents=True, exist_ok=True)
    model, ids, targets = make_model(case)
    (folder / "config.json").write_text(json.dumps(config_of(case), indent=2) + "\n")
    write_safetensors(folder / "model.safetensors",
                      {name: parameter.detach().float() for name, parameter in model.named_parameters()})
    expected = {"ids": ids, "targets": targets}
    expected.update(expected_steps(lambda: model(ids).flatten(0, 1),
                                   lambda logits: functional.cross_entropy(logits, targets.flatten()),
                                   list(model.named_parameters())))
    write_safetensors(folder / "expected.safetensors", expected)
    print(f"{folder}: losses {expected['step.losses'].tolist()}, norms {expected['step.norms'].tolist()}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name, case in CASES.items():
        write_case(pathlib.Path(sys.argv[1]) / name, case)


if __name__ == "__main__":
    main()
