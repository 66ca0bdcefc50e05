#!/usr/bin/env python3
"""Writes tests/golden/gpt/CASE/ with PyTorch's own modules: a GPT-2 that nobody here wrote.

usage: /usr/bin/python3 tools/make_gpt_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). The layers are torch.nn.TransformerEncoderLayer with the norm
first and a causal mask, the updates torch.optim.AdamW and clip_grad_norm_. Each case gets

  config.json, model.safetensors  a Hugging Face folder: float32 weights, linear maps as [in, out]
  expected.safetensors            float64: what the model makes of `ids` and `targets`
      logits, loss, gradient.NAME   of the weights as they are
      step.rates                    learning rates of the steps of AdamW that follow
      step.losses, step.norms       before each update; the norm before clipping
      updated.NAME                  parameters after the last one

Weights are float32 so that every precision starts from the same numbers.
"""
import functools
import json
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import DEVIATION, expected_steps, write_safetensors

# Sizes that divide nothing: rows, vectors and tiles (64 queries) all end in the middle.
CASES = {
    # Named as GPT2LMHeadModel does; the last position is never used.
    "three-heads": dict(layers=2, width=24, heads=3, context=10, vocabulary=37, epsilon=1e-5,
                        samples=3, tokens=9, prefix="transformer.", seed=1),
    # Named as GPT2Model does.
    "one-head": dict(layers=1, width=9, heads=1, context=7, vocabulary=5, epsilon=1e-6,
                     samples=2, tokens=7, prefix="", seed=2),
    "two-tiles": dict(layers=1, width=6, heads=2, context=67, vocabulary=11, epsilon=1e-5,
                      samples=1, tokens=67, prefix="", seed=3),
}

# Parameters of TransformerEncoderLayer, and what GPT-2 calls them. Matrices are transposed.
LAYER_NAMES = {
    "norm1.weight": "ln_1.weight",
    "norm1.bias": "ln_1.bias",
    "self_attn.in_proj_weight": "attn.c_attn.weight",
    "self_attn.in_proj_bias": "attn.c_attn.bias",
    "self_attn.out_proj.weight": "attn.c_proj.weight",
    "self_attn.out_proj.bias": "attn.c_proj.bias",
    "norm2.weight": "ln_2.weight",
    "norm2.bias": "ln_2.bias",
    "linear1.weight": "mlp.c_fc.weight",
    "linear1.bias": "mlp.c_fc.bias",
    "linear2.weight": "mlp.c_proj.weight",
    "linear2.bias": "mlp.c_proj.bias",
}


class Gpt2(nn.Module):
    def __init__(self, case):
        super().__init__()
        width = case["width"]
        self.wte = nn.Embedding(case["vocabulary"], width)
        self.wpe = nn.Embedding(case["context"], width)
        self.h = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, case["heads"], 4 * width, dropout=0.0, norm_first=True, batch_first=True,
                activation=functools.partial(functional.gelu, approximate="tanh"),
                layer_norm_eps=case["epsilon"])
            for _ in range(case["layers"]))
        self.ln_f = nn.LayerNorm(width, eps=case["epsilon"])

    def forward(self, ids):
        tokens = ids.shape[1]
        future = torch.full((tokens, tokens), float("-inf"), dtype=self.wte.weight.dtype).triu(1)
        x = self.wte(ids) + self.wpe(torch.arange(tokens))
        for layer in self.h:
            x = layer(x, future)
        return functional.linear(self.ln_f(x), self.wte.weight)


def hugging_face_parameters(model):
    """Pairs of GPT-2's name and the parameter, and whether GPT-2 stores its transpose."""
    for name, parameter in model.named_parameters():
        if not name.startswith("h."):
            yield name, parameter, False
            continue
        _, layer, leaf = name.split(".", 2)
        yield f"h.{layer}.{LAYER_NAMES[leaf]}", parameter, parameter.dim() == 2


def stored(tensor, is_transposed):
    return tensor.detach().t().clone() if is_transposed else tensor.detach().clone()


def make_model(case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Gpt2(case).double()
    with torch.no_grad():
        for name, parameter, _ in hugging_face_parameters(model):
            drawn = DEVIATION * torch.randn(parameter.shape, generator=generator)
            is_gain = ".ln_" in "." + name and name.endswith("weight")
            parameter.copy_((1 + drawn if is_gain else drawn).float())
    drawn = torch.randint(case["vocabulary"], (case["samples"], case["tokens"] + 1), generator=generator)
    return model, drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def config_of(case):
    return {"model_type": "gpt2", "activation_function": "gelu_new", "n_layer": case["layers"],
            "n_embd": case["width"], "n_head": case["heads"], "n_positions": case["context"],
            "vocab_size": case["vocabulary"], "layer_norm_epsilon": case["epsilon"],
            "torch_dtype": "float32"}


def write_case(folder, case):
    folder.mkdir(parents=True, exist_ok=True)
    model, ids, targets = make_model(case)
    (folder / "config.json").write_text(json.dumps(config_of(case), indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", {
        case["prefix"] + name: stored(parameter, is_transposed).float()
        for name, parameter, is_transposed in hugging_face_parameters(model)})
    expected = {"ids": ids, "targets": targets}
    transposed = {name: is_transposed for name, _, is_transposed in hugging_face_parameters(model)}
    expected.update(expected_steps(
        lambda: model(ids).flatten(0, 1), lambda logits: functional.cross_entropy(logits, targets.flatten()),
        [(name, parameter) for name, parameter, _ in hugging_face_parameters(model)],
        lambda name, tensor: stored(tensor, transposed[name])))
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
