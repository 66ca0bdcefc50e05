#!/usr/bin/env python3
"""Checks the laconic program against Hugging Face's transformers, there and back.

usage: tools/check_hugging_face.py LACONIC SCRATCH_FOLDER

LACONIC is the program (build/bin/laconic). Works in a new folder below SCRATCH_FOLDER, which stays
for inspection. Needs torch and transformers. For a random small GPT-2, saved by transformers once
in one file and once in shards:

  evaluate   the loss on a tiny dataset is that of transformers on the same windows
  generate   greedy decoding gives the ids of model.generate
  export     transformers loads what laconic writes, in one file and in shards: no tensor missing or
             unexpected, every weight bit for bit, and the same logits

One line per check; the last one is "N passed, M failed". Exits 1 if one failed.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as error:
    sys.exit(f"check_hugging_face: {error}: pip install torch transformers")

SEED = 29  # greedy decoding meets ten different tokens, no two best ones closer than 0.28
CONTEXT = 32
VOCABULARY = 61
SHARD_BYTES = 20_000  # the largest tensor has 16,384
DOCUMENTS = [50, 1, 77, 36]  # tokens; together five windows and a tail that fills none
PROMPT = [5, 17, 3]
NEW_TOKENS = 20  # prompt and continuation fit in the context

LOSS_TOLERANCE = 1e-6  # float32 agrees to 1e-7 or better; erf instead of tanh in GELU gives 5e-6
LOGITS_TOLERANCE = 1e-6


class Checks:
    """Counts; a check that raises has failed, and the others still run."""

    def __init__(self):
        self.passed = self.failed = 0

    def run(self, name, check, *arguments):
        try:
            is_good, text = check(*arguments)
        except Exception as error:  # whatever went wrong belongs in this check's line
            is_good, text = False, f"{type(error).__name__}: {error}"
        self.passed += is_good
        self.failed += not is_good
        print(f"{'passed' if is_good else 'FAILED'}  {name}: {text}", flush=True)


class Laconic:
    def __init__(self, program):
        self.program = program

    def run(self, *words):
        command = [self.program, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"`{' '.join(command)}` exited with {done.returncode}: "
                               f"{(done.stderr or done.stdout).strip()}")

    def run_for_json(self, path, *words):
        self.run(*words, "--json", path)
        return json.loads(path.read_text())


def make_model():
    """Every parameter random and large, so that none can be mixed up or left out unnoticed.

    Positions count most, or greedy decoding would repeat one token and show little.
    """
    config = GPT2Config(n_layer=3, n_embd=32, n_head=4, n_positions=CONTEXT, vocab_size=VOCABULARY,
                        layer_norm_epsilon=1e-3, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = ".ln_" in name and name.endswith("weight")
            parameter.normal_(1.0 if is_gain else 0.0, 1.0 if ".wpe." in name else 0.3)
    return model


def write_dataset(prefix):
    """Megatron-LM's .bin and .idx (docs/data.md); returns all tokens."""
    draw = random.Random(SEED)
    tokens = [draw.randrange(VOCABULARY) for _ in range(sum(DOCUMENTS))]
    starts = [2 * sum(DOCUMENTS[:d]) for d in range(len(DOCUMENTS))]
    count = len(DOCUMENTS)
    pathlib.Path(f"{prefix}.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    pathlib.Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)  # version, uint16, sizes
        + struct.pack(f"<{count}i", *DOCUMENTS) + struct.pack(f"<{count}q", *starts)
        + struct.pack(f"<{count + 1}q", *range(count + 1)))
    return tokens


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


def windows(tokens):
    """Inputs and targets of all samples: window s is tokens [s T, s T + T]."""
    samples = (len(tokens) - 1) // CONTEXT
    cut = [tokens[s * CONTEXT : s * CONTEXT + CONTEXT + 1] for s in range(samples)]
    both = torch.tensor(cut)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def check_shards(folder):
    shards = len(list(folder.glob("model-*-of-*.safetensors")))
    is_good = shards > 1 and (folder / "model.safetensors.index.json").exists()
    return is_good, f"{shards} shards and an index"


