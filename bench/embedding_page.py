"""Pages of bench/embedding.py, from outcomes alone."""

import statistics

from embedding_data import MODELS
from embedding_stalls import stall_table

DENSE, BEST_OF_PEERS = "PyTorch: dense", ("PyTorch: dense", "PyTorch: sparse", "PyTorch: rows by hand")
OWN_BASELINES = ("laconic: allreduce", "laconic: allgather", "laconic: server")
# What each adds to the one before: spec 4.4.
LADDER = {"dense": "laconic: allreduce", "+ hybrid": "laconic: alltoall", "+ horizontal": "laconic: alltoall, block by block",
          "+ vertical": "laconic: alltoall, block by block, split", "hybrid + vertical, without horizontal": "laconic: alltoall, split"}
# What is judged: the whole method, whatever was fastest, since the fastest of several short runs is fast by luck, too.
JUDGED = ("laconic: alltoall, block by block, split", "laconic: alltoall, block by block, split, 8 bits",
          "laconic: alltoall, block by block, split, 4 bits")
CLASSES = {"dp.gradient": "dense sums", "embedding.rows": "rows"}


def tokens_of(model):
    """Of a step, padding and both sides of a translation counted as the context has them: the same for all contestants."""
    return MODELS[model]["batch"] * MODELS[model]["keys"]["model.context"]


def mean_step(outcome):
    """Of a round. The last step is left out where there are several: block by block it also waits for what steps before have put off."""
    seconds = outcome["seconds"]
    return statistics.mean(seconds[:-1] if len(seconds) > 2 else seconds)


class Outcomes:
    def __init__(self, outcomes):
        self.outcomes = outcomes

    def rounds(self, model, link, name):
        found = [(key, o) for key, o in self.outcomes.items() if key.startswith(f"{model}/{link}/{name} #")]
        return [o for _, o in sorted(found, key=lambda pair: pair[0])]

    def step(self, model, link, name):
        rounds = self.rounds(model, link, name)
        return statistics.median(self.steps(model, link, name)) if rounds else None

    def steps(self, model, link, name):
        return [mean_step(o) for o in self.rounds(model, link, name)]

    def mean(self, model, link, name, *keys):
        values = []
        for o in self.rounds(model, link, name):
            for key in keys:
                o = o.get(key, {}) if isinstance(o, dict) else {}
            values += [o] if isinstance(o, (int, float)) else []
        return statistics.mean(values) if values else 0


def ratio_text(found, model, link, mine, other):
    """Ratio of medians, in brackets those of single rounds."""
    ours, theirs = found.steps(model, link, mine), found.steps(model, link, other)
    if not ours or not theirs:
        return ""
    turns = [t / o for o, t in zip(ours, theirs)]
    text = f"**{found.step(model, link, other) / found.step(model, link, mine):.2f}x**"
    return text if len(turns) < 2 else f"{text} ({min(turns):.2f}–{max(turns):.2f})"


def best(found, model, link, names):
    measured = [name for name in names if found.step(model, link, name)]
    return min(measured, key=lambda name: found.step(model, link, name)) if measured else None


def speed_table(found, model, links, names):
    lines = ["| link | | step s | tokens/s | MB sent in a step | against dense DDP | against the best of PyTorch |", "|---|---|--:|--:|--:|--:|--:|"]
    for link in links:
        peer = best(found, model, link, BEST_OF_PEERS)
        for name in names:
            rounds = found.rounds(model, link, name)
            if not rounds:
                continue
            seconds = [s for o in rounds for s in (o["seconds"][:-1] if len(o["seconds"]) > 2 else o["seconds"])]
            middle = found.step(model, link, name)
            sent = found.mean(model, link, name, "sent")
            lines.append(f"| {link} | {name} | {middle:.3f} ({min(seconds):.3f}–{max(seconds):.3f}) | {tokens_of(model) / middle:.0f} | "
                         f"{f'{sent / 1e6:.1f}' if sent else ''} | {ratio_text(found, model, link, name, DENSE)} | "
                         f"{ratio_text(found, model, link, name, peer) if peer else ''} |")
    return [*lines, ""]


def verdicts(found, model, links):
    """What is judged against all baselines, of which the fastest counts."""
    lines = ["| link | | against dense DDP | best baseline of all | against it | share of its step that the baseline waits |", "|---|---|--:|---|--:|--:|"]
    for link in links:
        baseline = best(found, model, link, (*BEST_OF_PEERS, *OWN_BASELINES))
        for mine in JUDGED:
            if not baseline or not found.step(model, link, mine):
                continue
            waits = sum(found.mean(model, link, baseline, "exposed", c) for c in CLASSES) / found.step(model, link, baseline)
            lines.append(f"| {link} | {mine} | {ratio_text(found, model, link, mine, DENSE)} | {baseline} | {ratio_text(found, model, link, mine, baseline)} | "
                         f"{f'{100 * waits:.0f} %' if baseline in OWN_BASELINES else ''} |")
    return [*lines, ""]


