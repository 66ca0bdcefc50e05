#!/usr/bin/env python3
"""Writes tests/golden/gnmt/CASE/ with PyTorch's own modules: a GNMT that nobody here wrote.

usage: /usr/bin/python3 tools/make_gnmt_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). Layers are torch.nn.LSTM, those of the encoder over packed sequences; attention is
Bahdanau's with a normed vector, written out; the loss torch.nn.functional.cross_entropy with label smoothing. Files are
those that make_seq2seq_golden.py describes.
"""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import draw_parameters, write_renamed_case
from make_seq2seq_golden import NO_TARGET, make_fields

CASES = {
    "four": dict(layers=4, decoder_layers=4, width=10, context=11, target_context=9, vocabulary=37, lengths=[10, 4, 1],
                 targets=[7, 8, 2], smoothing=0.1, seed=1),
    "two": dict(layers=2, decoder_layers=2, width=17, context=6, target_context=7, vocabulary=13, lengths=[6, 5], targets=[3, 6],
                smoothing=0.0, seed=2),
}


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear_q = nn.Linear(width, width, bias=False)
        self.linear_k = nn.Linear(width, width, bias=False)
        self.linear_att = nn.Parameter(torch.zeros(width))
        self.normalize_scalar = nn.Parameter(torch.zeros(1))
        self.normalize_bias = nn.Parameter(torch.zeros(width))

    def forward(self, query, memory, padding):
        sums = self.linear_q(query)[:, :, None, :] + self.linear_k(memory)[:, None, :, :] + self.normalize_bias
        vector = self.linear_att / self.linear_att.norm() * self.normalize_scalar
        scores = torch.tanh(sums).matmul(vector).masked_fill(padding[:, None, :], float("-inf"))
        return torch.softmax(scores, -1).bmm(memory)


class Gnmt(nn.Module):
    def __init__(self, case):
        super().__init__()
        width = case["width"]
        self.case = case
        layer = lambda inputs, both=False: nn.LSTM(inputs, width, batch_first=True, bidirectional=both)
        self.source = nn.Embedding(case["vocabulary"], width)
        self.target = nn.Embedding(case["vocabulary"], width)
        self.encoder = nn.ModuleList([layer(width, True), layer(2 * width)] + [layer(width) for _ in range(case["layers"] - 2)])
        self.decoder = nn.ModuleList([layer(width)] + [layer(2 * width) for _ in range(case["decoder_layers"] - 1)])
        self.attention = Attention(width)
        self.classifier = nn.Linear(width, case["vocabulary"])

    def encode(self, fields):
        lengths = fields["source_length"].flatten()
        total = fields["source"].shape[1]
        x = self.source(fields["source"])
        for i, lstm in enumerate(self.encoder):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            h, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=total)
            x = x + h if i >= 2 else h
        return x

    def logits(self, fields):
        memory = self.encode(fields)
        padding = torch.arange(memory.shape[1])[None, :] >= fields["source_length"]
        y, _ = self.decoder[0](self.target(fields["ids"]))
        found = self.attention(y, memory, padding)
        for i, lstm in enumerate(self.decoder[1:], 1):
            h, _ = lstm(torch.cat([y, found], 2))
            y = y + h if i >= 2 else h
        return self.classifier(y).flatten(0, 1)

    def loss(self, logits, fields):
        # The mean is over all rows, padding or not: whoever trains weighs it by the number of targets.
        return functional.cross_entropy(logits, fields["targets"].flatten(), ignore_index=NO_TARGET, reduction="sum",
                                        label_smoothing=self.case["smoothing"]) / logits.shape[0]


def our_parameters(model):
    """Name, parameter, and the slice of its rows that the name stands for."""
    for name, parameter in model.named_parameters():
        words = name.replace("_l0", "").split(".")
        if words[0] in ("encoder", "decoder"):
            words.insert(1, "layers")
        words = {"source": ["encoder", "embedding"], "target": ["decoder", "embedding"],
                 "attention": ["decoder", "attention"]}.get(words[0], words[:1]) + words[1:]
        yield ".".join(words), parameter, slice(None)


def write_case(folder, case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Gnmt(case).double()
    draw_parameters(model, generator)
    config = {"model_type": "laconic-gnmt", "encoder_layers": case["layers"], "decoder_layers": case["decoder_layers"],
              "width": case["width"], "context": case["context"], "target_context": case["target_context"],
              "vocab_size": case["vocabulary"], "torch_dtype": "float32"}
    write_renamed_case(folder, config, model, list(our_parameters(model)), make_fields(case, generator),
                       {"smoothing": torch.tensor(case["smoothing"], dtype=torch.float64)})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name, case in CASES.items():
        write_case(pathlib.Path(sys.argv[1]) / name, case)


if __name__ == "__main__":
    main()
