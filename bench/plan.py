#!/usr/bin/env python3
"""Is the planner's first choice the fastest that can be found by hand? Six cases in a lab (docs/lab.md), chosen before any was measured.

    bench/plan.py [--minutes M] [--only CASE ...] [--out FILE.jsonl] [--program FILE]
    bench/plan.py --page [--out FILE.jsonl]      writes the page again, and measures nothing
    bench/plan.py --describe [...]               measures hosts anew, and makes predictions and choices by them: for a planner that has changed

For each case `laconic measure` describes the lab's hosts once, and `laconic plan` chooses on them: within its usual budget of loss, and without any. These
choices, every hand-made preset that can run, and other candidates by hand in the order of what `laconic simulate` predicts of them, until LEAST of all by hand and COMPARED of those within the budget
have been timed, train for a few steps on hosts of one thread. The data has as many samples as the steps that are not counted, so that links that
remember samples know all of them in those that are. Whoever is measured at a quiet moment looks fast: the choices and the best by hand are timed in further rounds, by turns. Every outcome is a line of FILE and is never measured again; after M minutes it stops, and goes on when called again.
Root. The page, FILE.md, is made of these lines alone.
"""

import argparse
import collections
import datetime
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_UP, COUNTED = 6, 12  # the first steps of pipelines and of replicas take up to a fifth longer
REFRESH = 16    # rounds of linear local updates of which one renews the second moment, unless a candidate says it
LEAST = 13      # candidates by hand to time in a case, and so many of them whose loss is within the budget as COMPARED
COMPARED = 12
ROUNDS = 3      # in which the planner's choices and the FINALISTS best by hand that each may be compared with are timed by turns, the first included
FINALISTS = 3
LONGEST = 90    # seconds that one run may take
SLOW = 10       # a candidate that is predicted to take so many times as long as the planner's choice is not run
STARTING = 6    # seconds that a run takes besides its steps, about
BUDGET = 0.5    # per cent of loss: what `laconic plan` takes without --loss-budget
VOCABULARY = 8192
Case = collections.namedtuple("Case", "model hosts rate batch context")
CASES = {"gpt-20": Case("gpt-small", 4, "20mbit", 8, 128), "gpt-100": Case("gpt-small", 4, "100mbit", 8, 128), "gpt-1000": Case("gpt-small", 4, "1gbit", 8, 128),
         "llama-100": Case("llama-small", 4, "100mbit", 16, 128), "lm-20": Case("lm-small", 2, "20mbit", 32, 20), "tiny-50": Case("gpt-tiny", 4, "50mbit", 16, 64)}
# What presets cost in loss, in per cent, by the pages of presets/plan/losses.toml; None: nobody has measured it.
PRESET_LOSS = {"slow-network": 0.26, "replicas-20mbit": 1.3, "ac-sgd": 0.40, "pipeline-20mbit": 0.17, "optimus-cc": 0.6, "rotated": 2.5, "tensor-8bit": 0.0, "embrace": None}
CODEC_LOSS = {"raw": 0.0, "half": 0.0, "quantise:bits=8": None, "quantise:bits=4": 0.24, "quantise:bits=3": 0.41}


def preset_keys(name):
    """Keys of a preset, as --set takes them."""
    def flat(table, prefix):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield prefix + key, str(value).lower() if isinstance(value, bool) else value
    return dict(flat(tomllib.loads((ROOT / f"presets/{name}.toml").read_text()), ""))


