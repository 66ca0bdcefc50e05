#!/usr/bin/env python3
"""Writes tests/golden/bert/CASE/ with PyTorch's own modules: a BERT that nobody here wrote.

usage: /usr/bin/python3 tools/make_bert_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). The layers are torch.nn.TransformerEncoderLayer with the norm behind the sum, GELU by
erf and a padding mask; heads are torch.nn's linear maps, norms and losses. Files are those that make_gpt_golden.py
describes (a span's ends are chosen among the tokens that are no padding); expected.safetensors has the batch's fields, and as logits what the head puts out (padding of spans as 0).
"""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

from golden_steps import draw_parameters, write_renamed_case

# Sizes that divide nothing; samples of different lengths, one of a single token.
COMMON = dict(layers=2, width=24, heads=3, hidden=41, context=11, vocabulary=37, epsilon=1e-12, types=2, labels=2)
CASES = {
    "masked": dict(COMMON, head="masked", lengths=[9, 4, 1], tokens=9, seed=1),
    "pretraining": dict(COMMON, head="pretraining", lengths=[7, 9], tokens=9, seed=2),
    "classify": dict(COMMON, head="classify", labels=3, lengths=[67, 65, 3], tokens=67, context=67, layers=1, width=6,
                     heads=2, hidden=7, seed=3),
    "regress": dict(COMMON, head="regress", lengths=[5, 8, 2], tokens=8, layers=1, seed=4),
    "span": dict(COMMON, head="span", lengths=[11, 6, 9], tokens=11, layers=1, seed=5),
}
ARCHITECTURES = {"masked": "BertForMaskedLM", "pretraining": "BertForPreTraining",
                 "classify": "BertForSequenceClassification", "regress": "BertForSequenceClassification",
                 "span": "BertForQuestionAnswering"}
NO_TARGET = -100  # PyTorch's own mark

# Parameters of TransformerEncoderLayer, and what BERT calls them; in_proj is cut in three.
LAYER_NAMES = {"self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
               "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm"}


class Bert(nn.Module):
    def __init__(self, case):
        super().__init__()
        width = case["width"]
        self.case = case
        self.words = nn.Embedding(case["vocabulary"], width)
        self.positions = nn.Embedding(case["context"], width)
        self.types = nn.Embedding(case["types"], width)
        self.norm = nn.LayerNorm(width, eps=case["epsilon"])
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, case["heads"], case["hidden"], dropout=0.0, norm_first=False,
                                       batch_first=True, activation="gelu", layer_norm_eps=case["epsilon"])
            for _ in range(case["layers"]))
        head = case["head"]
        if head in ("pretraining", "classify", "regress"):
            self.pooler = nn.Linear(width, width)
        if head in ("masked", "pretraining"):
            self.transform = nn.Linear(width, width)
            self.transform_norm = nn.LayerNorm(width, eps=case["epsilon"])
            self.bias = nn.Parameter(torch.zeros(case["vocabulary"]))
        outputs = {"pretraining": 2, "classify": case["labels"], "regress": 1, "span": 2}
        if head in outputs:
            self.last = nn.Linear(width, outputs[head])

    def encode(self, fields):
        tokens = fields["ids"].shape[1]
        x = self.norm(self.words(fields["ids"]) + self.positions(torch.arange(tokens)) + self.types(fields["types"]))
        padding = torch.arange(tokens)[None, :] >= fields["length"]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return x

    def logits(self, fields):
        x, head = self.encode(fields), self.case["head"]
        if head in ("masked", "pretraining"):
            y = self.transform_norm(functional.gelu(self.transform(x)))
            self.next = self.last(torch.tanh(self.pooler(x[:, 0]))) if head == "pretraining" else None
            return functional.linear(y, self.words.weight, self.bias).flatten(0, 1)
        if head == "span":
            padding = torch.arange(x.shape[1])[None, None, :] >= fields["length"][:, :, None]
            ends = self.last(x).transpose(1, 2)
            self.ends = ends.masked_fill(padding, float("-inf"))
            return ends.masked_fill(padding, 0)
        return self.last(torch.tanh(self.pooler(x[:, 0])))

    def loss(self, logits, fields):
        head = self.case["head"]
        if head in ("masked", "pretraining"):
            # The mean is over all rows here, hidden or not: whoever trains weighs it by the number of targets.
            loss = functional.cross_entropy(logits, fields["targets"].flatten(), ignore_index=NO_TARGET,
                                            reduction="sum") / logits.shape[0]
            return loss if head == "masked" else loss + functional.cross_entropy(self.next, fields["next"].flatten())
        if head == "classify":
            return functional.cross_entropy(logits, fields["label"].flatten())
        if head == "regress":
            return functional.mse_loss(logits, fields["score"])
        return (functional.cross_entropy(self.ends[:, 0], fields["start"].flatten(), ignore_index=NO_TARGET, reduction="sum")
                + functional.cross_entropy(self.ends[:, 1], fields["end"].flatten(), ignore_index=NO_TARGET,
                                           reduction="sum")) / (2 * logits.shape[0])


