#!/usr/bin/env python3
"""Predicts what papers have measured on their hardware, and plans of large models over the internet: bench/plans.py [--kept] [PART]

Nothing is measured: all numbers are what `laconic simulate` and `laconic plan` say of the files in docs/plans. Writes docs/plans/README.md
(papers) and docs/plans/internet.md (internet), or one of them. Takes some minutes of one core, and needs neither ranks nor libtorch. Answers are
kept in build/plans, by program and question, so that it goes on when called again; with --kept nothing else is asked.
"""

import hashlib
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LACONIC = ROOT / "build/bin/laconic"
PLANS = ROOT / "docs/plans"
KEPT = ROOT / "build/plans"
LONGEST = 120  # seconds of a core that one answer may take


def ask(verb, config, hosts, *words):
    """The JSON that a verb writes about a configuration on hosts, or None where it refuses; and the seconds that it took."""
    question = "\n".join([commit(), verb, pathlib.Path(config).read_text(), pathlib.Path(hosts).read_text(), *words])
    kept = KEPT / (hashlib.sha256(question.encode()).hexdigest()[:24] + ".json")
    if kept.exists():
        return json.loads(kept.read_text())
    if "--kept" in sys.argv:
        return None, 0.0
    answer = asked(verb, config, hosts, *words)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(answer))
    return answer


