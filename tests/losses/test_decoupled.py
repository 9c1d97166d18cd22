"""Decoupled PPO (AReaL, arXiv 2505.24298, eq. 5) is ``old_logprobs=learner`` with a weight per token."""

from __future__ import annotations

import pytest
import torch

from rl_agents.losses.policy import ppo_loss
from rl_agents.losses.rollout_correction import icepop, token_tis

GENERATOR = torch.Generator().manual_seed(3)
BEHAVIOR, PROXIMAL = (-3 * torch.rand(4, 6, generator=GENERATOR, dtype=torch.float64) for _ in range(2))
ADVANTAGES = torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
MASK = (torch.rand(4, 6, generator=GENERATOR) > 0.2).double()
CLIP = 0.2


def areal(logprobs: torch.Tensor, cap: float | None) -> torch.Tensor:
    """w·min(ρA, clip(ρ)A) with ρ = π/π_prox and w = π_prox/π_behav, 0 beyond the cap, token by token."""
    losses = torch.zeros_like(logprobs)
    for i, j in MASK.nonzero().tolist():
        ratio = (logprobs[i, j] - PROXIMAL[i, j]).exp()
        weight = (PROXIMAL[i, j] - BEHAVIOR[i, j]).exp()
        if cap is None or weight <= cap:
            advantage = ADVANTAGES[i, j]
            losses[i, j] = -weight * torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return losses


def ours(logprobs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    loss, _ = ppo_loss(logprobs, PROXIMAL, ADVANTAGES, MASK, clip_low=CLIP, clip_high=CLIP)
    return loss * weights


@pytest.mark.parametrize("moved", [0.0, 0.5], ids=["first minibatch", "a later minibatch"])
def test_it_is_the_published_objective_in_value_and_gradient(moved: float) -> None:
    logprobs = PROXIMAL + moved * torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
    for cap, weights in (
        (None, token_tis(PROXIMAL, BEHAVIOR, MASK, cap=1e12).weights),
        (5.0, icepop(PROXIMAL, BEHAVIOR, MASK, bounds=(0.0, 5.0)).weights),  # the released code drops beyond its cap
    ):
        found = []
        for objective in (lambda lp, cap=cap: areal(lp, cap), lambda lp, weights=weights: ours(lp, weights)):
            leaf = logprobs.clone().requires_grad_()
            loss = objective(leaf)
            loss.sum().backward()
            found.append((loss.detach(), leaf.grad))
        assert torch.allclose(found[0][0], found[1][0]) and torch.allclose(found[0][1], found[1][1])


def test_with_one_minibatch_the_ratio_is_one_and_no_clip_fires() -> None:
    leaf = PROXIMAL.clone().requires_grad_()
    loss, metrics = ppo_loss(leaf, PROXIMAL, ADVANTAGES, MASK, clip_low=CLIP, clip_high=CLIP)
    weights = token_tis(PROXIMAL, BEHAVIOR, MASK).weights
    (loss * weights).sum().backward()
    assert metrics["clip_fraction"] == 0
    assert torch.allclose(leaf.grad, -weights * ADVANTAGES * MASK), "a truncated policy gradient"


def test_naive_ratios_against_the_behavior_policy_clip_before_anything_moved() -> None:
    _, metrics = ppo_loss(PROXIMAL, BEHAVIOR, ADVANTAGES, MASK, clip_low=CLIP, clip_high=CLIP)
    assert metrics["clip_fraction"] > 0.2
