"""The benchmark `pipeline` of bench/run: stages on hosts of a lab, one thread each, over slow links.

    bench/run pipeline [PART ...] [--dry]     parts: bandwidth end-to-end optimus codec-cost estimate; default: all; as root

`--dry` prints the commands and runs none. What fails gets a note in place of its row. Numbers of a machine that does
something else at the same time are worthless: ranks outnumber cores here, and every rank waits for the slowest.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import pipeline_settings as settings
from network import BIN, ROOT, Failed
from pipeline_lab import (MODEL, RUN_FOLDER, VOCABULARY, DryLab, Lab, Mesh, by_epoch, computing_per_step, find_rate, say,
                          seconds_of, sent_per_step, traffic_of)

ROUNDS = 2
WARMUP, TIMED = 1, 3  # steps of a run whose steps are all alike
STAGES = Mesh(pp=4, dp=1)
REPLICAS = Mesh(pp=4, dp=2)
# As where Optimus-CC was made for: gradients between replicas are most of what travels.
FEW_TOKENS = Mesh(pp=4, dp=2, microbatch=1)

# fp32 has at most a fifth of its unshaped speed at the rate that `bandwidth` and `end-to-end` use: it takes at least so
# many times as long ...
SLOW = 8.0
NEARLY = 1.25  # ... and at most so much more than that
EPOCHS = 6  # of the whole runs of `end-to-end`
HALF = 2.0  # `optimus`: a step takes twice as long as unshaped, so that communication is half of it
COST_RATES = ("100mbit", "unshaped")
ESTIMATE_RATES = ("20mbit", "100mbit")
ESTIMATE_STEPS = 6  # the first is slow, and means over the run should not show it
LATENCY = 70e-6  # seconds, of a small message over gloo (transport_bench)
TARGETS = {"ac-sgd over fp32": 4.3, "ac-sgd over 16 bits": 2.2, "of its unshaped speed": 0.8, "end-to-end over fp32": 4.9,
           "optimus-cc over base": 1.45, "codec share": 0.05, "estimate error": 0.15}

BANDWIDTH = {
    "fp32": settings.whole(),
    "16 bits": settings.halves(),
    "DirectQ, 4 and 6 bits": settings.direct(4, 6),
    "ac-sgd": settings.end_to_end(),
    "ac-sgd, 4 and 8 bits": settings.delta(4, 8),
    "rotated": settings.rotated(),
}
END_TO_END = {"fp32": settings.whole(), "16 bits": settings.halves(), "ac-sgd, 4 bits between replicas": settings.end_to_end()}
UNFUSED = {"set": {"embedding.tied.fused": "false"}}
# What a run measures before its first step decides what is critical.
MEASURED = {"set": {"network.preflight": "true"}}
OPTIMUS = {
    "base": settings.whole(),
    "CB, epilogue": settings.joined(settings.low_rank(16, "feedback", "epilogue"), UNFUSED),
    "CB, always": settings.joined(settings.low_rank(16, "feedback", "always"), UNFUSED),
    "CB, critical": settings.joined(settings.low_rank(16, "feedback", "critical"), UNFUSED, MEASURED),
    "FE alone": {"set": {"embedding.tied.fused": "true"}},
    "CB, epilogue + FE": settings.low_rank(16, "feedback", "epilogue"),
    "CB, epilogue + FE + SC": settings.joined(settings.optimus(), MEASURED),
}
CODECS = {"DirectQ, 4 and 4 bits": settings.direct(4, 4), "ac-sgd, 4 and 6 bits": settings.end_to_end(), "rotated, 4 and 8 bits": settings.rotated()}
SCHEDULES = {"gpipe": {}, "1f1b": {}, "zero_bubble": {}, "interleaved": {"pipeline.chunks": 2}}


def has_memory(setting):
    return setting.get("preset") == "ac-sgd"


def spread(values, scale=1e3, digits=0):
    values = [scale * v for v in values]
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def verdict(value, target, at_most=False):
    met = value <= target if at_most else value >= target
    return "met" if met else f"**missed: {value:.3g}, wanted {target:g}**"


def steps_for(setting, lab, mesh, later=4):
    """How many a run needs: for what remembers, an epoch, the step between, and some of later ones."""
    return -(-lab.samples // mesh.batch) + later if has_memory(setting) else WARMUP + TIMED


def rounds(lab, contestants, rate, mesh, notes, more=None, later=4):
    """Every contestant once a round. Name to the runs that went well."""
    runs = {name: [] for name in contestants}
    for number in range(ROUNDS):
        for name, setting in contestants.items():
            if (rate, name) in notes:
                continue
            say(f"{rate}, {mesh}, round {number + 1} of {ROUNDS}, {name}")
            try:
                runs[name].append(lab.train(rate, setting, steps_for(setting, lab, mesh, later), mesh, more))
            except Failed as error:
                say(f"{name}: {error}")
                notes[rate, name] = str(error)
    return {name: found for name, found in runs.items() if found}


def timed_rows(lab, runs, contestants, mesh):
    """Rows of tables: name, the steps that count of each run, runs. What remembers has two, first epoch and later."""
    for name, found in runs.items():
        if has_memory(contestants[name]):
            parts = [by_epoch(run["rows"], lab.samples, mesh) for run in found]
            yield f"{name}, first epoch", [first for first, _ in parts], found
            yield f"{name}, later", [later for _, later in parts], found
        else:
            yield name, [run["rows"][WARMUP:] for run in found], found


def unshaped_seconds(lab, setting, mesh):
    return statistics.median(seconds_of(lab.train("unshaped", setting, WARMUP + TIMED, mesh)["rows"][WARMUP:]) for _ in range(ROUNDS))


def search(lab, setting, mesh, times, is_enough, lines):
    """Finds the rate for a part and says how."""
    unshaped = unshaped_seconds(lab, setting, mesh)
    probe = lambda rate: seconds_of(lab.train(rate, setting, WARMUP + 1, mesh)["rows"][WARMUP:])
    # The first guess: every hop of every microbatch of the longest way, one after the other.
    hop = 8e-6 * mesh.microbatch * MODEL["context"] * MODEL["width"] * 4
    start = 2 * (mesh.microbatches + mesh.pp - 1) * hop / ((times - 1) * unshaped)
    rate, tried = find_rate(probe, unshaped, times, start, is_enough)
    lines += [f"A step of fp32 takes {unshaped:.2f} s unshaped. Rates that were tried, and how many times as long a step took: "
              + ", ".join(f"{r} {x:.2f}" for r, x in tried) + f". Chosen: **{rate}**.", ""]
    return rate, unshaped


def per_step_table(title, rows, against):
    """Rows as of timed_rows; `against` names those whose seconds are divided by each row's."""
    known = {name: statistics.median(map(seconds_of, steps)) for name, steps, _ in rows}
    lines = [f"### {title}", "", "| | step ms | " + " | ".join(f"against {a}" for a in against)
             + " | rank 0 sends, MB a step | all ranks, mean of the run |", "|---|--:|" + "--:|" * (len(against) + 2)]
    for name, steps, runs in rows:
        ratios = [f"{known[a] / known[name]:.2f}x" if a in known else "" for a in against]
        first = statistics.median(row["wire_bytes"] for of_run in steps for row in of_run) / 1e6
        sent = statistics.median(sent_per_step(run["summary"]) for run in runs) / 1e6
        lines.append(f"| {name} | {spread(map(seconds_of, steps))} | {' | '.join(ratios)} | {first:.2f} | {sent:.2f} |")
    return [*lines, ""], known


