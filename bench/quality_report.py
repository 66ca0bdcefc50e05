"""The report of bench/quality.py: tables, and drawings by gnuplot. Made from results.json alone."""

import datetime
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import quality
from quality import ROOT, SETTINGS, STUDIES, baseline_of

NAMES = [name for of_study in SETTINGS.values() for name in of_study]

CLASSES = ("pp.activation", "pp.gradient", "embedding.tied", "dp.gradient")
# What bench/run pipeline calls the same setting.
LAB_NAMES = {"uncompressed": "fp32", "DirectQ fw4 bw8": "DirectQ, 4 and 8 bits", "ac-sgd fw4 bw8": "ac-sgd", "rotated fw4 bw8": "rotated",
             "uncompressed, dp 2": "fp32", "end-to-end, dp 2": "ac-sgd, 4 bits between replicas", "optimus-cc, dp 2": "CB, epilogue + FE + SC"}
# Curves of one drawing. Not all at once: nobody could tell fourteen lines apart.
DRAWN = {"ac-sgd": ["uncompressed", *(n for n in NAMES if n.startswith(("ac-sgd", "DirectQ")))],
         "others": ["uncompressed", *(n for n in NAMES if n.startswith(("rotated", "CB")))],
         "dp-2": [n for n in NAMES if n.endswith("dp 2")]}


def rows_of(facts, study):
    """Setting to its rows by seed, of runs that are done, in the order of the settings."""
    found = {name: {} for name in SETTINGS[study]}
    for row in facts["runs"].values():
        if row["study"] == study and row["state"] == "done" and row["setting"] in found:
            found[row["setting"]][row["seed"]] = row
    return {name: rows for name, rows in found.items() if rows}


def final_losses(rows):
    return {seed: row["validation_loss"] for seed, row in rows.items()}


def differences(rows, base):
    """Against the baseline of the same seed, so that the luck of a seed is not counted."""
    mine, other = final_losses(rows), final_losses(base)
    return [mine[seed] - other[seed] for seed in sorted(mine) if seed in other]


def evaluation_bytes(row):
    """Activations of evaluations travel whole, and are counted with those of training."""
    model = STUDIES[row["study"]]["model"]
    return row["validated_samples"] * model["context"] * model["width"] * 4 * (row["mesh"][0] - 1)


def ratio_of(rows, name):
    """Raw bytes / wire bytes of a traffic class in training, the first epoch included (if the run was not taken up again later)."""
    raw = wire = 0
    for row in rows.values():
        also = evaluation_bytes(row) if name == "pp.activation" else 0
        for t in (t for t in row["traffic"] if t["class"] == name):
            raw, wire = raw + t["raw_bytes"] - also, wire + t["wire_bytes"] - also
    return raw / wire if wire > 0 else None


def around(values, digits=4, sign=""):
    if not values:
        return ""
    return f"{statistics.median(values):{sign}.{digits}f} ({min(values):{sign}.{digits}f}–{max(values):{sign}.{digits}f})"


def losses_table(found):
    lines = ["| setting | seeds | validation loss | perplexity | against uncompressed, same seed | activations shorter | "
             "gradients shorter | between replicas |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name, rows in found.items():
        losses = list(final_losses(rows).values())
        base = found.get(baseline_of(name), {})
        apart = around(differences(rows, base), sign="+") if name != baseline_of(name) else ""
        ratios = [f"{r:.1f}x" if (r := ratio_of(rows, c)) else "" for c in ("pp.activation", "pp.gradient", "dp.gradient")]
        lines.append(f"| {name} | {len(losses)} | {around(losses)} | {math.exp(statistics.median(losses)):.2f} | {apart} | {' | '.join(ratios)} |")
    return [*lines, ""]


def noise_line(found):
    """How far seeds lie apart without any encoding: what a difference must exceed to mean something."""
    base = list(final_losses(found.get("uncompressed", {})).values())
    if len(base) < 2:
        return []
    return [f"Seeds of `uncompressed` lie {max(base) - min(base):.4f} apart. Differences in the table are between runs of one seed.", ""]


def missing_lines(facts, study):
    others = {key: row for key, row in facts["runs"].items() if row["study"] == study and row["state"] != "done"}
    lines = [f"- {key}: {row['state']}" + (f", {row['reason']}" if "reason" in row else "") for key, row in sorted(others.items())]
    resumed = [key for key, row in sorted(facts["runs"].items()) if row["study"] == study and row.get("resumed_at", 0) > 0]
    if resumed:
        lines.append(f"- went on from a checkpoint once: {', '.join(resumed)}")
    return ["### Runs that are missing or were interrupted", "", *lines, ""] if lines else []


def middle_curve(rows, key):
    """By step, the median over seeds of what all of them have."""
    by_seed = [dict(map(tuple, row[key])) for row in rows.values()]
    steps = sorted(set.intersection(*(set(curve) for curve in by_seed)))
    return [(step, statistics.median(curve[step] for curve in by_seed)) for step in steps]


def gnuplot(script, path):
    done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"gnuplot, {path}: {done.stderr.strip()[:300]}")


