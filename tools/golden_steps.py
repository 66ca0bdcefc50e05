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