def hugging_face_parameters(model):
    """Name, parameter, and the slice of its rows that the name stands for."""
    plain = {"words.weight": "bert.embeddings.word_embeddings.weight",
             "positions.weight": "bert.embeddings.position_embeddings.weight",
             "types.weight": "bert.embeddings.token_type_embeddings.weight",
             "norm": "bert.embeddings.LayerNorm", "pooler": "bert.pooler.dense", "bias": "cls.predictions.bias",
             "transform": "cls.predictions.transform.dense", "transform_norm": "cls.predictions.transform.LayerNorm",
             "last": {"pretraining": "cls.seq_relationship", "span": "qa_outputs"}.get(model.case["head"], "classifier")}
    for name, parameter in model.named_parameters():
        stem, _, leaf = name.rpartition(".")
        if name in plain:
            yield plain[name], parameter, slice(None)
        elif stem in plain:
            yield f"{plain[stem]}.{leaf}", parameter, slice(None)
        else:
            _, layer, stem = stem.split(".", 2)
            at = f"bert.encoder.layer.{layer}"
            if leaf.startswith("in_proj"):
                third = parameter.shape[0] // 3
                for i, part in enumerate(("query", "key", "value")):
                    yield (f"{at}.attention.self.{part}.{leaf.removeprefix('in_proj_')}", parameter,
                           slice(i * third, (i + 1) * third))
            else:
                yield f"{at}.{LAYER_NAMES[stem]}.{leaf}", parameter, slice(None)


def make_fields(case, generator):
    samples, tokens = len(case["lengths"]), case["tokens"]
    draw = lambda most, *shape: torch.randint(most, shape, generator=generator)
    length = torch.tensor(case["lengths"])[:, None]
    position = torch.arange(tokens)[None, :]
    fields = {"ids": draw(case["vocabulary"], samples, tokens), "types": (position >= (length + 1) // 2).long(),
              "length": length}
    if case["head"] in ("masked", "pretraining"):
        hidden = (torch.rand(samples, tokens, generator=generator) < 0.4) & (position < length)
        fields["targets"] = torch.where(hidden, draw(case["vocabulary"], samples, tokens), torch.tensor(NO_TARGET))
    if case["head"] == "pretraining":
        fields["next"] = draw(2, samples, 1)
    if case["head"] == "classify":
        fields["label"] = draw(case["labels"], samples, 1)
    if case["head"] == "regress":
        fields["score"] = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    if case["head"] == "span":
        fields["start"] = torch.tensor([[3], [NO_TARGET], [0]])
        fields["end"] = torch.tensor([[7], [NO_TARGET], [8]])
    return fields


def config_of(case):
    config = {"architectures": [ARCHITECTURES[case["head"]]], "model_type": "bert", "hidden_act": "gelu",
              "num_hidden_layers": case["layers"], "hidden_size": case["width"], "num_attention_heads": case["heads"],
              "intermediate_size": case["hidden"], "max_position_embeddings": case["context"],
              "vocab_size": case["vocabulary"], "type_vocab_size": case["types"], "layer_norm_eps": case["epsilon"],
              "torch_dtype": "float32"}
    if case["head"] == "classify":
        config["id2label"] = {str(i): f"class {i}" for i in range(case["labels"])}
    if case["head"] == "regress":
        config.update(problem_type="regression", id2label={"0": "LABEL_0"})
    return config


def write_case(folder, case):
    generator = torch.Generator().manual_seed(case["seed"])
    model = Bert(case).double()
    draw_parameters(model, generator)
    fields = make_fields(case, generator)
    write_renamed_case(folder, config_of(case), model, list(hugging_face_parameters(model)), fields)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name, case in CASES.items():
        write_case(pathlib.Path(sys.argv[1]) / name, case)


if __name__ == "__main__":
    main()