def by_hand(case):
    """Title: keys, loss in per cent, preset. What somebody would try, all hand-made presets among it."""
    n, half, found = case.hosts, case.hosts // 2, {}

    def add(title, keys, loss, preset=None):
        found[title] = {"keys": keys, "loss": loss, "preset": preset}

    def add_preset(name, mesh, title, **more):
        add(f"{title}, {name}", {**preset_keys(name), **mesh, **more}, PRESET_LOSS[name], name)

    add("one rank", {}, 0.0)
    for codec, title in (("raw", "exact"), ("half", "16 bits"), ("quantise:bits=8", "8 bits"), ("quantise:bits=4", "4 bits"), ("quantise:bits=3", "3 bits")):
        for size in dict.fromkeys((n, half)):
            if size > 1:
                add(f"dp {size}, {title}", {"mesh.dp": size, "dp.gradient.codec": codec}, CODEC_LOSS[codec])
    for size in dict.fromkeys((n, half)):
        if size > 1:
            for name in ("slow-network", "replicas-20mbit"):
                add_preset(name, {"mesh.dp": size}, f"dp {size}")
    for size in dict.fromkeys((n, half)):
        if size > 1:
            add(f"dp {size}, linear 4", {"mesh.dp": size, "local.method": "linear", "local.steps": 4}, 0.33)
    if case.model in ("llama-small", "lm-small"):  # it wants a table of its own for the output
        add_preset("embrace", {"mesh.dp": n}, f"dp {n}")
    for size in dict.fromkeys((n, half)):
        if size > 1:
            add_preset("tensor-8bit", {"mesh.tp": f"1,{size},1"}, f"tp {size}")
    for name in ("ac-sgd", "optimus-cc", "rotated"):
        add_preset(name, {"mesh.pp": n}, f"pp {n}")
    add_preset("pipeline-20mbit", {"mesh.pp": n}, f"pp {n}")
    if half > 1:
        for name in ("ac-sgd", "optimus-cc"):  # and gradients between replicas in 4 bits
            add_preset(name, {"mesh.pp": 2, "mesh.dp": half}, f"pp 2 x dp {half}")
            found[f"pp 2 x dp {half}, {name}"]["loss"] += CODEC_LOSS["quantise:bits=4"]
    for schedule, samples in itertools.product(("1f1b", "gpipe", "zero_bubble"), (max(1, case.batch // (2 * n)), case.batch // n)):
        for name, keys, loss in (("exact", {}, 0.0), ("ac-sgd", preset_keys("ac-sgd"), PRESET_LOSS["ac-sgd"])):
            add(f"pp {n}, {schedule}, microbatch {samples}, {name}", {**keys, "mesh.pp": n, "pipeline.schedule": schedule, "train.microbatch": samples}, loss)
    return found


def run(*words, **how):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=ROOT, **how)


def head():
    return run("git", "rev-parse", "--short=10", "HEAD").stdout.strip()


def set_words(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def reason_in(err):
    """What a command that failed has said: its problems, or the last line where it names none."""
    lines = err.strip().splitlines() or ["failed"]
    problems = [match.group(0) for match in (re.search(r"[a-z_]+\.[a-z_0-9.]+: .*", line) for line in lines) if match]
    return "; ".join(dict.fromkeys(problems))[:400] or lines[-1].strip()[:200]


def ranks_of(keys):
    ranks = int(keys.get("mesh.pp", 1)) * int(keys.get("mesh.dp", 1))
    for size in str(keys.get("mesh.tp", "1")).strip("[]").split(","):
        ranks *= int(size)
    return ranks


def is_linear(keys):
    return keys.get("local.method") == "linear" and int(keys.get("local.steps", 0)) > 1


def seconds_of(keys, steps):
    """A step of many, by those that were counted. Local updates send in some steps of a round, so that rounds count as wholes. Of linear ones the first step of rounds 1, 2, 4, 8
    and then of every REFRESH-th renews the second moment, which would be every fourth here: round 8 counts as the one in REFRESH that it is."""
    local = int(keys.get("local.steps", 0))
    if not is_linear(keys):
        return statistics.mean(steps) if local > 1 else statistics.median(steps)
    rounds = [statistics.mean(steps[first:first + local]) for first in range(0, len(steps), local)]
    share = 1 / int(keys.get("local.refresh", REFRESH))
    return share * rounds[-1] + (1 - share) * statistics.mean(rounds[:-1])


def steps_of(keys, expected):
    """Steps that are not counted, and that are. Those of local updates are counted by whole rounds, and those of slow candidates are few."""
    local = int(keys.get("local.steps", 0))
    if is_linear(keys):
        return 5 * local, 4 * local  # warm-up, rounds 1 to 4; rounds 5 to 8: the first ones are slower by up to a tenth
    if local > 1:
        return (2 * local, 2 * local) if local <= 4 else (local, local)
    return (1, 1) if expected and expected > 5 else (WARM_UP, COUNTED)


def shortened(keys):
    """What begins after many steps begins at once."""
    short = dict(keys)
    for key in ("dp.gradient.late_after", "embedding.tied.late_after"):
        if str(keys.get(key.replace("_after", ""), 0)) != "0":
            short[key] = 1
    if is_linear(keys):
        short["local.warmup"] = int(keys["local.steps"])
    return short


class Lab:
    """One case: its data, its hosts, and what has been measured of it."""

    def __init__(self, name, program, folder, rows, out):
        self.name, self.case, self.program, self.folder, self.rows, self.out = name, CASES[name], program, pathlib.Path(folder), rows, out
        self.data = self.folder / "data"
        self.config = f"preset:{self.case.model}"

    def write(self, row):
        row = {"case": self.name, **self.case._asdict(), **row}
        self.rows.append(row)
        with open(self.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps({key: value for key, value in row.items() if key not in ("keys", "hosts_file")}), flush=True)

    def mine(self):
        return [row for row in self.rows if row["case"] == self.name]

    def prepare_data(self, samples):
        done = run(self.program, "prepare", "--synthetic", "zipf", "--tokens", samples * self.case.context + 1, "--vocabulary", VOCABULARY, "--out", self.data, "--overwrite")
        assert done.returncode == 0, done.stderr

    def common(self, steps):
        return {"data.train": self.data, "train.batch": self.case.batch, "optimiser.warmup": 0, "network.deadline": 600, "network.preflight": "false",
                "checkpoint.at_end": "false", "report.tensorboard": "false", "run.threads": 1, "train.steps": steps, "run.folder": self.folder / "run"}

    def in_lab(self, ranks, words, timeout=LONGEST):
        if ranks > 1:
            words = [self.program, "lab", "run", "--ephemeral", "--hosts", ranks, "--rate", self.case.rate, "--threads", 1, "--", *words]
        # Its own group, so that all ranks of a run that takes too long end with it.
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            return None, "", ""
        return process.returncode, out, err

    def hosts_file(self):
        """The lab's hosts, as `laconic measure` finds them."""
        path = self.folder / "hosts.toml"
        known = [row for row in self.mine() if "hosts_file" in row]
        if not known:
            self.prepare_data(2 * self.case.batch)
            code, _, err = self.in_lab(self.case.hosts, [self.program, "measure", self.config, "-o", path, *set_words({**self.common(1), "mesh.dp": self.case.hosts, "network.preflight": "true"})], 240)
            assert code == 0, err
            machine = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
            self.write({"hosts_file": path.read_text(), "commit": head(), "machine": f"{machine}, {os.cpu_count()} cores"})
            known = self.mine()[-1:]
        path.write_text(known[0]["hosts_file"])
        return path

    def simulated(self, hosts, keys):
        out = self.folder / "simulated.json"
        done = run(self.program, "simulate", self.config, "--hosts", hosts, "--json", out, *set_words({**self.common(16), **keys}))
        if done.returncode == 0:
            return json.loads(out.read_text())["step_seconds"], ""
        return None, reason_in(done.stderr)

    def planned(self, hosts, *words):
        """The keys of the planner's first choice, and what it says of it."""
        out = self.folder / "plan.json"
        done = run(self.program, "plan", self.config, "--hosts", hosts, "--batch", self.case.batch, "--quick", "--top", 1, "--json", out, "--set", f"data.train={self.data}", *words)
        assert done.returncode == 0, done.stderr
        best = json.loads(out.read_text())["plans"][0]
        changed = (line.split(": ", 1) for line in best["differences"])
        return {key: change.split(" -> ", 1)[1].strip('"') for key, change in changed}, best

    def measure(self, title, candidate, expected, turn=1):
        warm_up, counted = steps_of(candidate["keys"], expected)
        keys = {**self.common(warm_up + counted), **shortened(candidate["keys"])}
        if keys.get("pipeline.schedule") == "auto":  # it is chosen by the rate that a pre-flight measures
            keys["network.preflight"] = "true"
        self.prepare_data(max(1, min(warm_up, WARM_UP)) * self.case.batch)
        (self.folder / "run").mkdir(exist_ok=True)
        (self.folder / "run/log.jsonl").unlink(missing_ok=True)
        code, _, err = self.in_lab(ranks_of(keys), [self.program, "train", self.config, "--overwrite", *set_words(keys)])
        log = self.folder / "run/log.jsonl"
        steps = [json.loads(line)["seconds"] for line in log.read_text().splitlines() if line.endswith("}")] if log.exists() else []
        row = {"candidate": title, "round": turn, "skipped": warm_up, **{k: candidate.get(k) for k in ("keys", "loss", "preset", "planned")}, "predicted": expected}
        is_whole = len(steps) == warm_up + counted
        if code not in (0, None):
            row["why"] = reason_in(err)
        elif steps[warm_up:] and (is_whole or not is_linear(candidate["keys"])):
            row["steps"] = steps[warm_up:]
            row["measured"] = seconds_of(candidate["keys"], row["steps"])
        else:
            row["why"] = f"not {warm_up + 1} steps in {LONGEST} s"
        self.write(row)

    def describe_again(self):
        """Hosts, predictions and known losses by the program and the table as they are; what was measured stays."""
        mine = [row for row in self.mine() if "candidate" in row]
        self.rows[:] = [row for row in self.rows if row["case"] != self.name]
        hosts = self.hosts_file()
        self.prepare_data(2 * self.case.batch)
        predictions = {}
        for row in mine:
            if row.get("keys") and row["candidate"] not in predictions:
                predictions[row["candidate"]] = self.simulated(hosts, row["keys"])[0]
        known = by_hand(self.case)
        self.rows += [{**row, "predicted": predictions.get(row["candidate"], row["predicted"]), "loss": known.get(row["candidate"], row)["loss"]} for row in mine]
        self.out.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def go(self, deadline):
        """True: nothing is left to measure."""
        hosts = self.hosts_file()
        self.prepare_data(2 * self.case.batch)
        queue = []
        for kind, words in (("within the budget", ()), ("any loss", ("--loss-budget", "100%", "--unproven"))):
            keys, said = self.planned(hosts, *words)
            queue.append((f"planned, {kind}: {said['plan']}", {"keys": keys, "loss": said["loss_percent"]["loss"] if said["loss_percent"]["is_proven"] else None, "planned": kind}, said["predicted_seconds"]))
        chosen = {"choices": {candidate["planned"]: title for title, candidate, _ in queue}, "choices_commit": head()}
        if [row["choices"] for row in self.mine() if "choices" in row][-1:] != [chosen["choices"]]:
            self.write(chosen)
        candidates = by_hand(self.case)
        done = {row["candidate"]: row for row in self.mine() if "candidate" in row}
        predictions = {}
        for title, candidate in candidates.items():
            seconds, why = (done[title]["predicted"], "") if title in done else self.simulated(hosts, candidate["keys"])
            if seconds is None and title not in done and not candidate["preset"]:
                self.write({"candidate": title, "why": why, "loss": candidate["loss"], "predicted": None})
                continue
            predictions[title] = seconds
        presets = [title for title in predictions if candidates[title]["preset"]]
        others = sorted((title for title in predictions if not candidates[title]["preset"]), key=lambda title: predictions[title] or 1e9)
        # Presets in the order of their predictions, those without one first; then others, until there are enough.
        presets.sort(key=lambda title: predictions[title] or 0)
        queue += [(title, candidates[title], predictions[title]) for title in presets + others]
        by_now = {title for title, row in done.items() if row.get("measured") and not row.get("planned")}

        def is_enough():
            return len(by_now) >= LEAST and sum(within_budget(candidates[title]) for title in by_now) >= COMPARED
        for title, candidate, expected in queue:
            if title in done or (title in others and is_enough()):
                continue
            if expected and expected > SLOW * queue[0][2]:
                self.write({"candidate": title, "why": f"predicted {expected:.3g} s", "loss": candidate["loss"], "predicted": expected})
                continue
            steps = sum(steps_of(candidate["keys"], expected))
            if time.time() + min(LONGEST, STARTING + steps * (expected or 1)) > deadline:
                return False
            self.measure(title, candidate, expected)
            if self.rows[-1].get("measured") and not candidate.get("planned"):
                by_now.add(title)
        return self.finish({title: (candidate, expected) for title, candidate, expected in queue}, deadline)

    def finish(self, known, deadline):
        """Further rounds of the planner's choices and of the best by hand, by turns."""
        rows = current(self.mine())
        timed = pooled([row for row in rows if row.get("measured")])
        finalists = [row["candidate"] for row in timed if row.get("planned")]
        for plan in [row for row in timed if row.get("planned")]:
            finalists += [row["candidate"] for row in sorted(comparable(plan, timed), key=lambda row: row["measured"])[:FINALISTS]]
        runs = {}  # the same run under two names is timed once
        for title in finalists:
            runs.setdefault(json.dumps(as_run({**self.case._asdict(), **known[title][0]}), sort_keys=True), title)
        for turn in range(2, ROUNDS + 1):
            there = {row["candidate"] for row in rows if row.get("round", 1) == turn}
            for title in runs.values():
                if title in there:
                    continue
                candidate, expected = known[title]
                if time.time() + min(LONGEST, STARTING + sum(steps_of(candidate["keys"], expected)) * (expected or 1)) > deadline:
                    return False
                self.measure(title, candidate, expected, turn)
        return True


def within_budget(row):
    return row["loss"] is not None and row["loss"] <= BUDGET


def percent(a, b):
    return f"{100 * (a / b - 1):+.1f} %"


def as_run(row):
    """What a candidate asks for, without what it would have anyway: equal ones are one run that was measured twice."""
    asked = {key: str(value).lower() for key, value in row["keys"].items() if key != "run.threads"}
    ranks = int(asked.get("mesh.dp", 1))
    if "mesh.pp" not in asked and asked.get("train.microbatch") == str(row["batch"] // ranks):
        del asked["train.microbatch"]
    return asked


def same_run(row, timed):
    return [other for other in timed if as_run(other) == as_run(row)]


def pooled(timed):
    """One row for each candidate, with what was measured of the same run in any round and under any name, and the least and most of rounds."""
    def with_rounds(row):
        same = same_run(row, timed)
        rounds = [seconds_of(other["keys"], other["steps"]) for other in same]
        is_whole = is_linear(row["keys"])  # rounds of local updates belong to one run
        measured = statistics.median(rounds) if is_whole else seconds_of(row["keys"], [step for other in same for step in other["steps"]])
        return {**row, "measured": measured, "rounds": len(same), "least": min(rounds), "most": max(rounds)}
    return [with_rounds(row) for row in {row["candidate"]: row for row in reversed(timed)}.values()]


def current(rows):
    """Rows of candidates, without choices that the planner has given up since."""
    choices = [row["choices"] for row in rows if "choices" in row]
    return [row for row in rows if "candidate" in row and (not row.get("planned") or not choices or row["candidate"] == choices[-1][row["planned"]])]


def comparable(plan, timed):
    """Candidates by hand that lose no more than the planner's choice may."""
    return [row for row in timed if not row.get("planned") and (plan["planned"] == "any loss" or within_budget(row))]


def verdict(plan, timed):
    """What the page says of one choice of the planner: against the best by hand, and against presets, that lose no more than it may."""
    allowed = comparable(plan, timed)
    if not plan.get("measured"):
        return f"- **{plan['candidate']}**: not measured, {plan.get('why')}."
    if not allowed:
        return f"- **{plan['candidate']}**: {plan['measured']:.3f} s, and nothing to compare it with yet."
    best = min(allowed, key=lambda row: row["measured"])
    presets = [row for row in allowed if row["preset"] and row["measured"] < plan["measured"]]
    slower = [f"{row['candidate']} ({row['measured']:.3f} s)" for row in presets if row["most"] < plan["least"]]
    even = [f"{row['candidate']} ({row['measured']:.3f} s)" for row in presets if row["most"] >= plan["least"]]
    return (f"- **{plan['candidate']}**: {plan['measured']:.3f} s; the best by hand of {len(allowed)} that may be compared, {best['candidate']}, {best['measured']:.3f} s: {percent(plan['measured'], best['measured'])}, "
            f"{'within' if plan['measured'] <= 1.05 * best['measured'] else 'NOT within'} 5 %. " +
            ("Slower than preset " + ", ".join(slower) + ", in every round." if slower else "No preset among them is faster" + (", but by less than rounds differ: " + ", ".join(even) if even else "") + "."))


def case_page(name, rows):
    about = next((row for row in rows if "hosts_file" in row), rows[0])
    choices = [row for row in rows if "choices" in row]
    rows = current(rows)
    timed = sorted(pooled([row for row in rows if row.get("measured")]), key=lambda row: row["measured"])
    pools = {row["candidate"]: row for row in timed}
    lines = [f"## {name}: {about['model']}, {about['hosts']} hosts, {about['rate']}, batch {about['batch']}", ""]
    planned = {row["candidate"]: row for row in rows if row.get("planned")}
    lines += [verdict(pools.get(title, row), timed) for title, row in planned.items()]
    lines += [f"- {sum(1 for row in timed if not row.get('planned'))} candidates by hand timed; {about.get('machine', '')}, commit {about.get('commit', '')}{', the choices that of ' + choices[-1]['choices_commit'] if choices else ''}.", "",
              "| candidate | s a step | rounds | predicted | measured against it | loss |", "|---|--:|--:|--:|--:|--:|"]
    for row in timed:
        said = row["predicted"]
        spread = f" ({row['least']:.3f} to {row['most']:.3f})" if row["rounds"] > 1 else ""
        title = f"**{row['candidate']}**" if row.get("planned") else row["candidate"] + (" (preset)" if row["preset"] else "")
        lines.append(f"| {title} | {row['measured']:.3f}{spread} | {row['rounds']} | {'-' if said is None else f'{said:.3f}'} | {'-' if said is None else percent(row['measured'], said)} | {'not known' if row['loss'] is None else '{:.2f} %'.format(row['loss'])} |")
    left = [f"{row['candidate']} ({row['why']})" for row in rows if row.get("why")]
    return lines + ["", *(["Could not be run: " + "; ".join(left) + ".", ""] if left else [])]


def page(rows, source):
    lines = ["# Plans against candidates by hand, measured in a lab", "",
             f"Made by `bench/plan.py` from the lines in {source.name} alone. Hosts of one thread, which share the machine's cores; for each case described by `laconic measure`. A step is the median of {COUNTED} behind {WARM_UP} that do not count (7 behind 2 in rows that do not say it; where one takes more than "
             f"5 s, by prediction, of one behind one; of linear local updates the mean of four rounds behind four, of which the one that renews the second moment counts as one of {REFRESH}; candidates that are the same run under two names are one, of all steps of both; *rounds*: how often a candidate was timed, by turns; the median of all of them counts); what begins after many steps in a preset begins at once here. Predictions are by simulation, but where there is no simulation. "
             f"Choices within the budget are compared with what loses at most {BUDGET} % by what was measured elsewhere; those with any loss with everything.", ""]
    for name in dict.fromkeys(row["case"] for row in rows):
        lines += case_page(name, [row for row in rows if row["case"] == name])
    notes = source.with_suffix(".notes.md")
    return "\n".join(lines + (notes.read_text().splitlines() if notes.exists() else [])).rstrip() + "\n"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--minutes", type=float, default=1e6)
    words.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    words.add_argument("--out", type=pathlib.Path, default=ROOT / f"bench/results/{datetime.date.today().isoformat()}-plan-cases.jsonl")
    words.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/laconic")
    words.add_argument("--page", action="store_true")
    words.add_argument("--describe", action="store_true")
    asked = words.parse_args()
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    deadline = time.time() + 60 * asked.minutes
    for name in [] if asked.page else asked.only:
        begin = time.time()
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(name, asked.program.resolve(), folder, rows, asked.out)
            if asked.describe:
                lab.describe_again()
            is_done = lab.go(deadline)
        print(f"{name}: {'all' if is_done else 'not all'} measured, {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        if not is_done:
            break
    if rows:
        asked.out.with_suffix(".md").write_text(page(rows, asked.out))


if __name__ == "__main__":
    main()
