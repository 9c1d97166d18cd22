"""Gradients and distributions, written without the package's losses."""

from collections.abc import Iterator
from typing import Any

import torch

from rl_agents.data.samples import Row

KEYS: dict[str, Any] = {
    "temperature": 0.7,
    "kl_coef": 0.05,
    "entropy_coef": 0.03,
    "clip_low": 0.2,
    "clip_high": 0.3,
    "grad_clip": 0.5,
    "minibatches": 1,
    "tokens_per_microbatch": 64,
}


def distributions(model: Any, row: Row, temperature: float) -> torch.Tensor:
    """log p(. | prefix) before every token of a row but the first, in float64."""
    logits = model(torch.from_numpy(row.input_ids).long()[None]).logits[0, :-1]
    return torch.log_softmax(logits.double() / temperature, dim=-1)


def clipped_gradients(model: torch.nn.Module, loss: torch.Tensor) -> tuple[dict[str, torch.Tensor], float]:
    """Gradients by parameter, and their norm before they were clipped."""
    names = [name for name, _ in model.named_parameters()]
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    found = {name: g for name, g in zip(names, gradients, strict=True) if g is not None}
    norm = float(torch.sqrt(sum((g.double() ** 2).sum() for g in found.values())))
    return {name: g * min(1.0, KEYS["grad_clip"] / norm) for name, g in found.items()}, norm


def differences(moments: dict[str, torch.Tensor], network: str, expected: dict[str, torch.Tensor]) -> Iterator[float]:
    """Relative to the largest gradient of the network: biases of attention keys have none but rounding."""
    largest = max(float(g.abs().max()) for g in expected.values())
    for name, gradient in expected.items():
        yield float((moments[f"{network}/{name}/exp_avg"] * 10 - gradient).abs().max()) / largest
