"""The time model of bench/embedding.py: collectives over links of a lab against the formulas, and what these say of more ranks."""

import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
RANKS = 4
LINKS = {"100mbit": 1e8, "1gbit": 1e9}
PAYLOAD = 0.956  # of a link's rate is left to what TCP carries (docs/lab.md)
SHARES = (8 << 20, 16 << 20)  # alpha M: bytes of rows of a rank; messages are a quarter of it
SMALL = 4096
# Buffer of all ranks by bytes of a rank, bytes that a rank sends by these, and messages one after the other.
KINDS = {"alltoall, one way": ("all_to_all", "direct", RANKS, (RANKS - 1) / RANKS, RANKS - 1),
         "allgather": ("all_gather", "ring", RANKS, RANKS - 1, RANKS - 1),
         "allreduce": ("all_reduce", "ring", 1, 2 * (RANKS - 1) / RANKS, 2 * (RANKS - 1))}
LIMIT = 0.1


def seconds_of(link, kind, size):
    name, algorithm, buffers, _, _ = KINDS[kind]
    words = [BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", RANKS, "--rate", link, "--threads", 1, "--", BIN / "collective_bench",
             "--kind", name, "--algorithm", algorithm, "--bytes", buffers * size, "--rounds", 5, "--codec", "raw"]
    out = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])["median_s"]


def measure(times, save):
    """Adds what is missing."""
    if not (BIN / "collective_bench").exists():
        return
    for link in LINKS:
        for kind in KINDS:
            for size in (SMALL, *SHARES):
                key = f"{link}/{kind}/{size}"
                if key not in times:
                    times[key] = seconds_of(link, kind, size)
                    save()


def page(times):
    lines = ["### Times against the formulas (T13)", "",
             "Single collectives over the links of a lab, raw, 4 ranks, medians of 5: measured against bytes / B + messages x beta, as spec 1.3 has it. B is "
             f"{100 * PAYLOAD:.1f} % of the rate, what TCP leaves; beta is the time of the same collective of {SMALL} bytes, divided by its messages.", "",
             "| link | | MiB of a rank | MiB in a message | measured s | predicted s | measured against it |", "|---|---|--:|--:|--:|--:|--:|"]
    errors = []
    for link, rate in LINKS.items():
        for kind, (_, _, _, sent, messages) in KINDS.items():
            for size in SHARES:
                measured, small = times.get(f"{link}/{kind}/{size}"), times.get(f"{link}/{kind}/{SMALL}")
                if measured is None or small is None:
                    continue
                predicted = sent * size / (PAYLOAD * rate / 8) + small
                errors.append(measured / predicted - 1)
                text = f"{100 * errors[-1]:+.1f} %"
                lines.append(f"| {link} | {kind} | {size / 2**20:.0f} | {sent * size / messages / 2**20:.0f} | {measured:.3f} | {predicted:.3f} | "
                             f"{text if abs(errors[-1]) <= LIMIT else f'**{text}**'} |")
    near = sum(abs(e) <= LIMIT for e in errors)
    if not errors:
        return []
    return [*lines, "", f"{near} of {len(errors)} within {100 * LIMIT:.0f} %; the median is {100 * statistics.median(errors):+.1f} %.", ""]


def rows_bench(*words):
    program = BIN / "rows_bench"
    return subprocess.run([str(program), *words], check=True, stdout=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": "1"}).stdout.splitlines() if program.exists() else []


def predictions():
    found = rows_bench("predict")
    if not found:
        return []
    return ["### Predicted, not measured: 16 and 64 ranks", "",
            "Milliseconds of a step that one table of the paper's models costs, if nothing is hidden, by `cost_of` (rows/row_method.hpp): cards of 10 Gbit/s, "
            "50 us for a message, *per card* ranks that share one. U is what spec 1.4 has for a batch of a rank. The last column is the share of rows (alpha) from which on "
            "`allreduce` moves fewer bytes through a card than `alltoall`.", "",
            "| ranks | per card | table | alpha | allreduce ms | allgather ms | server ms | alltoall ms | allreduce wins from alpha |", "|--:|--:|---|--:|--:|--:|--:|--:|--:|",
            *found, ""]


def copies():
    found = rows_bench("copies", "100")
    if not found:
        return []
    return ["### What rows cost a processor", "",
            "One thread, a table of 793,470 x 512 on 4 ranks, 20,480 tokens of a rank drawn as words of the One Billion Word benchmark come; medians of 100, in copies (memcpy of as "
            "many bytes, in the same run). Asked for: packing, deduplication and sums at owners within 2 copies each.", "",
            "| | MB | a copy, ms | ms | copies |", "|---|--:|--:|--:|--:|", *found, ""]