def beginning(path, title, x, y):
    return (f"set terminal svg size 900,560 dynamic background rgb 'white' font 'sans,13'\nset output '{path}'\nset title '{title}'\n"
            f"set xlabel '{x}'\nset ylabel '{y}'\nset grid\nset key outside right\n")


def blocks(curves):
    return "".join(f"$d{i} << EOD\n" + "".join(f"{x} {y}\n" for x, y in points) + "EOD\n" for i, (_, points) in enumerate(curves))


def draw_curves(path, title, x, curves, extra=""):
    """`curves` are (name, points). The y axis leaves out the steep beginning."""
    ys = [y for _, points in curves for _, y in points]
    top = statistics.quantiles(ys, n=10)[-1] if len(ys) > 10 else max(ys)
    plots = ", ".join(f"$d{i} using 1:2 with lines linewidth 2 linecolor {i + 1} title '{name}'" for i, (name, _) in enumerate(curves))
    gnuplot(beginning(path, title, x, "validation loss") + f"set yrange [*:{top}]\n" + extra + blocks(curves) + f"plot {plots}\n", path)


def draw_finals(path, title, found):
    """Each setting's seeds as least, median and most."""
    names = list(found)
    points = "".join(f"{i} {statistics.median(v)} {min(v)} {max(v)}\n" for i, name in enumerate(names)
                     for v in [list(final_losses(found[name]).values())])
    ticks = ", ".join(f"'{name}' {i}" for i, name in enumerate(names))
    gnuplot(beginning(path, title, "", "validation loss at the end")
            + f"set xtics ({ticks}) rotate by -35\nset xrange [-0.5:{len(names) - 0.5}]\nunset key\n"
            f"$d << EOD\n{points}EOD\nplot $d using 1:2:3:4 with yerrorbars pointtype 7 linewidth 2\n", path)


