"""What travels between stages and replicas, by name: shared by the benchmarks `pipeline` and `quality`.

A setting is {"preset": NAME or none, "set": {key: value}}; what a preset says is not repeated here.
"""

TIED = "quantise:bits=8,block=64"  # the embedding's sum, wherever the rest is encoded too


def quantised(bits):
    return f"quantise:bits={bits},block=64"


def whole():
    """fp32 everywhere, and the embedding summed in two acts, as without any of this."""
    return {"set": {"embedding.tied.fused": "false"}}


def halves(kind="bf16"):
    codec = f"half:kind={kind}"
    return {"set": {"pp.activation.codec": codec, "pp.gradient.codec": codec, "embedding.tied.codec": codec,
                    "dp.gradient.codec": codec}}


def direct(forward, backward):
    """Quantised as it is, nothing remembered: DirectQ."""
    return {"set": {"pp.activation.codec": quantised(forward), "pp.gradient.codec": quantised(backward),
                    "embedding.tied.codec": TIED}}


def delta(forward, backward):
    """AC-SGD, changes of activations in so many bits."""
    return {"preset": "ac-sgd", "set": {"pp.activation.codec": quantised(forward), "pp.gradient.codec": quantised(backward)}}


def rotated():
    return {"preset": "rotated", "set": {}}


def low_rank(rank, memory, when, reset=False):
    return {"set": {"pp.gradient.codec": f"low_rank:rank={rank}", "pp.gradient.memory": memory, "pp.gradient.when": when,
                    "pp.gradient.reset": str(reset).lower()}}


def end_to_end():
    """AC-SGD between stages, 4 bits between replicas: all that the preset says."""
    return {"preset": "ac-sgd", "set": {}}


def optimus():
    return {"preset": "optimus-cc", "set": {}}


def joined(*settings):
    """Several at once; the later wins. At most one may have a preset."""
    presets = [s["preset"] for s in settings if s.get("preset")]
    if len(presets) > 1:
        raise ValueError(f"two presets at once: {', '.join(presets)}")
    result = {"set": {key: value for s in settings for key, value in s["set"].items()}}
    return {"preset": presets[0], **result} if presets else result


def config_text(setting):
    return f"extends = \"preset:{setting['preset']}\"\n" if setting.get("preset") else ""


def set_words(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def described(setting):
    """For a table: `preset:x; key = value, ...`."""
    parts = [f"preset:{setting['preset']}"] if setting.get("preset") else []
    parts += [f"{key} = {value}" for key, value in setting["set"].items()]
    return "; ".join(parts) or "all defaults"
