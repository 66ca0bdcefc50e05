#!/usr/bin/env python3
"""Checks the laconic program against Hugging Face's transformers, there and back.

usage: tools/check_hugging_face.py LACONIC SCRATCH_FOLDER

LACONIC is the program (build/bin/laconic). Works in a new folder below SCRATCH_FOLDER, which stays
for inspection. Needs torch and transformers. For random small models of every kind that is read (GPT-2, Llama with
llama3 and linear scaling, Mistral, Qwen2, Qwen3; BERT for hidden tokens, pre-training, classes, numbers and
spans), saved by transformers:

  evaluate   the loss on a tiny dataset is that of transformers on the same windows (causal models)
  generate   greedy decoding gives the ids of model.generate (causal models)
  predict    logits, or log probabilities of hidden tokens, are those of transformers, padding included (BERT)
  export     transformers loads what laconic writes, in one file and in shards: no tensor missing or
             unexpected, every weight bit for bit, and the same logits

One line per check; the last one is "N passed, M failed". Exits 1 if one failed.
"""
import inspect
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
    from transformers import (BertConfig, BertForMaskedLM, BertForPreTraining, BertForQuestionAnswering,
                              BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                              MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
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


def rope(config, theta, scaling=None):
    """Keywords for rotary positions, as this version of transformers takes them."""
    if "rope_parameters" in inspect.signature(config.__init__).parameters:
        return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **(scaling or {})}}
    return {"rope_theta": theta, **({"rope_scaling": scaling} if scaling else {})}


SIZES = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=56, vocab_size=VOCABULARY,
             max_position_embeddings=CONTEXT)
LLAMA = dict(SIZES, num_key_value_heads=2, rms_norm_eps=1e-3, bos_token_id=None, eos_token_id=None, pad_token_id=None)
BERT = dict(SIZES, layer_norm_eps=1e-3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}

# Name, and what makes the model.
CAUSAL = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=32, n_head=4, n_positions=CONTEXT, vocab_size=VOCABULARY,
                                               layer_norm_epsilon=1e-3, bos_token_id=None, eos_token_id=None)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, **rope(LlamaConfig, 500.0, LLAMA3))),
    "llama-linear": lambda: LlamaForCausalLM(LlamaConfig(
        **LLAMA, tie_word_embeddings=True, **rope(LlamaConfig, 1000.0, {"rope_type": "linear", "factor": 2.0}))),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None, **rope(MistralConfig, 1000.0))),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA, tie_word_embeddings=True, **rope(Qwen2Config, 1000.0))),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA, head_dim=16, **rope(Qwen3Config, 1000.0))),
}
ENCODERS = {
    "bert-masked": lambda: BertForMaskedLM(BertConfig(**BERT)),
    "bert-pretraining": lambda: BertForPreTraining(BertConfig(**BERT)),
    "bert-classes": lambda: BertForSequenceClassification(BertConfig(**BERT, num_labels=3)),
    "bert-number": lambda: BertForSequenceClassification(BertConfig(**BERT, num_labels=1)),
    "bert-span": lambda: BertForQuestionAnswering(BertConfig(**BERT)),
}
MASK_ID = 4


def make_model(make):
    """Every parameter random and large, so that none can be mixed up or left out unnoticed.

    Positions count most, or greedy decoding would repeat one token and show little.
    """
    model = make().eval()
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = ("ln_" in name or "norm" in name.lower()) and name.endswith("weight")
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


def outputs_of(model, ids, **inputs):
    """What the model's heads put out, as a list."""
    with torch.no_grad():
        found = model(input_ids=ids, **inputs)
    names = ("logits", "prediction_logits", "seq_relationship_logits", "start_logits", "end_logits")
    return [found[name] for name in names if name in found]


def logits_of(model, ids):
    return outputs_of(model, ids)[0]


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


TIED = {"lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}


def load_exported(kind, folder):
    """The model, and what transformers missed or did not expect. Tied tensors are not stored."""
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    report = report if isinstance(report, dict) else vars(report)
    complaints = {key: sorted(map(str, set(report.get(key) or ()) - TIED))
                  for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    return model.eval(), {key: names for key, names in complaints.items() if names}


def check_weights(found, expected):
    a, b = found.state_dict(), expected.state_dict()
    wrong = sorted(set(a) ^ set(b)) + [
        name for name in a
        if name in b and not (a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]))]
    return not wrong, f"{len(b)} tensors equal" if not wrong else f"different: {', '.join(wrong)}"


def check_logits(found, expected, ids):
    pairs = zip(outputs_of(found, ids), outputs_of(expected, ids), strict=True)
    error = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
    return error < LOGITS_TOLERANCE, f"relative {error:.1e}"


