"""PivotRL: GRPO on single turns from the states of expert traces where the outcome is open (arXiv 2603.21383)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import GRPO_KEYS, LossInputs, Recipe
from rl_agents.algorithms.grpo import credit
from rl_agents.credit.pivot import exact_miss_rate, turn_profile
from rl_agents.data.selection import Selected

if TYPE_CHECKING:
    import torch

    from rl_agents.rollout.trajectory import Trajectory
    from rl_agents.settings import Settings


def select(trajectories: Sequence[Trajectory], settings: Settings, generator: np.random.Generator) -> Selected:
    """Keep every turn: one that has become uniform has advantage 0, and still counts in the loss denominator.

    Reports what the choice of pivots and of the verifier is worth by now: the share of turns that are uniform, and
    Pr[r_strict = 0 | r_func = 1].
    """
    groups = np.array([t.group_id for t in trajectories])
    if not groups.size:
        return Selected(np.ones(0, dtype=bool))
    scores = np.array([t.episode_return for t in trajectories])
    profile = turn_profile([scores[groups == name] for name in np.unique(groups)])
    metrics = {"select/uniform_share": float(np.mean(profile.variance <= 1e-9))}
    exact = [t.metrics["exact"] for t in trajectories if "exact" in t.metrics]
    if len(exact) == len(scores) and scores.max() >= 1.0:
        metrics["select/exact_miss_rate"] = exact_miss_rate(scores, exact)
    return Selected(np.ones(groups.size, dtype=bool), metrics=metrics)


def policy_loss(inputs: LossInputs, settings: Settings) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate; the ratio is per token (public code), or per turn with ``ratio_level=step``."""
    from rl_agents.objectives.policy import ppo_loss

    return ppo_loss(
        inputs.logprobs,
        inputs.old_logprobs,
        inputs.advantages,
        inputs.mask,
        level=settings.ratio_level,
        segments=inputs.segments,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip or None,
    )


RECIPE = Recipe(
    name="pivotrl",
    summary="GRPO on single turns from states of expert traces, where the initial policy neither always nor never acts "
    "acceptably",
    reference="PivotRL (arXiv 2603.21383), algorithm 1 and equation 7",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    # One update per rollout batch, as in the public recipes: all ratios are 1, so their level makes no difference.
    defaults={"ratio_level": "token", "clip_high": 0.28, "minibatches": 1},
    uses=GRPO_KEYS | {"dual_clip", "ratio_level", "overlong_filtering"},
    grouped=True,
)
