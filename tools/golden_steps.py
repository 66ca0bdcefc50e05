"""What the scripts that make golden models share: drawing, gradients, steps of AdamW, safetensors."""
import functools
import json
import struct

import torch
from torch import nn

ADAMW = dict(betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1  # not on one-dimensional parameters
CLIP = 1.0
RATES = [1e-3, 3e-3, 2e-2, 5e-3, 1e-3]

DEVIATION = 0.4  # models begin with 0.02, where everything is nearly linear


def expected_steps(logits_of, loss_of, named, stored=lambda name, tensor: tensor.detach().clone()):
    """Logits, loss and gradients of the parameters as they are, then five steps of AdamW; changes them.

    `named` are pairs of a parameter's name and itself; `stored` says how a tensor of that name is written.
    """
    parameters = [parameter for _, parameter in named]
    for parameter in parameters:
        parameter.grad = None
    logits = logits_of()
    loss = loss_of(logits)
    loss.backward()
    expected = {"logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in named:
        expected["gradient." + name] = stored(name, parameter.grad)
    optimiser = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}], **ADAMW)
    losses, norms = [], []
    for rate in RATES:
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss = loss_of(logits_of())
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(parameters, CLIP).item())
        losses.append(loss.item())
        optimiser.step()
    as_tensor = functools.partial(torch.tensor, dtype=torch.float64)
    expected.update({"step.rates": as_tensor(RATES), "step.losses": as_tensor(losses), "step.norms": as_tensor(norms)})
    for name, parameter in named:
        expected["updated." + name] = stored(name, parameter)
    return expected


def draw_parameters(model, generator):
    """Large numbers, around 1 for the gains of norms; float32, so that every precision starts from the same."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = DEVIATION * torch.randn(parameter.shape, generator=generator)
            parameter.copy_((1 + drawn if "norm" in name and name.endswith("weight") else drawn).float())


def write_renamed_case(folder, config, model, names, fields, extra=None):
    """A case whose parameters have other names here: `names` are theirs, each with a parameter and the slice of its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", {name: p.detach()[rows].float() for name, p, rows in names})
    steps = expected_steps(lambda: model.logits(fields), lambda logits: model.loss(logits, fields),
                           list(model.named_parameters()))
    own = {id(p): name for name, p in model.named_parameters()}
    expected = {name: tensor for name, tensor in steps.items() if name.startswith("step.") or name in ("logits", "loss")}
    expected.update(extra or {})
    for kind in ("gradient.", "updated."):
        for name, p, rows in names:
            expected[kind + name] = steps[kind + own[id(p)]][rows].clone()
    write_safetensors(folder / "expected.safetensors", {**fields, **expected})
    print(f"{folder}: losses {expected['step.losses'].tolist()}, norms {expected['step.norms'].tolist()}")


def write_safetensors(path, tensors):
    types = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        piece = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data starts aligned, as the official writer has it
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
