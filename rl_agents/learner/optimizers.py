"""Optimizers of policy and critic: AdamW, or Muon on hidden matrices, with one schedule and one norm check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from rl_agents.config import Settings
from rl_agents.learner.fsdp import full_tensor, gathered, shard_like
from rl_agents.learner.rl_modules import POLICY


class OptimizerSet:
    """All optimizers of a learner.

    Args:
        networks: name -> module; the policy's learning rate is ``lr``, every other's ``critic_lr``.
    """

    def __init__(self, networks: Mapping[str, nn.Module], settings: Settings) -> None:
        self.settings = settings
        self.steps = 0
        #: Of them, those of each network: a policy that waits for its critic warms up afterwards.
        self.taken = dict.fromkeys(networks, 0)
        #: Learning rate of the last step by network; with Muon that of the AdamW parameters.
        self.rates: dict[str, float] = {}
        self.networks = {
            name: {n: p for n, p in module.named_parameters() if p.requires_grad} for name, module in networks.items()
        }
        self.optimizers = {name: self._build(name, module) for name, module in networks.items()}
        self._base_rates = {
            name: [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
            for name, optimizers in self.optimizers.items()
        }

    def _build(self, name: str, module: nn.Module) -> list[torch.optim.Optimizer]:
        settings, params = self.settings, self.networks[name]
        rate = settings.lr if name == POLICY else settings.critic_lr
        adam = {"betas": tuple(settings.betas), "weight_decay": settings.weight_decay, "fused": True}
        if settings.optimizer == "adamw" or name != POLICY:
            return [torch.optim.AdamW(list(params.values()), lr=rate, **adam)]
        # By type, too: GPT-2 calls its embeddings wte and wpe.
        tables = {id(p) for part in module.modules() if isinstance(part, nn.Embedding) for p in part.parameters()}
        hidden = {n: p for n, p in params.items() if "embed" not in n and "lm_head" not in n and id(p) not in tables}
        matrices = [p for p in hidden.values() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        others = [p for p in params.values() if id(p) not in chosen]
        muon = torch.optim.Muon(matrices, lr=settings.muon_lr, weight_decay=settings.weight_decay, momentum=0.95)
        return [muon, torch.optim.AdamW(others, lr=rate, **adam)]

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for params in self.networks.values() for parameter in params.values()]

    def zero_grad(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None

    def step(self, networks: Iterable[str], done: float = 0.0) -> dict[str, float]:
        """Clip and apply the gradients of ``networks``; a network with a non-finite gradient stays unchanged.

        Args:
            done: completed share of the run.

        Returns:
            Gradient norm before clipping, by network.
        """
        norms = {}
        for name in networks:
            grads = [p for p in self.networks[name].values() if p.grad is not None]
            norm = float(full_tensor(torch.nn.utils.clip_grad_norm_(grads, self.settings.grad_clip or float("inf"))))
            norms[name] = norm
            if norm != norm or norm == float("inf"):
                continue
            self._set_rates(name, done)
            for optimizer in self.optimizers[name]:
                optimizer.step()
            self.taken[name] += 1
        self.steps += 1
        return norms

    def _set_rates(self, name: str, done: float) -> None:
        factor = learning_rate_factor(self.taken[name], self.settings, done)
        self.rates[name] = factor * (self.settings.lr if name == POLICY else self.settings.critic_lr)
        for optimizer, rates in zip(self.optimizers[name], self._base_rates[name], strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor

    def state(self) -> dict[str, Any]:
        """Return the state for `load`: moments by parameter name as full tensors on the CPU.

        All sharded learners must be asked, and the first has the moments.
        """
        moments = (
            (f"{network}/{name}/{key}", value)
            for network, name, optimizer, parameter in self._entries()
            for key, value in optimizer.state.get(parameter, {}).items()
        )
        return {
            "steps": self.steps,
            "taken": dict(self.taken),
            "moments": {path: full.cpu() for path, full in gathered(moments)},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state`; moments and ``step`` move to the device of their parameter."""
        self.steps = int(state["steps"])
        self.taken = {name: int(steps) for name, steps in state["taken"].items()}
        by_parameter: dict[str, dict[str, Any]] = {}
        for path, value in state.get("moments", {}).items():  # a checkpoint before the first step has none
            name, _, key = path.rpartition("/")
            by_parameter.setdefault(name, {})[key] = value
        for network, name, optimizer, parameter in self._entries():
            restored = by_parameter.get(f"{network}/{name}", {})
            optimizer.state[parameter] = {
                key: shard_like(value, parameter) if value.ndim else value.to(parameter.device)
                for key, value in restored.items()
            }

    def _entries(self) -> Iterable[tuple[str, str, torch.optim.Optimizer, nn.Parameter]]:
        for network, params in self.networks.items():
            names = {id(parameter): name for name, parameter in params.items()}
            for optimizer in self.optimizers[network]:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        yield network, names[id(parameter)], optimizer, parameter


def learning_rate_factor(step: int, settings: Settings, done: float = 0.0) -> float:
    """Linear warm-up over ``lr_warmup`` steps, constant, then linear decay to 2 % over the last ``lr_decay`` share.

    Args:
        step: steps of the network so far.
        done: completed share of the run.
    """
    factor = min(1.0, (step + 1) / settings.lr_warmup) if settings.lr_warmup else 1.0
    if settings.lr_decay:
        factor *= min(1.0, max(0.0, 1.0 - done) / settings.lr_decay + 0.02)
    return factor
