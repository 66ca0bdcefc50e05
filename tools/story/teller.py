"""Turns templates into sentences, and keeps count so that none is told too often."""
import random
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
CHOICE = re.compile(r"\[([^\[\]]*)\]")
ARTICLE = re.compile(r"\b([Aa]) (?=(?:[aeio]|u(?!se|ni)|hour|honest))")
SENTENCE_START = re.compile(r'([.!?] "?)([a-z])')
SENTENCE_END = re.compile(r'(?<=[.!?])(?:"(?= [A-Z"])|) (?=["A-Z])|\n')
NUMERAL = re.compile(r"(?:\d+\.)?")  # the number of a step is no sentence
ONES = ("nought one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen").split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def load_rules(name):
    """Reads a data file: '== rule' opens a list of lines; '#' starts a comment line."""
    rules = {}
    for line in (HERE / name).read_text(encoding="ascii").splitlines():
        if line.startswith("== "):
            current = rules.setdefault(line[3:].strip(), [])
        elif line.strip() and not line.startswith("#"):
            current.append(line.strip())
    return rules


def load_lexicon():
    """A lexicon line is a list; it is split on ';' where its entries may hold commas."""
    lexicon = {}
    for name, lines in load_rules("lexicon.txt").items():
        text = " ".join(lines)
        lexicon[name] = [w.strip() for w in text.split(";" if ";" in text else ",")]
    return lexicon


class Word(str):
    """A phrase that a template can capitalise ({s.cap}) or not ({x.proverb.low})."""

    @property
    def cap(self):
        return Word(self[:1].upper() + self[1:])

    Cap = cap

    @property
    def low(self):
        return Word(self[:1].lower() + self[1:])


def number(n):
    """An integer below 1000 in words."""
    if n < 20:
        return Word(ONES[n])
    if n < 100:
        return Word(TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else ""))
    rest = " and " + number(n % 100) if n % 100 else ""
    return Word(ONES[n // 100] + " hundred" + rest)


def clock(minute):
    """A time of day, given in minutes after midnight (multiples of five), as people say it."""
    hour, past = minute // 60, minute % 60
    this, following = (number((h - 1) % 12 + 1) for h in (hour, hour + 1))
    if past == 0:
        return Word(f"{this} o'clock")
    if past == 30:
        return Word(f"half past {this}")
    near = past if past < 30 else 60 - past
    side = f"past {this}" if past < 30 else f"to {following}"
    return Word(f"{'a quarter' if near == 15 else number(near)} {side}")


def sentences(text):
    """The sentences of a text; titles, table rows and other lines without a full stop are left out."""
    for line in text.split("\n"):
        if line.rstrip('"')[-1:] in (".", "!", "?"):
            yield from (part.strip() for part in SENTENCE_END.split(line) if not NUMERAL.fullmatch(part.strip()))


class Draws:
    """Draws from the lexicon as attributes; a document does not see a word again until it must."""

    def __init__(self, rng, lexicon):
        self._rng, self._lexicon, self._used = rng, lexicon, set()

    def __getattr__(self, name):
        return self.among(name, self._lexicon[name])

    def among(self, name, words):
        fresh = [w for w in words if (name, w) not in self._used] or words
        word = self._rng.choice(fresh)
        self._used.add((name, word))
        return Word(word)

    def chance(self, probability):
        return self._rng.random() < probability

    def reset(self):
        self._used.clear()


class AnyNumber:
    """{n}: another small number in words each time it is formatted."""

    def __init__(self, rng):
        self._rng = rng

    def __format__(self, spec):
        return number(self._rng.randint(3, 12))


class Teller:
    """Chooses templates and expands them, preferring sentences that have not been told yet."""

    TRIES = 12

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.rules = {**load_rules("templates.txt"), **load_rules("papers.txt")}
        self.x = Draws(self.rng, load_lexicon())
        self.told = Counter()
        self.used = set()

    def new_document(self):
        self.used.clear()
        self.x.reset()

    def expand(self, template, **names):
        text, changed = template, 1
        while changed:  # innermost choices first, so that they may be nested
            text, changed = CHOICE.subn(lambda m: self.rng.choice(m[1].split("|")), text)
        text = text.format(x=self.x, **{"n": AnyNumber(self.rng), **names})
        text = ARTICLE.sub(r"\1n ", text)
        text = SENTENCE_START.sub(lambda m: m[1] + m[2].upper(), text)
        first = re.search(r"[A-Za-z]", text)
        if first and first.start() <= 1:
            text = text[:first.start()] + text[first.start():first.start() + 1].upper() + text[first.start() + 1:]
        return text

    def say(self, rule, **names):
        """One telling of a rule: the least told of several tries, and no template twice in a document."""
        templates = self.rules[rule]
        best = None
        for _ in range(self.TRIES):
            fresh = [t for t in templates if t not in self.used] or templates
            template = self.rng.choice(fresh)
            text = self.expand(template, **names)
            repeats = sum(self.told[s] for s in sentences(text))
            if best is None or repeats < best[0]:
                best = (repeats, template, text)
            if repeats == 0:
                break
        _, template, text = best
        self.used.add(template)
        self.told.update(sentences(text))
        return text

    def chance(self, probability):
        return self.rng.random() < probability
