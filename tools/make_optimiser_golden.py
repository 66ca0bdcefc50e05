#!/usr/bin/env python3
"""Writes tests/golden/optimiser/expected.safetensors: what torch.optim makes of given gradients.

usage: /usr/bin/python3 tools/make_optimiser_golden.py OUT_DIR

Needs Debian's python3-torch (1.13). A matrix and a vector in float64; the weight decay is on the
matrix alone. Gradients are drawn, not computed, so that every algorithm gets the same ones:

  matrix, vector        where all begin
  gradients.matrix      [steps, 5, 7]; gradients.vector [steps, 7]
  rates                 learning rates, by step
  CASE.matrix, .vector  after the last step
  outer.changes         mean changes of five rounds of local updates; outer.after: where the outer
                        step, SGD with lr 0.7 and Nesterov momentum 0.9, has brought 0 by each
"""
import pathlib
import sys

import torch

from make_gpt_golden import write_safetensors

STEPS = 6
DECAY = 0.1
CASES = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.9),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.8, nesterov=True),
    "adam": lambda groups: torch.optim.Adam(groups, lr=1, betas=(0.9, 0.95), eps=1e-8),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1, betas=(0.9, 0.95), eps=1e-8),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw = torch.Generator().manual_seed(4)
    normal = lambda *shape: torch.randn(shape, generator=draw, dtype=torch.float64)
    start = {"matrix": normal(5, 7), "vector": normal(7)}
    gradients = {"matrix": normal(STEPS, 5, 7), "vector": normal(STEPS, 7)}
    rates = [1e-2, 2e-2, 2e-2, 1.5e-2, 1e-2, 5e-3]
    expected = {**start, "rates": torch.tensor(rates, dtype=torch.float64),
                **{"gradients." + name: g for name, g in gradients.items()}}
    for case, make in CASES.items():
        parameters = {name: p.clone().requires_grad_(True) for name, p in start.items()}
        optimiser = make([{"params": [parameters["matrix"]], "weight_decay": DECAY},
                          {"params": [parameters["vector"]], "weight_decay": 0.0}])
        for step, rate in enumerate(rates):
            for group in optimiser.param_groups:
                group["lr"] = rate
            for name, p in parameters.items():
                p.grad = gradients[name][step].clone()
            optimiser.step()
        for name, p in parameters.items():
            expected[f"{case}.{name}"] = p.detach()
    changes = normal(5)
    value, after = torch.zeros(1, dtype=torch.float64, requires_grad=True), []
    outer = torch.optim.SGD([value], lr=0.7, momentum=0.9, nesterov=True)
    for change in changes:
        value.grad = change.reshape(1).clone()
        outer.step()
        after.append(value.item())
    expected |= {"outer.changes": changes, "outer.after": torch.tensor(after, dtype=torch.float64)}
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "expected.safetensors", expected)


if __name__ == "__main__":
    main()