def bandwidth(lab, notes, steps_out):
    """Per step at a rate at which fp32 has at most a fifth of its unshaped speed"""
    lines = []
    is_enough = lambda x: SLOW <= x <= SLOW * NEARLY
    found, unshaped = search(lab, BANDWIDTH["fp32"], STAGES, (SLOW + SLOW * NEARLY) / 2, is_enough, lines)
    rows = list(timed_rows(lab, rounds(lab, BANDWIDTH, found, STAGES, notes), BANDWIDTH, STAGES))
    more, known = per_step_table(f"{STAGES} at {found}", rows, ("fp32", "16 bits"))
    steps_out.setdefault(found, {}).update(known)
    lines += [*more, *bandwidth_verdicts(known, unshaped)]
    return lines + own_speed(lab, notes, steps_out)


def bandwidth_verdicts(known, unshaped):
    """The targets are for the preset; fewer bits are there to compare."""
    if "fp32" not in known:
        return []
    lines = [f"- fp32 has {100 * unshaped / known['fp32']:.0f} % of its unshaped speed"]
    for other, key in (("fp32", "ac-sgd over fp32"), ("16 bits", "ac-sgd over 16 bits")):
        for name in (n for n in known if n.startswith("ac-sgd") and n.endswith(", later") and other in known):
            ratio = known[other] / known[name]
            lines.append(f"- {name}, against {other}: **{ratio:.2f}x**; {TARGETS[key]}x: {verdict(ratio, TARGETS[key])}")
    return [*lines, ""]