def check_loss(laconic, folder, prefix, model, tokens):
    ids, targets = windows(tokens)
    logits = logits_of(model, ids).double()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    found = laconic.run_for_json(folder.with_suffix(".evaluate.json"), "evaluate", folder, "--data",
                                 prefix)["loss"]
    error = abs(found - expected) / expected
    return error < LOSS_TOLERANCE, f"{found:.7f}, transformers {expected:.7f}, relative {error:.1e}"


def check_greedy(laconic, folder, model):
    prompt = torch.tensor([PROMPT])
    with torch.no_grad():
        whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                               max_new_tokens=NEW_TOKENS, pad_token_id=0)
    expected = whole[0].tolist()[len(PROMPT):]
    found = laconic.run_for_json(
        folder.with_suffix(".generate.json"), "generate", folder, "--prompt-ids",
        ",".join(map(str, PROMPT)), "--tokens", NEW_TOKENS, "--greedy")["ids"]
    if len(found) == len(PROMPT) + NEW_TOKENS and found[: len(PROMPT)] == PROMPT:
        found = found[len(PROMPT):]
    is_good = found == expected and len(found) == NEW_TOKENS
    return is_good, f"{found}" + ("" if is_good else f", transformers {expected}")


def load_exported(folder):
    """The model, and what transformers missed or did not expect. The tied head is not stored."""
    model, report = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    report = report if isinstance(report, dict) else vars(report)
    complaints = {key: sorted(map(str, set(report.get(key) or ()) - {"lm_head.weight"}))
                  for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    return model.eval(), {key: names for key, names in complaints.items() if names}


def check_weights(found, expected):
    a, b = found.state_dict(), expected.state_dict()
    wrong = sorted(set(a) ^ set(b)) + [
        name for name in a
        if name in b and not (a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]))]
    return not wrong, f"{len(b)} tensors equal" if not wrong else f"different: {', '.join(wrong)}"


def check_logits(found, expected, ids):
    a, b = logits_of(found, ids), logits_of(expected, ids)
    error = ((a - b).abs().max() / b.abs().max()).item()
    return error < LOGITS_TOLERANCE, f"relative {error:.1e}"


def check_export(checks, laconic, name, folder, model, ids):
    """Both ways to export one folder."""
    for shard_bytes, form in ((0, "one file"), (SHARD_BYTES, "shards")):
        title = f"{name}, exported in {form}"
        out = folder.with_name(f"{folder.name}-export-{shard_bytes}")
        loaded = []

        def check_load():
            laconic.run("export", folder, out, "--dtype", "float32", "--shard-bytes", shard_bytes)
            exported, complaints = load_exported(out)
            loaded.append(exported)
            return not complaints, str(complaints or "transformers has no complaint")

        checks.run(f"{title}, load", check_load)
        if shard_bytes > 0:
            checks.run(f"{title}, files", check_shards, out)
        # Without a model these fail too: a check is never silently left out.
        checks.run(f"{title}, weights", lambda: check_weights(loaded[0], model))
        checks.run(f"{title}, logits", lambda: check_logits(loaded[0], model, ids))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    laconic = Laconic(str(pathlib.Path(sys.argv[1]).resolve()))
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="hugging-face-", dir=sys.argv[2])).resolve()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, in {scratch}")

    checks = Checks()
    model = make_model()
    prefix = scratch / "tokens"
    tokens = write_dataset(prefix)
    for name, options in (("one-file", {}), ("shards", {"max_shard_size": SHARD_BYTES})):
        folder = scratch / name
        model.save_pretrained(folder, **options)
        if options:
            checks.run(f"{name}, files of transformers", check_shards, folder)
        checks.run(f"{name}, loss", check_loss, laconic, folder, prefix, model, tokens)
        checks.run(f"{name}, greedy ids", check_greedy, laconic, folder, model)
        check_export(checks, laconic, name, folder, model, windows(tokens)[0])
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
