#!/usr/bin/env python3
"""Writes the tables of synthetic tasks: texts of single words that a small model can learn all of.

    studies/synthetic.py FOLDER [SEED]

recall   n pairs of a key and a value, then a key: which value had it? All must pass every boundary, in n grades
count    words of four classes in any order: of which are there most? Needs a channel for each class
bytes    words of four letters, some of which are hidden: each can be known from any other of its word (byte-level masked language model)
copy     a sequence and the same once more: every position of the second half can be known from the first

FOLDER gets TASK.tsv and TASK-valid.tsv (text, label), bytes.txt, copy.txt and theirs for validation, and vocabulary/vocab.txt, a word for each token.
"""

import pathlib
import random
import sys

KEYS, VALUES = "abcdefghijkl", "01234567"
CLASSES = "pqrs"
COPIED, LETTERS = 12, "abcdefghijklmnop"
WORDS = ["lake", "dimo", "fgbn", "pjch"]  # a letter is in one of them alone
IN_TEXT = 6
TRAIN, VALID = 20000, 1000


def recall(draw, pairs):
    keys = draw.sample(KEYS, pairs)
    values = [draw.choice(VALUES) for _ in keys]
    asked = draw.randrange(pairs)
    words = [word for pair in zip(keys, values) for word in pair]
    return " ".join([*words, "?", keys[asked]]), values[asked]


def count(draw):
    while True:
        words = [draw.choice(CLASSES) for _ in range(15)]
        numbers = sorted(((words.count(name), name) for name in CLASSES), reverse=True)
        if numbers[0][0] > numbers[1][0]:
            return " ".join(words), numbers[0][1]


def spelled(draw):
    return " ".join(letter for _ in range(IN_TEXT) for letter in draw.choice(WORDS)) + "\n\n"


def copied(draw):
    words = [draw.choice(LETTERS) for _ in range(COPIED)]
    return "".join(words) + "|" + "".join(words) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    (folder / "vocabulary").mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocabulary/vocab.txt").write_text("\n".join([*special, "?", *dict.fromkeys(KEYS + VALUES + CLASSES + LETTERS)]) + "\n")
    tasks = {"recall-2": lambda: recall(draw, 2), "recall-5": lambda: recall(draw, 5), "count": lambda: count(draw)}
    for name, task in tasks.items():
        for ending, number in (("", TRAIN), ("-valid", VALID)):
            lines = ["text\tlabel", *("\t".join(task()) for _ in range(number))]
            (folder / f"{name}{ending}.tsv").write_text("\n".join(lines) + "\n")
    for ending, number in (("", TRAIN // 2), ("-valid", VALID)):
        (folder / f"copy{ending}.txt").write_text("".join(copied(draw) for _ in range(number)))
    for ending, number in (("", TRAIN), ("-valid", VALID)):
        (folder / f"bytes{ending}.txt").write_text("".join(spelled(draw) for _ in range(number)))


if __name__ == "__main__":
    main()
