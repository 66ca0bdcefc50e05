"""What a rank has waited for, from its trace (report.trace): X, rows on their way to a step; A, sums of all other gradients; Yp and Yd, gradients of
rows that the next step reads, and those of others (EmbRace's names)."""

import json

# Exchanges of a table by their number: update/table_exchange.cpp. Early rows are rows; others are looked at by evaluations.
EXCHANGES = ("X", "Yp", "Yd", "other", "X")
KINDS = ("X", "A", "Yp", "Yd", "other")


def kind_of(wait, awaited):
    """`awaited` is what ended the wait, as its span is called; None: the trace has no arrow to it."""
    if wait["cat"] == "dp.gradient waits":
        return "A"
    if wait["cat"] == "embedding.rows waits" and awaited and awaited.startswith("all_to_all of embedding.rows "):
        return EXCHANGES[int(awaited.split()[-1]) % len(EXCHANGES)]
    return "other"


def stalls_of(trace, steps):
    """Seconds of a step by kind, on average. Arrows stand behind the spans that they begin and end at."""
    spans, begins, waits = trace["traceEvents"], {}, []
    last = None
    for event in spans:
        if event["ph"] == "X":
            last = event
            if event["cat"].endswith(" waits"):
                waits.append([event, None])
        elif event["ph"] == "s":
            begins[event["id"]] = last["name"]
        elif event["ph"] == "f" and waits and waits[-1][0] is last:
            waits[-1][1] = event["id"]
    seconds = dict.fromkeys(KINDS, 0.0)
    for wait, arrow in waits:
        seconds[kind_of(wait, begins.get(arrow))] += wait["dur"] * 1e-6 / steps
    return seconds


def read_stalls(path, steps):
    with open(path, encoding="utf-8") as file:
        return stalls_of(json.load(file), steps)


def stall_table(traced, model, links, ladder):
    """Of runs with a trace, which are timed by nobody: `traced` has what stalls_of() says, by `model/link/name`."""
    lines = ["| link | | stall s: " + " | stall s: ".join(KINDS) + " |", "|---|---|" + "--:|" * len(KINDS)]
    for link in links:
        for stage, name in ladder.items():
            found = traced.get(f"{model}/{link}/{name}")
            if found:
                lines.append(f"| {link} | {stage} | " + " | ".join(f"{found[kind]:.3f}" for kind in KINDS) + " |")
    if len(lines) == 2:
        return []
    return ["The same by what was waited for, in runs with a trace: X rows, A sums of all other gradients, Yp and Yd gradients of rows that the next step reads and of "
            "others; the rest is starting and ending.", "", *lines, ""]