def ladder(found, model, links):
    lines = ["| link | | step s | stall s: " + " | stall s: ".join(CLASSES.values()) + " | other s |", "|---|---|--:|" + "--:|" * (len(CLASSES) + 1)]
    for link in links:
        for stage, name in LADDER.items():
            step = found.step(model, link, name)
            if not step:
                continue
            stalls = [found.mean(model, link, name, "exposed", c) for c in CLASSES]
            lines.append(f"| {link} | {stage} | {step:.3f} | " + " | ".join(f"{s:.3f}" for s in stalls) + f" | {max(0, step - sum(stalls)):.3f} |")
    return [*lines, ""]


def memory(found, model, links, ranks):
    """Parameters and moments of a rank, of the whole model and of what alltoall leaves of the tables."""
    for link in links:
        whole, cut = (found.mean(model, link, name, "held") for name in ("laconic: allreduce", "laconic: alltoall"))
        if whole and cut:
            keys = MODELS[model]["keys"]
            table = 3 * 4 * keys["model.vocabulary"] * keys["model.width"] * MODELS[model]["tables"]
            return [f"A rank holds {whole / 1e6:.1f} MB of parameters and moments with `allreduce` and {cut / 1e6:.1f} MB with `alltoall`: "
                    f"{(whole - cut) / 1e6:.1f} MB less. Tables that are looked up and their moments are {table / 1e6:.1f} MB in all; of them "
                    f"{ranks - 1} of {ranks} parts are {table * (ranks - 1) / ranks / 1e6:.1f} MB.", ""]
    return []


def peaks(found, model, links, names):
    """What a rank had in memory at most, libraries, samples and messages included."""
    lines = ["| link | | peak MB of rank 0 |", "|---|---|--:|"]
    for link in links:
        lines += [f"| {link} | {name} | {found.mean(model, link, name, 'peak') / 1e6:.0f} |" for name in names if found.mean(model, link, name, "peak")]
    return [*lines, ""] if len(lines) > 2 else []


def losses(found, model, links, names):
    """Whether all exact ways of rows have the same losses, step by step."""
    lines = []
    for link in links:
        rows = {name: found.rounds(model, link, name)[0]["losses"] for name in names
                if name.startswith("laconic: ") and "bits" not in name and "allreduce" not in name and found.rounds(model, link, name)}
        if len(rows) < 2:
            continue
        count = min(map(len, rows.values()))
        first = next(iter(rows.values()))[:count]
        apart = [name for name, values in rows.items() if values[:count] != first]
        lines.append(f"Losses over {link} of {count} steps, digit for digit: " + (
            f"the same with {', '.join(n.removeprefix('laconic: ') for n in rows)}." if not apart else f"**{', '.join(apart)} differ** from {next(iter(rows))}, by "
            f"{max(abs(a - b) for name in apart for a, b in zip(rows[name], first)):.2g} at most."))
    return [*lines, ""] if lines else []


def intro(outcomes, ranks):
    commits = sorted({o["commit"] for key, o in outcomes.items() if "laconic: " in key})
    others = [o["others"] for o in outcomes.values()]
    return [f"{ranks} ranks with a thread each, a rank a host of a lab, float32, Adam, no clipping. The peer (bench/peers/torch_embedding.py) has our BLAS and our "
            "allocator's settings; *sparse* is DDP with `sparse=True` and SparseAdam, *rows by hand* is coalesced rows, gathered during backward in a group of their "
            "own, with an Adam of rows. Steps are medians over rounds of means, the last step left out (block by block it also waits for what others have put off), in brackets the least and the most step; ratios in brackets are "
            "those of single rounds. Bytes are what host 0 sent by its interface, with headers, with starting divided among our steps. `8 bits` also "
            "sends all other gradients in 8 bits, with feedback; `4 bits` sends rows and their gradients in 4, and all others as factors of rank 32 in 8 bits. "
            f"Others had {100 * min(others):.0f} to {100 * max(others):.0f} % of the cores, the median "
            f"{100 * statistics.median(others):.0f} %. Programs: {'; '.join(commits)}.", ""]


def pages(outcomes, links, names, ranks, traced=None):
    if not outcomes:
        return ["Nothing was measured.", ""]
    found, lines = Outcomes(outcomes), intro(outcomes, ranks)
    for model, what in MODELS.items():
        if not any(key.startswith(model + "/") for key in outcomes):
            continue
        shape = ", ".join(f"{key} {value}" for key, value in what["keys"].items())
        lines += [f"### {model}: {shape}; batch {what['batch']}", "", *speed_table(found, model, links, names), *verdicts(found, model, links),
                  "Stalls: time of a step that ranks waited, by what for, on average over all steps, the first and the last included.", "", *ladder(found, model, links),
                  *stall_table(traced or {}, model, links, LADDER),
                  *memory(found, model, links, ranks), *peaks(found, model, links, names), *losses(found, model, links, names)]
    return lines