def own_speed(lab, notes, steps_out):
    """ac-sgd at 100 Mbit/s against itself, rounds of both rates alternating."""
    chosen = {"ac-sgd": BANDWIDTH["ac-sgd"]}
    seconds = {}
    for number in range(ROUNDS):
        for rate in COST_RATES:
            say(f"own speed, {rate}, round {number + 1} of {ROUNDS}")
            try:
                run = lab.train(rate, chosen["ac-sgd"], steps_for(chosen["ac-sgd"], lab, STAGES), STAGES)
                seconds.setdefault(rate, []).append(seconds_of(by_epoch(run["rows"], lab.samples, STAGES)[1]))
            except Failed as error:
                notes[rate, "ac-sgd, own speed"] = str(error)
    lines = [f"### ac-sgd against its own unshaped speed, {STAGES}, after the first epoch", "", "| rate | step ms |", "|---|--:|"]
    lines += [f"| {rate} | {spread(times)} |" for rate, times in seconds.items()]
    if len(seconds) == len(COST_RATES):
        slow, fast = (statistics.median(seconds[rate]) for rate in COST_RATES)
        steps_out.setdefault(COST_RATES[0], {})["ac-sgd, later"] = slow
        lines += ["", f"- **{100 * fast / slow:.0f} %** of its unshaped speed at {COST_RATES[0]}; "
                  f"{100 * TARGETS['of its unshaped speed']:.0f} %: {verdict(fast / slow, TARGETS['of its unshaped speed'])}"]
    return [*lines, ""]


