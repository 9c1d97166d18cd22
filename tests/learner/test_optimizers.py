"""Optimizers: schedule, non-finite gradients, and exact state."""

import copy

import pytest
import torch
from torch import nn

from rl_agents.algorithms import Settings
from rl_agents.learner.optimizers import OptimizerSet, learning_rate_factor
from rl_agents.trainer.checkpoint import flatten, unflatten


def test_learning_rate_warms_up_stays_and_falls() -> None:
    settings = Settings.from_dict({"lr_warmup": 20, "lr_decay": 0.5})
    assert learning_rate_factor(0, settings) == pytest.approx(1 / 20)
    assert learning_rate_factor(30, settings, 0.3) == 1.0
    assert learning_rate_factor(75, settings, 0.75) == pytest.approx(0.52)
    assert learning_rate_factor(99, settings, 0.99) == pytest.approx(0.04)
    assert learning_rate_factor(10**6, settings, 1.5) == pytest.approx(0.02)
    assert learning_rate_factor(5, Settings(), 0.9) == 1.0


def step(optimizers: OptimizerSet, module: nn.Module, scale: float = 1.0) -> dict[str, float]:
    optimizers.zero_grad()
    (module(torch.ones(2, 4)).square().sum() * scale).backward()
    return optimizers.step(["default_policy"])


def build(kind: str, **keys: object) -> tuple[OptimizerSet, nn.Module]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    return OptimizerSet({"default_policy": module}, Settings.from_dict({"optimizer": kind, "lr": 0.1, **keys})), module


@pytest.mark.parametrize(("kind", "steps"), [("adamw", 1), ("muon", 1), ("adamw", 0)])
def test_state_restores_the_next_step_exactly(kind: str, steps: int) -> None:
    """Through a checkpoint's form, which keeps no empty dictionaries: before the first step there are no moments."""
    optimizers, module = build(kind)
    for _ in range(steps):
        step(optimizers, module)
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = unflatten(copy.deepcopy(flatten(optimizers.state())))
    step(optimizers, module)
    expected = [parameter.clone() for parameter in module.parameters()]
    fresh, other = build(kind)
    other.load_state_dict(weights)
    fresh.load(state)
    step(fresh, other)
    assert all(torch.equal(a, b) for a, b in zip(expected, other.parameters(), strict=True))


def test_a_policy_warms_up_after_its_critic_also_in_a_resumed_run() -> None:
    networks = {name: nn.Linear(4, 1) for name in ("default_policy", "critic")}
    keys = Settings.from_dict({"lr": 1.0, "critic_lr": 1.0, "lr_warmup": 4})
    first, resumed = OptimizerSet(networks, keys), OptimizerSet(networks, keys)

    def train(optimizers: OptimizerSet, *names: str) -> None:
        optimizers.zero_grad()
        for network in networks.values():
            network(torch.ones(1, 4)).sum().backward()
        optimizers.step(names)

    for _ in range(2):
        train(first, "critic")
    resumed.load(unflatten(flatten(first.state())))
    train(resumed, "default_policy", "critic")
    assert resumed.rates == {"default_policy": 0.25, "critic": 0.75}


def test_muon_updates_hidden_matrices_whatever_embeddings_are_called() -> None:
    module = nn.ModuleDict({"wte": nn.Embedding(3, 4), "c_fc": nn.Linear(4, 4), "lm_head": nn.Linear(4, 3)})
    optimizers = OptimizerSet({"default_policy": module}, Settings.from_dict({"optimizer": "muon"}))
    muon, _ = optimizers.optimizers["default_policy"]
    assert [id(p) for group in muon.param_groups for p in group["params"]] == [id(module["c_fc"].weight)]
