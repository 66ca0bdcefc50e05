#!/usr/bin/env python3
"""Writes tests/golden/metric/*.json with scikit-learn, SciPy and sacreBLEU.

usage: tools/make_metric_golden.py OUT_DIR

Needs Debian's python3-sklearn and python3-scipy, and sacrebleu (pip install sacrebleu, or its
sources in PYTHONPATH).
"""
import json
import pathlib
import random
import sys
import warnings

import numpy
import scipy
import scipy.stats
import sklearn
import sklearn.metrics
from sacrebleu.metrics import BLEU
import sacrebleu

draw = random.Random(15)


def label_cases():
    yield "perfect", [0, 1, 1, 0], [0, 1, 1, 0]
    yield "all wrong", [1, 0, 0, 1], [0, 1, 1, 0]
    yield "one sample", [1], [1]
    yield "nothing predicted positive", [0, 0, 0, 0], [0, 1, 1, 0]
    yield "nothing positive", [0, 0, 0], [0, 0, 0]
    yield "everything positive", [1, 1, 1], [1, 1, 1]
    yield "one class predicted", [1, 1, 1, 1], [0, 1, 1, 0]
    for size, share in ((10, 0.5), (100, 0.1), (1000, 0.9), (1043, 0.69)):
        actual = [int(draw.random() < share) for _ in range(size)]
        predicted = [a if draw.random() < 0.8 else 1 - a for a in actual]
        yield f"{size} binary", predicted, actual
    for classes in (3, 7):
        actual = [draw.randrange(classes) for _ in range(300)]
        predicted = [a if draw.random() < 0.6 else draw.randrange(classes) for a in actual]
        yield f"{classes} classes", predicted, actual