class Composer:
    """Seconds of a step at a link rate, first epoch and later: of a file, or estimated by `laconic schedule`."""

    def __init__(self, options, found):
        self.options = options
        self.measured = json.loads(options.steps.read_text()) if options.steps else None
        ranks = [r for row in found.get("uncompressed", {}).values() for r in row["pipeline"].get("ranks", [])]
        of = lambda key: statistics.median(r[key] for r in ranks) if ranks else 0.0
        self.forward = options.forward if options.forward is not None else of("forward_seconds")
        self.backward = options.backward if options.backward is not None else of("backward_seconds")

    def how(self):
        if self.measured is not None:
            return ("Composed: losses of these runs, and seconds a step that `bench/run pipeline` measured in a lab with its own model "
                    f"({self.options.steps.name}).")
        return ("Composed: losses of these runs, and seconds a step that `laconic schedule` estimates for 1f1b with hosts' links, "
                f"{1e3 * self.forward:.1f} ms of forward and {1e3 * self.backward:.1f} ms of backward a stage and microbatch, and the bytes "
                "that these settings send. Nothing was timed at these rates.")

    def seconds(self, name, row, rate):
        """(first epoch, later), or none where it is not known."""
        if self.measured is not None:
            return self.of_file(name, rate)
        links = row["links"]
        later = self.estimate(row, rate, links["pp.activation.codec"])
        has_first = links["pp.activation.memory"] == "delta"
        return (self.estimate(row, rate, links["pp.activation.first"]) if has_first else later), later

    def of_file(self, name, rate):
        steps = self.measured.get(f"{rate}, dp 2" if name.endswith("dp 2") else rate, {})
        lab = LAB_NAMES.get(name)
        later = steps.get(f"{lab}, later", steps.get(lab))
        return (steps.get(f"{lab}, first epoch", later), later) if later else None

    def estimate(self, row, rate, activation):
        size = lambda codec: self.message_bytes(codec, row)
        bits = 0.956e6 * megabits(rate)  # what TCP carries
        counted = row["steps"] - row["resumed_at"]
        wire = lambda name: sum(t["wire_bytes"] for t in row["traffic"] if t["class"] == name) / counted
        pp, dp = row["mesh"]
        # When all gradients are encoded they are simply shorter; else the schedule has to know which.
        gradient, when = row["links"]["pp.gradient.codec"], row["links"]["pp.gradient.when"]
        shorter = [] if when == "always" else ["--when", when, "--ratio", f"{size('raw') / size(gradient):.4g}"]
        whole = "raw" if shorter else gradient
        words = ["schedule", "1f1b", "--ranks", pp, "--microbatches", STUDIES[row["study"]]["microbatches"],
                 "--forward", f"{self.forward:.6g}", "--backward", f"{self.backward:.6g}",
                 "--activation", f"{8 * size(activation) / bits:.6g}", "--gradient", f"{8 * size(whole) / bits:.6g}", *shorter,
                 "--reduction", f"{8 * wire('dp.gradient') / (pp * dp) / bits:.6g}",
                 "--step", f"{8 * wire('embedding.tied') / (2 * dp) / bits:.6g}", "--latency", 70e-6, "--wiring", "hosts"]
        return self.ask(words)["makespan_seconds"]

    def message_bytes(self, codec, row):
        study = STUDIES[row["study"]]
        samples = row["batch"] // row["mesh"][1] // study["microbatches"]
        shape = f"{samples},{study['model']['context']},{study['model']['width']}"
        facts = self.ask(["codec", "show", codec, "--shape", shape])
        return facts["payload_bytes"] + facts["frame_overhead_bytes"]

    def ask(self, words):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(list(map(str, [self.options.laconic, *words, "--json", f"{folder}/answer.json"])),
                                  capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"laconic {words[0]}: {(done.stderr.splitlines() or ['no reason was given'])[-1][:200]}")
            return json.loads(pathlib.Path(folder, "answer.json").read_text())


def megabits(rate):
    return float(rate[:-4]) * {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}[rate[-4:]]


def over_seconds(curve, times, row):
    """Points of (step, loss) to (seconds, loss): the first epoch's steps at their own pace."""
    first, later = times
    epoch = row["samples"] / row["batch"]
    return [(min(step, epoch) * first + max(0.0, step - epoch) * later, loss) for step, loss in curve]


def seconds_part(composer, found, rate, draw):
    lines = ["| setting | step, first epoch, ms | later, ms | whole run, s | against uncompressed |", "|---|--:|--:|--:|--:|"]
    ends, curves = {}, {}
    for name, rows in found.items():
        row = next(iter(rows.values()))
        times = composer.seconds(name, row, rate)
        if times is None:
            continue
        curves[name] = over_seconds(middle_curve(rows, "validation"), times, row)
        ends[name] = over_seconds([(row["steps"], 0)], times, row)[0][0]
        base = ends.get(baseline_of(name))
        lines.append(f"| {name} | {1e3 * times[0]:.0f} | {1e3 * times[1]:.0f} | {ends[name]:.0f} | {f'{base / ends[name]:.2f}x' if base else ''} |")
    drawings = [draw(f"seconds-{rate}-{group}", f"Links of {rate}: composed", "seconds (logarithmic)", [(n, curves[n]) for n in names if n in curves],
                     "set logscale x\n") for group, names in DRAWN.items() if any(n in curves for n in names)]
    return [f"### Loss over seconds at {rate}", "", *lines, "", *drawings, ""]


