#!/usr/bin/env python3
"""Writes the corpus of the quickstart: tales and papers of Pellhaven, a harbour town that does not exist.

    tools/make_corpus.py            write examples/quickstart/corpus/*.txt
    tools/make_corpus.py --check    verify the sums in the committed files, and that they can be made again

The same seed gives the same bytes. Documents are separated by one blank line; a document holds none.
"""
import argparse
import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

from story import papers, tales
from story.teller import Teller, sentences
from story.world import World

DEFAULT_OUT = Path(__file__).parent.parent / "examples" / "quickstart" / "corpus"
SEED = 1871
TOTAL_BYTES = 2_800_000
FILE_BYTES = 470_000  # the pre-commit hook refuses files above 500 kB
GENRES = {tales.tale: 40, papers.dialogue: 14, papers.letter: 12, papers.diary: 6, papers.ship_log: 5,
          papers.keeper_log: 3, papers.ledger: 5, papers.timetable: 1, papers.recipe: 4, papers.howto: 2,
          papers.riddle: 4, papers.verse: 2, papers.proverbs: 2, papers.slate: 4, papers.portrait: 6,
          papers.directions: 3, papers.notice: 3, papers.nature: 4}


def documents(seed, total_bytes):
    """Yields documents until they, with their separators, fill total_bytes."""
    teller = Teller(seed)
    world = World(teller.x)
    genres, weights = list(GENRES), list(GENRES.values())
    size = 0
    while size < total_bytes:
        text = teller.rng.choices(genres, weights)[0](world, teller)
        assert "\n\n" not in text and text.isascii() and text == text.strip(), text
        size += len(text) + 2
        yield text


def files(seed, total_bytes):
    """The corpus as {file name: text}, in files that stay below FILE_BYTES."""
    parts, size = [[]], 0
    for text in documents(seed, total_bytes):
        if size + len(text) + 2 > FILE_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += len(text) + 2
    return {f"pellhaven-{i + 1}.txt": "\n\n".join(part) + "\n" for i, part in enumerate(parts)}


def statistics(corpus):
    whole = "\n".join(corpus.values())
    words = re.findall(r"[a-z]+(?:['-][a-z]+)*", whole.lower())
    counts = Counter(sentences(whole))
    total = sum(counts.values())
    return {"bytes": sum(len(text) for text in corpus.values()),
            "documents": sum(text.count("\n\n") + 1 for text in corpus.values()),
            "words": len(words), "word types": len(set(words)), "sentences": total,
            "repeated sentences (share told before)": f"{100 * (total - len(counts)) / total:.1f} %",
            "most repeated sentence": f"{counts.most_common(1)[0][1]} times"}


def ledger_errors(document):
    """Wrong products, totals or change in an account."""
    rows = re.findall(r"^(\d+) .*?(?: at (\d+) pence)?: (\d+) pence$", document, re.M)
    total, paid, change = (int(re.search(rf"^{key}: (\d+) pence$", document, re.M)[1])
                           for key in ("Total", "Paid", "Change"))
    bad = [row for row in rows if row[1] and int(row[0]) * int(row[1]) != int(row[2])]
    if sum(int(row[2]) for row in rows) != total or paid - total != change:
        bad.append((total, paid, change))
    return bad


def running_errors(document, start, sign, pattern):
    """Entries whose running total does not follow from the one before."""
    bad = []
    for step, running in re.findall(pattern, document):
        start += sign * int(step or 0)
        if start != int(running):
            bad.append((step, running))
    return bad


def equation_errors(document):
    apply = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "x": lambda a, b: a * b, "/": lambda a, b: a / b}
    return [m for m in re.findall(r"(\d+) ([-+x/]) (\d+) = (\d+)", document)
            if apply[m[1]](int(m[0]), int(m[2])) != int(m[3])]


def timetable_errors(document):
    crossing = int(re.search(r"takes (\d+) minutes", document)[1])
    rows = re.findall(r"Leaves (\d+)\.(\d+), arrives (\d+)\.(\d+)", document)
    return [r for r in rows if 60 * int(r[0]) + int(r[1]) + crossing != 60 * int(r[2]) + int(r[3])]


def sum_errors(document):
    """Reads a document back and does its sums again; independent of the code that wrote it."""
    if document.startswith("Account of "):
        return ledger_errors(document)
    if document.startswith("Log of "):
        return running_errors(document, 0, 1, r"(?:(\d+) baskets of [a-z]+|No fishing), (\d+) so far")
    if document.startswith("Lighthouse book"):
        store = int(re.search(r"(\d+) pints of oil in store", document)[1])
        return running_errors(document, store, -1, r"used (\d+) pints, left (\d+) pints")
    if document.startswith("Ferry to "):
        return timetable_errors(document)
    return equation_errors(document)


def check(out, corpus):
    """True if the committed files are the ones that this program makes and all their sums are right."""
    good = True
    for name in sorted({p.name for p in out.glob("*.txt")} | set(corpus)):
        path = out / name
        found = path.read_bytes() if path.exists() else b""
        wanted = corpus.get(name, "").encode()
        digest = hashlib.sha256(found).hexdigest()[:16]
        same = digest == hashlib.sha256(wanted).hexdigest()[:16]
        errors = [e for document in found.decode().rstrip("\n").split("\n\n") for e in sum_errors(document)]
        print(f"{name}: sha256 {digest}, {'same' if same else 'DIFFERENT'}, {len(errors)} wrong sums", *errors[:3])
        good = good and same and not errors
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--bytes", type=int, default=TOTAL_BYTES, help="size of the corpus")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--check", action="store_true", help="write nothing; verify what is there")
    args = parser.parse_args()
    corpus = files(args.seed, args.bytes)
    if args.check:
        sys.exit(0 if check(args.out, corpus) else 1)
    args.out.mkdir(parents=True, exist_ok=True)
    for old in args.out.glob("pellhaven-*.txt"):
        old.unlink()
    for name, text in corpus.items():
        (args.out / name).write_text(text, encoding="ascii", newline="\n")
    for key, value in statistics(corpus).items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
