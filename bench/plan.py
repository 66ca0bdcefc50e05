#!/usr/bin/env python3
"""Is the planner's first choice the fastest that can be found by hand? Six cases in a lab (docs/lab.md), chosen before any was measured.

For each case the best plan of `laconic plan --hosts lab` (with the case's rate and hosts), and every hand-made candidate that can run, trains
for a few steps on hosts of one thread; the median of the steps behind the first two counts. A candidate that would need more than SLOW
seconds a step by prediction of `laconic simulate` is not run: it could not be the fastest. Root; minutes a case, by the machine's clock.

    bench/plan.py [CASE ...]      all cases, or some; adds lines to bench/results/DATE-plan.jsonl, and goes on when called again
"""

import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LACONIC = ROOT / "build/bin/laconic"
STEPS, WARM_UP = 7, 2
SLOW = 2.5  # seconds a step
# Name: preset, hosts, rate, batch.
CASES = {"gpt-20": ("gpt-small", 4, "20mbit", 8), "gpt-100": ("gpt-small", 4, "100mbit", 8), "gpt-1000": ("gpt-small", 4, "1gbit", 8),
         "llama-100": ("llama-small", 4, "100mbit", 16), "lm-20": ("lm-small", 2, "20mbit", 32), "tiny-50": ("gpt-tiny", 4, "50mbit", 16)}
SLOW_NETWORK = {"dp.gradient.method": "power_sgd", "dp.gradient.rank": "32", "dp.gradient.codec": "quantise:bits=8", "dp.gradient.by_block": "true"}
AC_SGD = {"model.dropout_by_sample": "true", "pp.activation.codec": "quantise:bits=4,block=64,scale=f16", "pp.activation.memory": "delta",
          "pp.activation.first": "quantise:bits=8,block=64", "pp.gradient.codec": "quantise:bits=6,block=128", "embedding.tied.codec": "quantise:bits=8,block=64"}


def by_hand(hosts):
    """Name: keys. What somebody would try, the hand-made presets among them."""
    half = hosts // 2
    found = {"one rank": {}}
    for codec, name in (("raw", "exact"), ("half", "16 bits"), ("quantise:bits=8", "8 bits"), ("quantise:bits=4", "4 bits"), ("quantise:bits=3", "3 bits")):
        found[f"dp {hosts}, {name}"] = {"mesh.dp": hosts, "dp.gradient.codec": codec}
    found[f"dp {hosts}, slow-network"] = {"mesh.dp": hosts, **SLOW_NETWORK}
    for schedule in ("1f1b", "gpipe", "zero_bubble"):
        found[f"pp {hosts}, {schedule}, exact"] = {"mesh.pp": hosts, "pipeline.schedule": schedule}
        found[f"pp {hosts}, {schedule}, ac-sgd"] = {"mesh.pp": hosts, "pipeline.schedule": schedule, **AC_SGD}
    found[f"pp {hosts}, 1f1b, rotated"] = {"mesh.pp": hosts, "pp.activation.codec": "quantise:bits=4,block=32,rotate=true", "pp.gradient.codec": "quantise:bits=8,block=32,rotate=true",
                                            "embedding.tied.codec": "quantise:bits=8,block=64"}
    if half > 1:
        found[f"pp 2 x dp {half}, ac-sgd"] = {"mesh.pp": 2, "mesh.dp": half, **AC_SGD, "dp.gradient.codec": "quantise:bits=4,block=64"}
        found[f"dp {half}, slow-network"] = {"mesh.dp": half, **SLOW_NETWORK}
    found[f"tp {hosts}, tensor-8bit"] = {"mesh.tp": f"1,{hosts},1", "tensor.method": "1d", "tp.activation.codec": "quantise:bits=8,block=64", "tp.gradient.codec": "quantise:bits=8,block=64"}
    return found


def run(*words, **how):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=ROOT, **how)


