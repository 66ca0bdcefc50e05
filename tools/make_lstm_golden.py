#!/usr/bin/env python3
"""Writes tests/golden/lstm/CASE/ with PyTorch's own modules: an LSTM language model that nobody here wrote.

usage: /usr/bin/python3 tools/make_lstm_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). Layers are torch.nn.LSTM, one module for each, with proj_size where the projection is
recurrent and torch.nn.Linear behind it where it is not. Files are those that make_gpt_golden.py describes.
"""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import draw_parameters, write_renamed_case

# Sizes that divide nothing: vectors end in the middle.
CASES = {
    "recurrent": dict(layers=2, width=11, hidden=21, projection="recurrent", context=10, vocabulary=37, samples=3, tokens=9, seed=1),
    "output": dict(layers=1, width=6, hidden=17, projection="output", context=7, vocabulary=13, samples=5, tokens=7, seed=2),
    "plain": dict(layers=3, width=9, hidden=9, projection="none", context=8, vocabulary=11, samples=1, tokens=8, seed=3),
}


class Lstm(nn.Module):
    def __init__(self, case):
        super().__init__()
        width, hidden, kind = case["width"], case["hidden"], case["projection"]
        self.case = case
        self.embedding = nn.Embedding(case["vocabulary"], width)
        self.lstm = nn.ModuleList(nn.LSTM(width, hidden, batch_first=True, proj_size=width if kind == "recurrent" else 0)
                                  for _ in range(case["layers"]))
        self.output = nn.ModuleList(nn.Linear(hidden, width) for _ in range(case["layers"] if kind == "output" else 0))
        self.softmax = nn.Linear(width, case["vocabulary"])

    def logits(self, fields):
        x = self.embedding(fields["ids"])
        for layer, lstm in enumerate(self.lstm):
            x, _ = lstm(x)
            if self.output:
                x = self.output[layer](x)
        return self.softmax(x).flatten(0, 1)

    def loss(self, logits, fields):
        return functional.cross_entropy(logits, fields["targets"].flatten())


def our_parameters(model):
    """Name, parameter, and the slice of its rows that the name stands for."""
    for name, parameter in model.named_parameters():
        words = name.removesuffix("_l0").split(".")
        if words[0] == "output":
            words = ["lstm", words[1], "output", words[2]]
        yield ".".join(words), parameter, slice(None)


def write_case(folder, case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Lstm(case).double()
    draw_parameters(model, generator)
    draw = lambda: torch.randint(case["vocabulary"], (case["samples"], case["tokens"]), generator=generator)
    config = {"model_type": "laconic-lstm", "layers": case["layers"], "width": case["width"], "hidden": case["hidden"],
              "context": case["context"], "vocab_size": case["vocabulary"], "projection": case["projection"],
              "torch_dtype": "float32"}
    write_renamed_case(folder, config, model, list(our_parameters(model)), {"ids": draw(), "targets": draw()})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name, case in CASES.items():
        write_case(pathlib.Path(sys.argv[1]) / name, case)


if __name__ == "__main__":
    main()