def end_to_end(lab, notes, steps_out):
    """Whole runs, the first epoch included, everything encoded"""
    lines = []
    found, _ = search(lab, END_TO_END["fp32"], REPLICAS, (SLOW + SLOW * NEARLY) / 2, lambda x: SLOW <= x <= SLOW * NEARLY, lines)
    steps = -(-EPOCHS * lab.samples // REPLICAS.batch)
    later = steps - -(-lab.samples // REPLICAS.batch)
    runs = rounds(lab, END_TO_END, found, REPLICAS, notes, later=later)
    more, known = per_step_table(f"{REPLICAS} at {found}, per step", list(timed_rows(lab, runs, END_TO_END, REPLICAS)), ("fp32", "16 bits"))
    steps_out.setdefault(f"{found}, dp 2", {}).update(known)
    return lines + more + whole_runs(runs, known, steps, found)


def whole_runs(runs, known, steps, rate):
    """Measured for what remembers; composed of its median step for the others, whose steps are all alike."""
    lines = [f"### {EPOCHS} epochs, {steps} steps, at {rate}", "", "| | s | | against fp32 |", "|---|--:|---|--:|"]
    totals = {}
    for name, found in runs.items():
        is_measured = has_memory(END_TO_END[name])
        times = [sum(row["seconds"] for row in run["rows"]) for run in found] if is_measured else [steps * known[name]]
        totals[name] = statistics.median(times)
        against = f"{totals['fp32'] / totals[name]:.2f}x" if "fp32" in totals else ""
        lines.append(f"| {name} | {spread(times, 1, 1)} | {'measured' if is_measured else 'composed: its median step x steps'} | {against} |")
    mine = next((name for name in totals if has_memory(END_TO_END[name])), None)
    if mine and "fp32" in totals:
        ratio, target = totals["fp32"] / totals[mine], TARGETS["end-to-end over fp32"]
        lines += ["", f"- whole run against fp32: **{ratio:.2f}x**; {target}x: {verdict(ratio, target)}"]
    return [*lines, ""]


def optimus(lab, notes, steps_out):
    """Optimus-CC at a rate at which communication is half of the base's step"""
    lines = []
    rate, _ = search(lab, OPTIMUS["base"], FEW_TOKENS, HALF, lambda x: 0.93 * HALF <= x <= 1.07 * HALF, lines)
    runs = rounds(lab, OPTIMUS, rate, FEW_TOKENS, notes)
    more, known = per_step_table(f"{FEW_TOKENS} at {rate}", list(timed_rows(lab, runs, OPTIMUS, FEW_TOKENS)), ("base",))
    steps_out.setdefault(f"{rate}, dp 2", {}).update(known)
    lines += more + ["CB: gradients between stages by low rank 16 with feedback; which of them, the row says. FE: one sum for the "
                     "embedding. SC: power_sgd of rank 32 with 8-bit factors between replicas, on the stages that the estimate names.", ""]
    last = list(OPTIMUS)[-1]
    if last in known and "base" in known:
        ratio, target = known["base"] / known[last], TARGETS["optimus-cc over base"]
        lines += [f"- optimus-cc against base: **{ratio:.2f}x**; {target}x: {verdict(ratio, target)}", ""]
    return lines


def codec_cost(lab, notes, steps_out):
    """Encoding and decoding as a share of computing; references on a disk"""
    lines = ["### Encoding and decoding at stage boundaries", "",
             "Both are wall time of a rank's thread, means over ranks, whole runs; computing is forward and backward of a rank.", "",
             "| rate | | codec ms a step | computing ms a step | share | 5 % |", "|---|---|--:|--:|--:|---|"]
    for rate in COST_RATES:
        for name, found in rounds(lab, CODECS, rate, STAGES, notes).items():
            shares = [codec_share(run["summary"], STAGES) for run in found]
            share = statistics.median(s[0] / s[1] for s in shares)
            lines.append(f"| {rate} | {name} | {spread([s[0] for s in shares], digits=1)} | {spread([s[1] for s in shares])} | "
                         f"**{100 * share:.1f} %** | {verdict(share, TARGETS['codec share'], at_most=True)} |")
    return [*lines, "", *stores(lab, notes)]


def codec_share(summary, mesh):
    """Seconds a step of encoding and decoding, and of computing; both as a mean over ranks."""
    codec = traffic_of(summary, "pp.activation", "pp.gradient")["codec_seconds"] / summary["step"]
    return codec, statistics.mean(computing_per_step(summary, mesh))


def stores(lab, notes):
    on_disk = {"set": {"pp.activation.store": f"{RUN_FOLDER}/references", "pp.activation.budget": 1 << 30}}
    contestants = {"ram": settings.end_to_end(), "disk": settings.joined(settings.end_to_end(), on_disk)}
    lines = [f"### References in memory and on a disk, {COST_RATES[0]}, after the first epoch", "",
             "| | step ms | waited for references, s a run, all ranks | references MB |", "|---|--:|--:|--:|"]
    seconds = {}
    for name, found in rounds(lab, contestants, COST_RATES[0], STAGES, notes).items():
        seconds[name] = [seconds_of(by_epoch(run["rows"], lab.samples, STAGES)[1]) for run in found]
        of = lambda key, scale: spread([run["summary"]["pipeline"][key] for run in found], scale, 3 if scale == 1 else 1)
        lines.append(f"| {name} | {spread(seconds[name])} | {of('reference_wait_seconds', 1)} | {of('reference_bytes', 1e-6)} |")
    if len(seconds) == 2:
        slack = max(max(s) - min(s) for s in seconds.values())
        apart = abs(statistics.median(seconds["disk"]) - statistics.median(seconds["ram"]))
        lines += ["", f"- medians are {1e3 * apart:.0f} ms apart, runs of one kind {1e3 * slack:.0f} ms: "
                  + ("within noise" if apart <= slack else "**more than noise**")]
    return [*lines, ""]


def schedule_words(kind, mesh, chunks, costs, out):
    """`laconic schedule` with costs by rank, in seconds; those of a rank are over all its chunks."""
    listed = lambda values: ",".join(f"{v:.6g}" for v in values)
    return [BIN / "laconic", "schedule", kind, "--ranks", mesh.pp, "--microbatches", mesh.microbatches, "--chunks", chunks,
            "--forward", listed(costs["forward"]), "--backward", listed(costs["backward"]), "--weight-share", f"{costs['weight_share']:.4g}",
            "--activation", f"{costs['activation']:.6g}", "--gradient", f"{costs['gradient']:.6g}",
            "--latency", f"{LATENCY:.6g}", "--step", f"{costs['step']:.6g}", "--wiring", "switched", "--json", out]


def costs_of(run, mesh, chunks, bits_per_second):
    """What one run measured. The summary's times are of one stage, a rank's several taken as one."""
    summary = run["summary"]
    ranks = summary["pipeline"]["ranks"][::mesh.dp]  # of the first replica: they count along dp first
    messages = summary["step"] * mesh.microbatches * (mesh.pp * chunks - 1) * mesh.dp
    seconds = lambda name, count: 8 * traffic_of(summary, name)["wire_bytes"] / count / bits_per_second
    backward = sum(r["backward_seconds"] for r in ranks)
    return {"forward": [chunks * r["forward_seconds"] for r in ranks], "backward": [chunks * r["backward_seconds"] for r in ranks],
            "weight_share": sum(r.get("backward_weight_seconds", r["backward_seconds"] / 2) for r in ranks) / backward,
            "activation": seconds("pp.activation", messages), "gradient": seconds("pp.gradient", messages),
            # The first and the last stage each send the embedding's gradient once, when all is done.
            "step": (run["update"] or 0) + seconds("embedding.tied", 2 * mesh.dp * summary["step"])}


def estimated(kind, mesh, chunks, costs, is_dry=False):
    with tempfile.TemporaryDirectory() as folder:
        words = list(map(str, schedule_words(kind, mesh, chunks, costs, f"{folder}/schedule.json")))
        if is_dry:
            print(" ".join(words))
            return 1.0
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            raise Failed(f"laconic schedule: {(done.stderr.splitlines() or ['no reason was given'])[-1][:200]}")
        return json.loads(pathlib.Path(folder, "schedule.json").read_text())["makespan_seconds"]


def estimate(lab, notes, steps_out):
    """Steps as measured against `laconic schedule`, given the costs that the same runs measured"""
    lines = [f"fp32, {STAGES}. Computing is each rank's mean over the run; messages are their bytes by the rate that iperf3 finds with links busy both ways, "
             f"with {1e6 * LATENCY:.0f} us; the step's end is rank 0's update and the embedding's sum.", "",
             "| rate | schedule | measured ms | estimated ms | error | 15 % |", "|---|---|--:|--:|--:|---|"]
    bits = {rate: lab.payload_rate(rate) for rate in ESTIMATE_RATES}
    runs = {}
    for _ in range(ROUNDS):
        for rate in ESTIMATE_RATES:
            for kind, sets in SCHEDULES.items():
                say(f"estimate, {rate}, {kind}")
                try:
                    runs.setdefault((rate, kind), []).append(
                        lab.train(rate, settings.whole(), ESTIMATE_STEPS, STAGES, {"pipeline.schedule": kind, "report.trace": "true", **sets}))
                except Failed as error:
                    notes[rate, kind] = str(error)
    for (rate, kind), found in runs.items():
        chunks = SCHEDULES[kind].get("pipeline.chunks", 1)
        measured = [seconds_of(run["rows"][WARMUP:]) for run in found]
        try:
            guesses = [estimated(kind, STAGES, chunks, costs_of(run, STAGES, chunks, bits[rate]), isinstance(lab, DryLab)) for run in found]
        except (Failed, KeyError) as error:
            notes[rate, f"{kind}, estimate"] = str(error)
            continue
        off = statistics.median(guesses) / statistics.median(measured) - 1
        lines.append(f"| {rate} | {kind} | {spread(measured)} | {spread(guesses)} | {100 * off:+.1f} % | "
                     f"{verdict(abs(off), TARGETS['estimate error'], at_most=True)} |")
    return [*lines, ""]


PARTS = {"bandwidth": bandwidth, "end-to-end": end_to_end, "optimus": optimus, "codec-cost": codec_cost, "estimate": estimate}


def tables(lab, chosen):
    lines = [f"Model: {MODEL['layers']} layers, width {MODEL['width']}, {MODEL['heads']} heads, {MODEL['context']} tokens, vocabulary "
             f"{VOCABULARY}; {lab.samples} samples of the quickstart's corpus. Ranks are processes of one thread on hosts of their own; they share "
             f"{os.cpu_count()} cores, so that unshaped runs compute more slowly than as many machines would, and slow links look "
             f"better against them than they are. Medians of {ROUNDS} rounds, in which contestants alternate; in brackets the least and the most. "
             "A round's figure is the median of its steps.", "",
             "| setting | what is set |", "|---|---|"]
    for name, setting in {**BANDWIDTH, **END_TO_END, **OPTIMUS, **CODECS}.items():
        lines.append(f"| {name} | {settings.described(setting)} |")
    lines.append("")
    notes, steps = {}, {}
    for part in chosen:
        begin = len(lines)
        lines += [f"## {part}: {PARTS[part].__doc__}", ""]
        try:
            lines += PARTS[part](lab, notes, steps)
        except (Failed, KeyError, ValueError, OSError, subprocess.CalledProcessError) as error:
            lines += [f"Ended: {type(error).__name__}: {error}", ""]
        say("\n".join(["done:", *lines[begin:]]))  # hours must not be lost to what comes after
    if notes:
        lines += ["## Rows that are missing", "", *(f"- {rate}, {name}: {note}" for (rate, name), note in notes.items()), ""]
    return lines, steps


def chosen_parts(words):
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    return words or list(PARTS)


def pipeline(_):
    """Pipelines over slow links: every rank on a host of its own in a lab, one thread each."""
    chosen = chosen_parts(sys.argv[2:])
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    with tempfile.TemporaryDirectory() as folder:
        lines, steps = tables(Lab(folder), chosen)
    return lines + ["## Seconds of a step, for programs", "", "What `bench/quality.py --report --steps` reads:", "", "```json",
                    json.dumps(steps, indent=1), "```", ""]


def dry(words):
    """Prints the commands of all rounds of the chosen parts."""
    with tempfile.TemporaryDirectory() as folder:
        return tables(DryLab(folder), chosen_parts(words))[0]