def set_words(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def common(folder, batch):
    return {"data.train": f"{folder}/data", "train.batch": batch, "optimiser.warmup": 0, "network.deadline": 600, "network.preflight": "false", "checkpoint.at_end": "false",
            "report.tensorboard": "false", "run.threads": 1, "train.steps": STEPS}


def hosts_file(folder, hosts, rate):
    text = (ROOT / "presets/hosts/lab.toml").read_text()
    text = re.sub(r"hosts = \d+", f"hosts = {hosts}", text)
    text = re.sub(r'rate = "[^"]*"', f'rate = "{rate}"', text)
    path = pathlib.Path(folder, "hosts.toml")
    path.write_text(text)
    return path


def predicted(config, hosts, keys, folder):
    out = pathlib.Path(folder, "simulated.json")
    done = run(LACONIC, "simulate", config, "--hosts", hosts, "--json", out, *set_words(keys))
    return json.loads(out.read_text())["step_seconds"] if done.returncode == 0 else None


def measured(config, hosts, rate, keys, folder):
    """The median step; None with the reason where it does not run."""
    out = pathlib.Path(folder, "run")
    ranks = 1
    for key in ("mesh.pp", "mesh.dp"):
        ranks *= int(keys.get(key, 1))
    for size in str(keys.get("mesh.tp", "1")).split(","):
        ranks *= int(size)
    words = [LACONIC, "train", config, "--overwrite", *set_words({**keys, "run.folder": out})]
    if ranks > 1:
        words = [LACONIC, "lab", "run", "--ephemeral", "--hosts", ranks, "--rate", rate, "--threads", 1, "--", *words]
    done = run(*words, timeout=240)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1][:160] if done.stderr.strip() else "failed"
    steps = [json.loads(line)["seconds"] for line in (out / "log.jsonl").read_text().splitlines()]
    return statistics.median(steps[WARM_UP:]), ""


def planned(config, hosts, batch, folder):
    """The keys of the planner's first choice, and what it says of it."""
    out = pathlib.Path(folder, "plan.json")
    done = run(LACONIC, "plan", config, "--hosts", hosts, "--batch", batch, "--quick", "--top", "1", "--json", out, "--set", f"data.train={folder}/data")
    assert done.returncode == 0, done.stderr
    best = json.loads(out.read_text())["plans"][0]
    keys = dict(line.split(": ", 1) for line in best["differences"])
    return {key: value.split(" -> ", 1)[1].strip('"') for key, value in keys.items()}, best


def case(name, results, done):
    preset, hosts, rate, batch = CASES[name]
    config = f"preset:{preset}"
    with tempfile.TemporaryDirectory() as folder:
        run(LACONIC, "prepare", "--documents", "paragraph", ROOT / "examples/quickstart/corpus", "--train-bpe", "8192", "--out", f"{folder}/data", check=True)
        described = hosts_file(folder, hosts, rate)
        first, said = planned(config, described, batch, folder)
        rows = [("planned: " + said["plan"], first)] + list(by_hand(hosts).items())
        for title, keys in rows:
            if (name, title) in done:
                continue
            all_keys = {**common(folder, batch), **keys}
            expected = predicted(config, described, all_keys, folder)
            row = {"case": name, "candidate": title, "predicted": expected, "rate": rate, "hosts": hosts}
            if expected is not None and expected > SLOW and not title.startswith("planned"):
                row["left_out"] = f"predicted {expected:.3g} s"
            else:
                row["measured"], row["why"] = measured(config, hosts, rate, all_keys, folder)
            results.write(json.dumps(row) + "\n")
            results.flush()
            print(json.dumps(row), flush=True)


def page(rows):
    """Markdown: a table for each case, the fastest first."""
    lines = []
    for name in dict.fromkeys(row["case"] for row in rows):
        mine = [row for row in rows if row["case"] == name]
        timed = sorted((row for row in mine if row.get("measured")), key=lambda row: row["measured"])
        first = next(row for row in mine if row["candidate"].startswith("planned"))
        best = min((row["measured"] for row in timed if row is not first), default=None)
        preset, hosts, rate, batch = CASES[name]
        lines += [f"## {name}: preset {preset}, {hosts} hosts, {rate}, batch {batch}", "", "| candidate | measured, s | predicted, s | measured against it |", "|---|--:|--:|--:|"]
        for row in timed:
            said = row["predicted"]
            against = "-" if said is None else f"{100 * (row['measured'] / said - 1):+.0f} %"
            lines.append(f"| {row['candidate']} | {row['measured']:.3f} | {'-' if said is None else f'{said:.3f}'} | {against} |")
        left = [f"{row['candidate']} ({row.get('left_out') or row.get('why')})" for row in mine if not row.get("measured")]
        lines += ["", f"The planner's choice takes {first['measured']:.3f} s, the best of {len(timed) - 1} others {best:.3f} s: {100 * (first['measured'] / best - 1):+.1f} %." if first.get("measured") and best else "Not measured.",
                  *(["Not run: " + "; ".join(left) + "."] if left else []), ""]
    return "\n".join(lines)


def main():
    day = datetime.date.today().isoformat()
    path = ROOT / f"bench/results/{day}-plan.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["case"], row["candidate"]) for row in rows}
    with open(path, "a") as results:
        for name in sys.argv[1:] or CASES:
            case(name, results, done)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.with_suffix(".md").write_text("# Plans against candidates by hand, measured in a lab\n\nMade by `bench/plan.py` from the lines in " + path.name + ".\n\n" + page(rows))


if __name__ == "__main__":
    main()