def header(facts, options):
    a = facts["about"]
    return [f"- machine: {a.get('machine')}" + (f"; {a['graphics']}" if a.get("graphics") else "") + f"; device {a.get('device')}",
            f"- commit: {a.get('commit', 'unknown')}; {a.get('version')}",
            f"- date of the report: {datetime.date.today().isoformat()}; {a.get('jobs')} runs at once, ranks as threads of one process",
            f"- command: `bench/run quality`, report: `bench/run quality {' '.join(w for w in sys.argv[1:] if w != 'quality')}`", ""]


def study_part(facts, study, options, stem, folder):
    found = rows_of(facts, study)
    if not found:
        return []
    row = next(iter(next(iter(found.values())).values()))
    what = "fine-tuned on the second half of the text, from a model trained on the first" if study == "fine-tune" else "from scratch"
    model, microbatches = STUDIES[study]["model"], STUDIES[study]["microbatches"]

    def draw(name, title, x, curves, extra=""):
        path = folder / f"{stem}-{name}.svg"
        draw_curves(path, title, x, curves, extra)
        return f"![{title}]({path.name})"

    share = facts["about"].get("share", 1)
    corpus = "WikiText-2" if share >= 1 else f"The first {100 * share:.1f} % of WikiText-2"
    lines = [f"## {study}", "", f"{corpus}, {what}: {row['samples']} samples of {model['context']} tokens, {row['steps']} steps of "
             f"{row['batch']}, {row['steps'] * row['batch'] / row['samples']:.1f} epochs; GPT of {model['layers']} layers, width "
             f"{model['width']}, four stages, {microbatches} microbatches; validation on {quality.VALIDATION_SAMPLES} samples. "
             "Medians over seeds, in brackets the least and the most.", "", *losses_table(found), *noise_line(found)]
    finals = folder / f"{stem}-final.svg"
    draw_finals(finals, "Validation loss at the end: median, least and most of the seeds", found)
    lines += [f"![final losses]({finals.name})", "", "### Loss over steps", ""]
    lines += [draw(f"steps-{group}", "Median of the seeds", "steps",
                   [(n, middle_curve(found[n], "validation")) for n in names if n in found])
              for group, names in DRAWN.items() if any(n in found for n in names)]
    return [*lines, "", *seconds_parts(found, options, draw), *missing_lines(facts, study)]


def seconds_parts(found, options, draw):
    composer = Composer(options, found)
    if composer.measured is None and composer.forward == 0:
        return ["No loss over seconds: no run without encoding says how long computing takes; give --forward and --backward.", ""]
    lines = [composer.how(), ""]
    for rate in options.links.split(","):
        try:
            lines += seconds_part(composer, found, rate, draw)
        except RuntimeError as error:
            lines += [f"### Loss over seconds at {rate}", "", f"Left out: {error}", ""]
    return lines


def free_stem(folder, study):
    stem = f"{datetime.date.today().isoformat()}-quality-{study}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 1000))
    return next(name for name in names if not (folder / f"{name}.md").exists())


def report(options, folder=ROOT / "bench/results"):
    """A file for each study of which there are runs."""
    facts = json.loads((options.out / "results.json").read_text())
    for study, of_study in SETTINGS.items():
        stem = free_stem(folder, study)
        part = study_part(facts, study, options, stem, folder)
        if not part:
            continue
        lines = [f"# quality, {study}: what encoding at stage boundaries does to the loss", "", *header(facts, options),
                 "| setting | what is set |", "|---|---|",
                 *(f"| {name} | mesh {mesh[0]} x {mesh[1]}; {quality.settings.described(setting)} |" for name, (mesh, setting) in of_study.items()
                   if name in rows_of(facts, study)),
                 "", *part]
        (folder / f"{stem}.md").write_text("\n".join(lines))
        print(f"wrote {folder / stem}.md", file=sys.stderr)
    return 0