def check_export(checks, laconic, name, folder, model, ids):
    """Both ways to export one folder."""
    for shard_bytes, form in ((0, "one file"), (SHARD_BYTES, "shards")):
        title = f"{name}, exported in {form}"
        out = folder.with_name(f"{folder.name}-export-{shard_bytes}")
        loaded = []

        def check_load():
            laconic.run("export", folder, out, "--dtype", "float32", "--shard-bytes", shard_bytes)
            exported, complaints = load_exported(type(model), out)
            loaded.append(exported)
            return not complaints, str(complaints or "transformers has no complaint")

        checks.run(f"{title}, load", check_load)
        if shard_bytes > 0:
            checks.run(f"{title}, files", check_shards, out)
        # Without a model these fail too: a check is never silently left out.
        checks.run(f"{title}, weights", lambda: check_weights(loaded[0], model))
        checks.run(f"{title}, logits", lambda: check_logits(loaded[0], model, ids))


def questions():
    """Samples of different lengths, some tokens hidden, padded to the longest."""
    draw = random.Random(SEED)
    samples = []
    for length in (9, 20, 1, 13):
        ids = [draw.randrange(5, VOCABULARY) for _ in range(length)]
        for place in range(2, length, 5):
            ids[place] = MASK_ID
        samples.append({"ids": ids, "types": [int(i > length // 2) for i in range(length)]})
    longest = max(len(s["ids"]) for s in samples)
    return [{"ids": s["ids"] + [0] * (longest - len(s["ids"])), "types": s["types"] + [0] * (longest - len(s["ids"])),
             "mask": [1] * len(s["ids"]) + [0] * (longest - len(s["ids"]))} for s in samples]


def check_predictions(laconic, folder, model):
    lines = questions()
    source, answers = folder.with_suffix(".questions.jsonl"), folder.with_suffix(".answers.jsonl")
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    laconic.run("predict", folder, "--input", source, "--json", answers, "--mask-id", MASK_ID, "--best", VOCABULARY)
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    expected = outputs_of(model, torch.tensor([q["ids"] for q in lines]),
                          token_type_ids=torch.tensor([q["types"] for q in lines]),
                          attention_mask=torch.tensor([q["mask"] for q in lines]))
    errors, count = [], 0
    for i, (question, answer) in enumerate(zip(lines, found, strict=True)):
        if "guesses" in answer:
            log_p = expected[0][i].double().log_softmax(-1)
            hidden = [place for place, token in enumerate(question["ids"]) if token == MASK_ID]
            if [g["position"] for g in answer["guesses"]] != hidden:
                return False, f"sample {i}: positions {answer['guesses']}, not {hidden}"
            for guess in answer["guesses"]:
                for row in guess["best"]:
                    errors.append(abs(row["log_probability"] - log_p[guess["position"], row["id"]].item()))
                    count += 1
        elif "start" in answer:
            length = sum(question["mask"])
            ends = [e[i, :length].double().log_softmax(-1) for e in expected]
            # No answer, or one in the second text, before the token that ends it.
            first = question["types"].index(1) if 1 in question["types"][:length] else 1
            spans = [(0, 0)] + [(b, e) for b in range(first, length - 1) for e in range(b, length - 1)]
            best = max((ends[0][b] + ends[1][e]).item() for b, e in spans)
            errors.append(abs(answer["log_probability"] - best))
            count += 1
        else:
            numbers = answer.get("logits", [answer.get("score")])
            errors += [abs(a - b) for a, b in zip(numbers, expected[0][i].tolist(), strict=True)]
            count += len(numbers)
    return count > 0 and max(errors) < 2e-5, f"{count} numbers, largest difference {max(errors):.1e}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    laconic = Laconic(str(pathlib.Path(sys.argv[1]).resolve()))
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="hugging-face-", dir=sys.argv[2])).resolve()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, in {scratch}")

    checks = Checks()
    prefix = scratch / "tokens"
    tokens = write_dataset(prefix)
    ids = windows(tokens)[0]
    for kind, make in {**CAUSAL, **ENCODERS}.items():
        model = make_model(make)
        forms = (("one file", {}), ("shards", {"max_shard_size": SHARD_BYTES})) if kind == "gpt2" else (("one file", {}),)
        for form, options in forms:
            name = f"{kind} in {form}"
            folder = scratch / name.replace(" ", "-")
            model.save_pretrained(folder, **options)
            if options:
                checks.run(f"{name}, files of transformers", check_shards, folder)
            if kind in CAUSAL:
                checks.run(f"{name}, loss", check_loss, laconic, folder, prefix, model, tokens)
                checks.run(f"{name}, greedy ids", check_greedy, laconic, folder, model)
            else:
                checks.run(f"{name}, predictions", check_predictions, laconic, folder, model)
            check_export(checks, laconic, name, folder, model, ids)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
