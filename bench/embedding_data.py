"""Models and samples of bench/embedding.py: EmbRace's four, smaller, with about its shares of tables."""

import csv
import json
import lzma
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
DATA = pathlib.Path(os.environ.get("LACONIC_DATA", ROOT.parent / "shared/data"))
WORDS = 12000  # of BERT's vocabulary, the first ones

# Keys of [model] and [task], samples of a step over all ranks, and the tables that are looked up.
MODELS = {
    "lm": {"keys": {"model.kind": "lstm", "model.layers": 1, "model.width": 256, "model.hidden": 512, "model.projection": "output",
                    "model.context": 20, "model.vocabulary": 200000, "task.sampled": 2048, "task.negatives": "rank"}, "batch": 64, "tables": 2},
    "gnmt": {"keys": {"model.kind": "gnmt", "model.layers": 4, "model.width": 256, "model.context": 48, "model.vocabulary": WORDS,
                      "task.kind": "translate", "task.label_smoothing": 0.1, "task.pad": "longest"}, "batch": 32, "tables": 2},
    "transformer": {"keys": {"model.kind": "seq2seq", "model.layers": 6, "model.width": 256, "model.heads": 4, "model.context": 48,
                             "model.norm": "post", "model.sharing": "none", "model.vocabulary": WORDS, "task.kind": "translate",
                             "task.label_smoothing": 0.1, "task.pad": "longest"}, "batch": 16, "tables": 2},
    "bert": {"keys": {"model.kind": "bert", "model.layers": 12, "model.width": 256, "model.heads": 4, "model.context": 128,
                      "model.vocabulary": WORDS, "task.kind": "span", "task.pad": "longest"}, "batch": 16, "tables": 1},
}


def prepare_with(*words):
    subprocess.run(list(map(str, [BIN / "laconic", "prepare", *words])), check=True, stdout=subprocess.DEVNULL)


def cut_vocabulary(folder):
    path = pathlib.Path(folder, "vocab.txt")
    with lzma.open(DATA / "bert-vocab/bert-base-uncased-vocab.txt.xz", "rt") as whole:
        path.write_text("".join(line for line, _ in zip(whole, range(WORDS))))
    return path


def questions():
    """Questions of QNLI with their sentences; an answer is the longest word of the sentence, since QNLI has none."""
    with lzma.open(DATA / "qnli/dev.tsv.xz", "rt") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            word = max(row["sentence"].split(), key=len)
            yield {"question": row["question"], "context": row["sentence"], "answer": word, "answer_start": row["sentence"].index(word)}


def prepare(model, folder):
    out = ("--out", f"{folder}/{model}", "--overwrite")
    if model == "lm":
        return prepare_with("--synthetic", "zipf", "--tokens", 200000, "--vocabulary", MODELS["lm"]["keys"]["model.vocabulary"], *out)
    words = cut_vocabulary(folder)
    if model == "bert":
        pathlib.Path(folder, "spans.jsonl").write_text("".join(json.dumps(one) + "\n" for one, _ in zip(questions(), range(1000))))
        return prepare_with(f"{folder}/spans.jsonl", "--task", "span", "--tokeniser", words, *out)
    for side in ("de", "en"):
        with lzma.open(DATA / f"multi30k/raw/train.{side}.xz", "rt") as text:
            pathlib.Path(folder, f"text.{side}").write_text("".join(line for line, _ in zip(text, range(2000))))
    return prepare_with("--task", "translate", "--source", f"{folder}/text.de", "--target", f"{folder}/text.en", "--tokeniser", words, *out)