def value_cases():
    yield "line", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    yield "falling line", [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    yield "two values", [0.1, 0.7], [5.0, 4.0]
    yield "constant predictions", [0.1, 0.1, 0.1], [1.0, 2.0, 3.0]
    yield "constant truth", [1.0, 2.0, 3.0], [5.0, 5.0, 5.0]
    yield "ties", [1.0, 2.0, 2.0, 3.0, 3.0, 3.0], [2.0, 1.0, 2.0, 2.0, 5.0, 5.0]
    yield "large offset", [1e6 + 0.25 * i for i in range(20)], [float(i * i % 7) for i in range(20)]
    yield "tiny", [1e-200 * i for i in (1, 5, 2, 8)], [3.0, 1.0, 4.0, 1.5]
    yield "huge", [1e200 * i for i in (1, 5, 2, 8)], [3.0, 1.0, 4.0, 1.5]
    for size in (5, 50, 1500):
        actual = [round(draw.uniform(0, 5), 1) for _ in range(size)]  # as in STS-B: many ties
        predicted = [a + draw.gauss(0, 0.8) for a in actual]
        yield f"{size} scores", predicted, actual


def defined(value):
    return None if numpy.isnan(value) else float(value)


LINES = [
    "The cat sat on the mat.", "A dog, a cat; and \"a bird\"!", "It costs $1,234.56 - or 50-60% more...",
    "He said: &quot;it&apos;s 3.14&quot; &amp;amp; left &lt;now&gt;.", "state-of-the-art 1990-1995 U.S.A. e.g., i.e.",
    "Ein M\u00e4dchen \u2014 na\u00efve \u2014 l\u00e4uft \u00fcber die Stra\u00dfe.", "\u4f60\u597d\uff0c\u4e16\u754c\u3002 ok.", "a\u00a0b\u2003c\u3000d\u200be \u1680 f",
    "x<skipped>y hyphen-\nated line\nbreak", "..,,..1.2,3.", "1-2-3--4 5 - 6 -7", "(a)[b]{c}<d>/e\\f|g~h`i^j_k@l#m%n&o*p+q=r",
    "don't 'quoted' rock'n'roll", "trailing blanks \t \u2003", " \n ", "\U0001f600 emoji.\U0001f600, 5.\u0665",
    "one", "two words", "three little words", "Two young, White males are outside near many bushes.",
    "a a a a a a a", "the the the cat the", "\x1c\x1d a \x85 b\x1f.", "end-\n", "A.B.C., 1,000,000.00.",
]


def bleu_cases():
    yield "identical", LINES[:5], [[line] for line in LINES[:5]]
    yield "nothing common", ["a b c d e"], [["v w x y z"]]
    yield "one word in common", ["a b c d e"], [["v w a y z"]]
    yield "short translation", ["the cat"], [["the cat sat on the mat"]]
    yield "three words", ["the cat sat"], [["the cat sat"]]
    yield "empty translation", ["", "the cat sat on the mat"], [["a dog"], ["the cat sat on a mat"]]
    yield "only empty translations", ["", ""], [["a dog"], ["a cat"]]
    yield "clipping", ["the the the the the the the"], [["the cat is on the mat", "there is a cat on the mat"]]
    yield "two as near", ["a b c d e f"], [["a b c d e f g h", "a b c d"]]
    yield "several references", ["It is a guide to action which ensures that the military always obeys the commands of the party."], [[
        "It is a guide to action that ensures that the military will forever heed Party commands.",
        "It is the guiding principle which guarantees the military forces always being under the command of the Party.",
        "It is the practical guide for the army always to heed the directions of the party."]]
    yield "a varying number of references", ["a b c d e", "f g h i j"], [["a b c d f", "a b x d e"], ["f g h i k"]]
    yield "an empty reference", ["a b c d e", "f g h i j"], [["a b c d f"], [""]]
    for number in range(6):
        references, translations = [], []
        for _ in range(40):
            line = draw.choice([text for text in LINES if text.strip()])
            words = (line + " " + draw.choice(LINES)).split(" ")
            references.append([" ".join(words)])
            for _ in range(draw.randrange(1 + number * 2)):
                at = draw.randrange(len(words))
                words[at:at + 1] = draw.choice([[], [draw.choice("abc")], [words[at]] * 2])
                words = words or ["x"]
            translations.append(" ".join(words))
        yield f"corpus {number}", translations, references


def bleu_row(name, translations, references):
    most = max(map(len, references))
    columns = [[lines[i] if i < len(lines) else None for lines in references] for i in range(most)]
    metric = BLEU()
    score = metric.corpus_score(translations, columns)
    return {"name": name, "translations": translations, "references": references, "score": score.score,
            "precisions": score.precisions, "correct": list(score.counts), "total": list(score.totals),
            "brevity_penalty": score.bp, "length": score.sys_len, "reference_length": score.ref_len,
            "signature": str(metric.get_signature()), "text": str(score)}


def write(path, value):
    path.write_text(json.dumps(value, indent=None, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    labels = []
    for name, predicted, actual in label_cases():
        row = {"name": name, "predicted": predicted, "actual": actual,
               "accuracy": float(sklearn.metrics.accuracy_score(actual, predicted)),
               "matthews": float(sklearn.metrics.matthews_corrcoef(actual, predicted))}
        if set(predicted + actual) <= {0, 1}:
            row["f1"] = float(sklearn.metrics.f1_score(actual, predicted, zero_division=0))
        labels.append(row)
    write(out / "labels.json", {"made_by": f"scikit-learn {sklearn.__version__}", "cases": labels})
    values = []
    for name, predicted, actual in value_cases():
        values.append({"name": name, "predicted": predicted, "actual": actual,
                       "pearson": defined(scipy.stats.pearsonr(predicted, actual)[0]),
                       "spearman": defined(scipy.stats.spearmanr(predicted, actual)[0])})
    write(out / "values.json", {"made_by": f"SciPy {scipy.__version__}", "cases": values})
    tokeniser = BLEU().tokenizer
    write(out / "bleu.json", {
        "made_by": f"sacreBLEU {sacrebleu.__version__}",
        "lines": [[line, tokeniser(line)] for line in LINES],
        "cases": [bleu_row(*case) for case in bleu_cases()]})
    print("OK")


if __name__ == "__main__":
    main()