def spent():
    """Seconds of a core that all answers have taken: others may use the machine, too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def asked(verb, config, hosts, *words):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.json")
        begin = spent()
        command = [str(LACONIC), verb, str(config), "--hosts", str(hosts), "--json", str(out), *words]
        done = subprocess.run(["bash", "-c", f'ulimit -t {LONGEST} && exec "$@"', "bash", *command], capture_output=True, text=True)
        took = spent() - begin
        said = json.loads(out.read_text()) if out.exists() else None
        if done.returncode != 0:
            print(f"{verb} {config} {' '.join(words)}: {(done.stderr or done.stdout).strip()[:300]}", file=sys.stderr)
            return said if verb == "plan" else None, took
        return said, took


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def with_rate(hosts, rate, folder):
    """The hosts file with other cards."""
    text = (PLANS / hosts).read_text()
    card = text.index('card = { rate = "') + len('card = { rate = "')
    path = pathlib.Path(folder, f"{rate}-{hosts}")
    path.write_text(text[:card] + rate + text[text.index('"', card):])
    return path


def step_seconds(config, hosts, keys):
    said, _ = ask("simulate", PLANS / config, hosts, *sets(keys))
    return None if said is None else said["step_seconds"]


def ratio(number):
    return "-" if number is None else f"{number:.2f}x"


# --- AC-SGD: sequences per second of GPT2-XL over eight V100

AC_SGD = {"FP32": {}, "fw4 bw8": {"pp.activation.codec": "quantise:bits=4,group=channel,scale=f16,grid=artefact", "pp.activation.memory": "delta", "pp.gradient.codec": "quantise:bits=8"},
          "fw3 bw6": {"pp.activation.codec": "quantise:bits=3,block=256", "pp.activation.memory": "delta", "pp.gradient.codec": "quantise:bits=6"}}
# As remembered of the paper's Table 2; digits were not read again. The last row but one is that of a later measurement by others.
AC_SGD_PUBLISHED = {"10gbit": (3.8, 4.0, 4.0), "1gbit": (3.2, 3.9, 4.0), "500mbit": (2.7, 3.9, 3.9), "300mbit": (1.8, 3.8, 3.8), "100mbit": (0.5, 3.0, 3.4)}


def ac_sgd(folder):
    lines = ["## AC-SGD: GPT2-XL over a pipeline of eight V100", "",
             "Sequences per second; published first, then predicted. 32 sequences in 32 microbatches, gpipe, float32; our float32 rate of a V100 is the data sheet's times 0.63.", "",
             "| link | FP32, published | predicted | fw4 bw8, published | predicted | fw3 bw6, published | predicted |", "|---|--:|--:|--:|--:|--:|--:|"]
    for rate, published in AC_SGD_PUBLISHED.items():
        cells = []
        for (_, keys), said in zip(AC_SGD.items(), published):
            step = step_seconds("gpt2-xl.toml", with_rate("v100-8.toml", rate, folder), keys)
            cells += [str(said), "-" if step is None else f"{32 / step:.2f}"]
        lines.append(f"| {rate} | " + " | ".join(cells) + " |")
    return lines


# --- Optimus-CC: days of GPT 8.3 B on 128 A100

OPTIMUS = {"baseline": {}, "CB": {"pp.gradient.codec": "low_rank:rank=16", "pp.gradient.memory": "feedback", "pp.gradient.when": "epilogue"}}
OPTIMUS["CB + FE"] = {**OPTIMUS["CB"], "embedding.tied.fused": "true"}
OPTIMUS["CB + FE + SC"] = {**OPTIMUS["CB + FE"], "dp.gradient.method": "power_sgd", "dp.gradient.rank": "128", "dp.gradient.by_block": "true", "dp.gradient.stages": "0.75"}
OPTIMUS_DAYS = {"baseline": 37.27, "CB": 34.83, "CB + FE": 32.84, "CB + FE + SC": 25.72}
OPTIMUS_STEPS = 230_000


def optimus(_):
    lines = ["## Optimus-CC: GPT 8.3 B on 128 A100", "",
             "Days of 230,000 iterations of 512 sequences; speed-up over the baseline in brackets. 4-way pipeline, 4-way data parallelism over hosts of eight GPUs, float32.", "",
             "| | published | predicted, our engine over TCP | predicted, if messages cost processors nothing | the same at 30 Gbit/s |", "|---|--:|--:|--:|--:|"]
    first = {}
    for name, keys in OPTIMUS.items():
        cells = [f"{OPTIMUS_DAYS[name]:.1f} ({100 * (OPTIMUS_DAYS['baseline'] / OPTIMUS_DAYS[name] - 1):+.1f} %)"]
        for hosts in ("a100-16x8.toml", "a100-16x8-rdma.toml", "a100-16x8-30gbit.toml"):
            step = step_seconds("gpt-8.3b.toml", PLANS / hosts, keys)
            days = None if step is None else step * OPTIMUS_STEPS / 86400
            first.setdefault(hosts, days)
            cells.append("-" if days is None else f"{days:.1f} ({100 * (first[hosts] / days - 1):+.1f} %)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


# --- 3-D tensor parallelism on 64 V100

GRIDS = {"1-D": ("1d", [1, 64, 1]), "2-D": ("2d", [8, 8, 1]), "2.5-D": ("2.5d", [4, 4, 4]), "3-D": ("3d", [4, 4, 4])}
GRIDS_PUBLISHED = {"1-D": "2.32x", "2-D": "1.57x", "2.5-D": "", "3-D": "1.00x"}
# Four V100 share a link of 100 Gbit/s; a data sheet's float32 times 0.63.
V100 = ["--rate", "25gbit", "--latency", "2us", "--gflops", "9900"]


def grids(folder):
    lines = ["## 3-D against 1-D and 2-D tensor parallelism on 64 V100", "",
             "How many times as fast 3-D is, by `laconic layout --search 64`. Published are sequences per second with batches of their own, and sizes that are not known to us; predicted is a step of 64 sequences of 512 "
             "tokens and a GPT of 24 layers, width 3072, with 25 Gbit/s for each rank.", "", "| | published | predicted | seconds |", "|---|--:|--:|--:|"]
    out = pathlib.Path(folder, "grids.json")
    subprocess.run([str(LACONIC), "layout", str(PLANS / "gpt-64.toml"), "--batch", "64", "--search", "64", *V100, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
    found = {(c["method"], tuple(c["grid"])): c.get("predicted") for c in json.loads(out.read_text())["candidates"]}
    steps = {name: (found.get((method, tuple(grid))) or {}).get("seconds") for name, (method, grid) in GRIDS.items()}
    for name, step in steps.items():
        lines.append(f"| {name} | {GRIDS_PUBLISHED[name]} | {ratio(step / steps['3-D'] if step and steps['3-D'] else None)} | {'-' if step is None else f'{step:.3g}'} |")
    return lines


# --- EmbRace: models with large tables on 16 GPUs

ROWS = {"embedding.rows.optimiser": "lazy_adam", "embedding.rows.clip": "dense", "train.clip": 0}
EMBRACE = {"allreduce": {}, "allgather": {**ROWS, "embedding.rows.method": "allgather", "embedding.rows.split": "off"},
           "server": {**ROWS, "embedding.rows.method": "server", "embedding.rows.split": "off"},
           "alltoall": {**ROWS, "embedding.rows.method": "alltoall", "embedding.rows.split": "off"},
           "alltoall, later rows apart, block by block": {**ROWS, "embedding.rows.method": "alltoall", "embedding.rows.split": "on", "train.update": "block"}}
# Preset, samples of a GPU, tokens of a sample, different rows that a rank reads (None: by the law of words).
EMBRACE_MODELS = {"LM": ("lm-paper", 128, 20, None), "GNMT-8": ("gnmt-paper", 128, 30, 1229), "Transformer": ("transformer-big", 20, 256, 1434), "BERT-base": ("bert-base-span", 32, 384, 1843)}


def embrace(folder):
    lines = ["## EmbRace: models with large tables on 16 GPUs", "",
             "Milliseconds of a step on four hosts of four RTX 3090, 100 Gbit/s between them, and how many times as fast the last is. Sure are two published figures alone: up to **2.41** times the best "
             "of four baselines, and, of an earlier version and on either of two clusters, up to **30.66** times some baseline. Sizes of models, batches and hardware are remembered.", "",
             "| | " + " | ".join(EMBRACE) + " | against the best of the first three | against allreduce |", "|---|" + "--:|" * (len(EMBRACE) + 2)]
    for name, (preset, samples, tokens, rows) in EMBRACE_MODELS.items():
        config = pathlib.Path(folder, f"{preset}.toml")
        config.write_text(f'extends = "preset:{preset}"\n')
        more = {"mesh.dp": 16, "train.batch": 16 * samples, "model.context": tokens}
        steps = []
        for method, keys in EMBRACE.items():
            words = [] if rows is None or method == "allreduce" else ["--rows-read", str(rows)]
            said, _ = ask("simulate", config, PLANS / "rtx3090-4x4.toml", *sets({**more, **keys}), *words, "--lanes", "16")
            steps.append(None if said is None else said["step_seconds"])
        known = [step for step in steps[:3] if step is not None]
        last = steps[-1]
        lines.append(f"| {name} | " + " | ".join("-" if step is None else f"{1e3 * step:.3g}" for step in steps) +
                     f" | {ratio(min(known) / last if known and last else None)} | {ratio(steps[0] / last if steps[0] and last else None)} |")
    return lines


# --- The study of compressed activations: BERT-Large on V100

STUDY = {"none": "raw", "A1": "auto_encoder:code=50,values=bf16", "A2": "auto_encoder:code=100,values=bf16", "T1": "top_k:keep=0.0095", "T3": "top_k:keep=0.048",
         "R3": "random_k:keep=0.048", "Q1": "quantise:bits=2,group=channel", "Q2": "quantise:bits=4,group=channel", "Q3": "quantise:bits=8,group=channel"}
STUDY_LAYERS = 24
# Hosts, t, p, batch of a step, microbatch, tokens; milliseconds as remembered for none, A1, A2.
STUDY_SETTINGS = [("v100-4-nvlink.toml", 1, 4, 32, 32, 512, (592, 591, 591)), ("v100-4-nvlink.toml", 2, 2, 32, 32, 512, (441, 438, 445)), ("v100-4-nvlink.toml", 4, 1, 32, 32, 512, (261, 270, 275)),
                  ("v100-4-pcie.toml", 1, 4, 32, 32, 512, (633, 620, 620)), ("v100-4-pcie.toml", 2, 2, 32, 32, 512, (646, 587, 595)), ("v100-4-pcie.toml", 4, 1, 32, 32, 512, (737, 651, 667)),
                  ("v100-4x4.toml", 2, 8, 1024, 128, 128, (1625, 1550, 1580)), ("v100-4x4.toml", 4, 4, 1024, 128, 128, (1422, 1243, 1296)), ("v100-4x4.toml", 8, 2, 1024, 128, 128, (15642, 14577, 15073))]


def study_keys(codec, t, p):
    """Boundaries between stages have the codec of the layers where as late in the model. Gradients of quantised activations come back whole, as published; those of learned codes are as short as codes."""
    found = {"pipeline.split": ",".join([str(STUDY_LAYERS // p)] * p)} if p > 1 else {}
    if codec == "raw":
        return found | ({"mesh.tp": f"[1,{t},1]", "tensor.method": "1d"} if t > 1 else {})
    if t > 1:
        found |= {"mesh.tp": f"[1,{t},1]", "tensor.method": "1d", "tp.activation.layers": "last half", "tp.activation.codec": codec}
    if p > 1:
        found |= {"pp.activation.codec": codec, "pp.activation.boundaries": "last half"}
        if codec.startswith(("top_k", "random_k")):
            found |= {"pp.gradient.codec": codec, "pp.gradient.boundaries": "last half"}
    return found


def study(_):
    lines = ["## Compressed activations: BERT-Large on V100", "",
             "Milliseconds of a step, *predicted* by simulation: t ranks of a 1-D grid, p stages; in brackets what is **remembered** of the paper's tables: none of them could be read again, so none is sure. "
             "A1, A2: learned codes of 50 and 100 numbers; T1: top-k of as many bytes as A1; T3 and R3: top-k and random-k of as many numbers; Q1, Q2, Q3: 2, 4 and 8 bits. In the last 12 layers, and at the last half of the boundaries between stages.", "",
             "| hosts | t x p | " + " | ".join(STUDY) + " |", "|---|---|" + "--:|" * len(STUDY)]
    for hosts, t, p, batch, microbatch, tokens, published in STUDY_SETTINGS:
        cells = []
        for number, (name, codec) in enumerate(STUDY.items()):
            more = {"mesh.pp": p, "train.batch": batch, "train.microbatch": microbatch, "model.context": tokens}
            step = step_seconds("bert-large.toml", PLANS / hosts, {**more, **study_keys(codec, t, p)})
            cells.append(("-" if step is None else f"{1e3 * step:.0f}") + (f" ({published[number]})" if number < 3 else ""))
        lines.append(f"| {hosts[:-5]} | {t} x {p} | " + " | ".join(cells) + " |")
    return lines


def commit():
    said = subprocess.run([str(LACONIC), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return said


def papers(folder):
    lines = ["# What papers measured, predicted", "",
             "**Predicted, not measured**: every number beside a published one is what `laconic simulate` says of the configuration and the hosts in this folder. "
             "Made by `bench/plans.py papers` with " + commit() + ". [plan.md](../plan.md) tells how hosts are described.", ""]
    for part in (ac_sgd, optimus, grids, embrace, study):
        begin = time.time()
        lines += part(folder) + [""]
        print(f"{part.__name__}: {time.time() - begin:.1f} s", file=sys.stderr)
    notes = PLANS / "notes.md"
    return lines + (["## Where we differ, and why", "", *notes.read_text().splitlines()] if notes.exists() else [])


# --- large models over the internet

HOSTS = (64, 256, 1024)
RATES = ("100mbit", "1gbit")


def internet_hosts(folder, hosts, rate, device):
    path = pathlib.Path(folder, f"{hosts}-{rate}.toml")
    path.write_text(f'[[group]]\nname = "hosts"\nhosts = {hosts}\nmemory = "256GB"\ndevice = "{device}"\ncard = {{ rate = "{rate}", latency = "20ms" }}\n')
    return path


def time_by(plan):
    if "not_simulated" in plan:
        return "formulas (" + plan["not_simulated"] + ")"
    return "coarse simulation" if plan.get("simulated_coarsely") else "simulation"


def internet_table(folder, model, config, device, words):
    lines = [f"## {model}, one {device} a host" + (", unproven policies too, whatever they lose" if words else ""), "", "| hosts | link | plan | step, s | tokens a day | of the hosts' speed | time by | what limits it | answered in, s of a core |", "|--:|---|---|--:|--:|--:|---|---|--:|"]
    for hosts in HOSTS:
        for rate in RATES:
            said, took = ask("plan", PLANS / config, internet_hosts(folder, hosts, rate, device), "--quick", "--top", "1", *words)
            print(f"{model}, {hosts} x {rate}: {took:.1f} s", file=sys.stderr)
            if said is None:
                lines.append(f"| {hosts} | {rate} | {'no answer in ' + str(LONGEST) + ' s of a core' if took > 0 else 'not asked'} | | | | | | {took:.1f} |")
                continue
            if "plans" not in said:
                near = said["nearest"]
                lines.append(f"| {hosts} | {rate} | nothing fits: {near['missing'] / 1e9:.3g} GB are missing on {near['where']}, with {near['plan']} | | | | | | {took:.1f} |")
                continue
            best = said["plans"][0]
            still = best["by_formulas"]["compute"] - best["by_formulas"]["codec"]
            ranks = best["mesh"]["pp"] * best["mesh"]["dp"] * math.prod(int(n) for n in str(best["mesh"]["tp"]).strip("[]").split(","))
            lines.append(f"| {hosts} | {rate} | {best['plan']} | {best['predicted_seconds']:.3g} | {best['tokens_per_second'] * 86400 / 1e9:.3g} G | {100 * still / best['predicted_seconds'] * ranks / hosts:.0f} % | {time_by(best)} | {best['limited_by']} | {took:.1f} |")
    return lines + [""]


def internet(folder):
    lines = ["# Large models over the internet, predicted", "",
             "**Predicted, not measured**: the best plan of `laconic plan --top 1` for each row, by `bench/plans.py internet` with " + commit() + ". Hosts have one GPU, 256 GB of memory and a card of the given rate "
             "with 20 ms of latency; a step has 1024 sequences of 4096 tokens, in bfloat16. Budget of loss: 0.5 %, by losses of models of 0.2 to 14 million parameters, which nobody has "
             "measured at this size. *Time by*: `laconic plan` simulates a plan whose program has at most a million messages; otherwise coarsely, with ranks that are alike as one and sums in 16 lanes; where that is too "
             "much, too, formulas alone say it ([plan.md](../plan.md)). *Of the hosts' speed*: how much of all hosts' time is computing. Stragglers, lost hosts and lost packets are left out; over the internet there are all of them.", ""]
    lines += internet_table(folder, "7 B", "llama-7b.toml", "h100", [])
    lines += internet_table(folder, "70 B", "llama-70b.toml", "h100", [])
    lines += internet_table(folder, "7 B", "llama-7b.toml", "h100", ["--unproven", "--loss-budget", "100%"])
    lines += internet_table(folder, "70 B", "llama-70b.toml", "h100", ["--unproven", "--loss-budget", "100%"])
    notes = PLANS / "internet-notes.md"
    return lines + (["## What still hurts", "", *notes.read_text().splitlines()] if notes.exists() else [])


def main():
    parts = {"papers": (papers, "README.md"), "internet": (internet, "internet.md")}
    for name in [word for word in sys.argv[1:] if word != "--kept"] or parts:
        make, page = parts[name]
        with tempfile.TemporaryDirectory() as folder:
            (PLANS / page).write_text("\n".join(make(folder)).rstrip() + "\n")


if __name__ == "__main__":
    main()
