#!/usr/bin/env python3
"""Writes tests/golden/seq2seq/CASE/ with PyTorch's own modules: an encoder-decoder that nobody here wrote.

usage: /usr/bin/python3 tools/make_seq2seq_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). The layers are torch.nn.TransformerEncoder and TransformerDecoder with padding and causal
masks, the loss torch.nn.functional.cross_entropy with label smoothing. Files are those that make_gpt_golden.py
describes; expected.safetensors has the batch's fields, and `smoothing`, which the losses of steps have.
"""
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import draw_parameters, write_renamed_case

COMMON = dict(layers=2, decoder_layers=2, width=24, heads=3, hidden=41, context=11, target_context=9, vocabulary=37,
              epsilon=1e-5, lengths=[10, 4, 1], targets=[7, 8, 2], smoothing=0.0)
CASES = {
    "pre": dict(COMMON, norm="pre", positions="sinusoidal", sharing="all", smoothing=0.1, seed=1),
    "post": dict(COMMON, norm="post", positions="learned", sharing="none", layers=1, seed=2),
    "two-tiles": dict(COMMON, norm="pre", positions="learned", sharing="output", layers=1, decoder_layers=1, width=6, heads=2,
                      hidden=5, vocabulary=11, context=70, target_context=67, lengths=[69, 65], targets=[66, 3], seed=3),
    "input": dict(COMMON, norm="pre", positions="sinusoidal", sharing="input", layers=1, decoder_layers=1, width=6, heads=2, hidden=5,
                  vocabulary=11, smoothing=0.1, seed=4),
}
NO_TARGET = -100

NAMES = {"self_attn": "self_attn", "multihead_attn": "encoder_attn", "linear1": "fc1", "linear2": "fc2"}
ENCODER_NORMS = {"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"}
DECODER_NORMS = {"norm1": "self_attn_layer_norm", "norm2": "encoder_attn_layer_norm", "norm3": "final_layer_norm"}


def sinusoidal(length, width):
    table = torch.zeros(length, width, dtype=torch.float64)
    for position in range(length):
        for i in range(0, width, 2):
            angle = position / 10000 ** (i / width)
            table[position, i], table[position, i + 1] = math.sin(angle), math.cos(angle)
    return table


class Seq2Seq(nn.Module):
    def __init__(self, case):
        super().__init__()
        width, is_pre = case["width"], case["norm"] == "pre"
        self.case = case
        options = dict(d_model=width, nhead=case["heads"], dim_feedforward=case["hidden"], dropout=0.0, activation="relu",
                       layer_norm_eps=case["epsilon"], batch_first=True, norm_first=is_pre)
        norm = lambda: nn.LayerNorm(width, eps=case["epsilon"]) if is_pre else None
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), case["layers"], norm())
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), case["decoder_layers"], norm())
        self.source = nn.Embedding(case["vocabulary"], width)
        if case["sharing"] not in ("all", "input"):
            self.target = nn.Embedding(case["vocabulary"], width)
        if case["sharing"] in ("input", "none"):
            self.output = nn.Linear(width, case["vocabulary"], bias=False)
        if case["positions"] == "learned":
            self.source_positions = nn.Embedding(case["context"], width)
            self.target_positions = nn.Embedding(case["target_context"], width)

    def embed(self, table, ids, side):
        tokens, width = ids.shape[1], self.case["width"]
        if self.case["positions"] == "learned":
            positions = getattr(self, side + "_positions")(torch.arange(tokens))
        else:
            positions = sinusoidal(tokens, width)
        return table(ids) * math.sqrt(width) + positions

    def logits(self, fields):
        target = self.source if self.case["sharing"] in ("all", "input") else self.target
        output = self.output if self.case["sharing"] in ("input", "none") else target
        padding = torch.arange(fields["source"].shape[1])[None, :] >= fields["source_length"]
        tokens = fields["ids"].shape[1]
        future = torch.full((tokens, tokens), float("-inf"), dtype=torch.float64).triu(1)
        memory = self.encoder(self.embed(self.source, fields["source"], "source"), src_key_padding_mask=padding)
        y = self.decoder(self.embed(target, fields["ids"], "target"), memory, tgt_mask=future,
                         memory_key_padding_mask=padding)
        return functional.linear(y, output.weight).flatten(0, 1)

    def loss(self, logits, fields):
        # The mean is over all rows, padding or not: whoever trains weighs it by the number of targets.
        return functional.cross_entropy(logits, fields["targets"].flatten(), ignore_index=NO_TARGET, reduction="sum",
                                        label_smoothing=self.case["smoothing"]) / logits.shape[0]


def our_parameters(model):
    """Name, parameter, and the slice of its rows that the name stands for."""
    is_shared = model.case["sharing"] in ("all", "input")
    plain = {"source": "shared" if is_shared else "encoder.embed_tokens", "target": "decoder.embed_tokens",
             "output": "output", "source_positions": "encoder.embed_positions", "target_positions": "decoder.embed_positions",
             "encoder.norm": "encoder.layer_norm", "decoder.norm": "decoder.layer_norm"}
    for name, parameter in model.named_parameters():
        stem, _, leaf = name.rpartition(".")
        if stem in plain:
            yield f"{plain[stem]}.{leaf}", parameter, slice(None)
            continue
        side, _, layer, part = stem.split(".", 3)
        at = f"{side}.layers.{layer}"
        norms = ENCODER_NORMS if side == "encoder" else DECODER_NORMS
        if leaf.startswith("in_proj"):
            third = parameter.shape[0] // 3
            for i, which in enumerate(("q_proj", "k_proj", "v_proj")):
                yield (f"{at}.{NAMES[part]}.{which}.{leaf.removeprefix('in_proj_')}", parameter,
                       slice(i * third, (i + 1) * third))
        elif part.endswith(".out_proj"):
            yield f"{at}.{NAMES[part.removesuffix('.out_proj')]}.out_proj.{leaf}", parameter, slice(None)
        else:
            yield f"{at}.{norms.get(part) or NAMES[part]}.{leaf}", parameter, slice(None)


def make_fields(case, generator):
    samples = len(case["lengths"])
    draw = lambda *shape: torch.randint(case["vocabulary"], shape, generator=generator)
    tokens = max(case["targets"])
    written = torch.arange(tokens)[None, :] < torch.tensor(case["targets"])[:, None]
    return {"source": draw(samples, max(case["lengths"])), "source_length": torch.tensor(case["lengths"])[:, None],
            "ids": draw(samples, tokens), "targets": torch.where(written, draw(samples, tokens), torch.tensor(NO_TARGET))}


def config_of(case):
    return {"model_type": "laconic-seq2seq", "encoder_layers": case["layers"], "decoder_layers": case["decoder_layers"],
            "width": case["width"], "heads": case["heads"], "hidden": case["hidden"], "context": case["context"],
            "target_context": case["target_context"], "vocab_size": case["vocabulary"], "layer_norm_eps": case["epsilon"],
            "norm": case["norm"], "positions": case["positions"], "sharing": case["sharing"], "torch_dtype": "float32"}


def write_case(folder, case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Seq2Seq(case).double()
    draw_parameters(model, generator)
    fields = make_fields(case, generator)
    write_renamed_case(folder, config_of(case), model, list(our_parameters(model)), fields,
                       {"smoothing": torch.tensor(case["smoothing"], dtype=torch.float64)})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name, case in CASES.items():
        write_case(pathlib.Path(sys.argv[1]) / name, case)


if __name__ == "__main__":
    main()
