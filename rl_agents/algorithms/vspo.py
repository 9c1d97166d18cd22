"""VSPO: GRPO that replaces tasks without variance by more weight on the most valuable ones (PRS/VSPO, eq. 16-20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rl_agents.advantages.vspo import vspo
from rl_agents.algorithms.base import Recipe, always
from rl_agents.algorithms.grpo import GrpoKeys, credit, policy_loss
from rl_agents.config.options import key
from rl_agents.data.selection import Selected

if TYPE_CHECKING:
    from rl_agents.data.trajectory import Trajectory


@dataclass
class VspoKeys(GrpoKeys):
    """VSPO."""

    vspo_mode: Literal["value", "random", "none"] = key("value", "how tasks that replace uniform ones are drawn")
    vspo_temperature: float = key(0.1, "temperature of the softmax over task values", above=0, needs="vspo_mode=value")
    vspo_scale: Literal["paper", "span"] = key(
        "paper", "task values as printed, or over the cubed span of the batch's rewards", needs="vspo_mode=value"
    )
    vspo_alpha: float = key(
        2.0,
        "bound of the factor alpha - (alpha-1)/N on a task drawn N times",
        at_least=1,
        needs=("vspo_mode!=none", "vspo_clip"),
    )
    vspo_clip: bool = key(True, "off: the factor is N itself", needs="vspo_mode!=none")


def select(trajectories: Sequence[Trajectory], settings: VspoKeys, generator: np.random.Generator) -> Selected:
    """V_x = (R_max - μ_x)·σ²_x; as many draws from softmax(V/T) as tasks agree; factor α - (α-1)/N on the advantage.

    One copy of every task stays, so that the loss denominator remains that of the original batch. Tasks that agree
    stay too: their advantages are 0 anyway, and they keep their share of a KL term.
    """
    groups = np.array([t.group_id for t in trajectories])
    names = np.unique(groups)
    keep = np.ones(groups.size, dtype=bool)
    if not names.size:
        return Selected(keep)
    returns = np.array([t.episode_return for t in trajectories])
    chosen = vspo(
        [returns[groups == name] for name in names],
        generator,
        mode=settings.vspo_mode,
        temperature=settings.vspo_temperature,
        alpha=settings.vspo_alpha,
        clip=settings.vspo_clip,
        scale=settings.vspo_scale,
    )
    metrics = {
        "select/dropped_share": float(np.mean(chosen.counts == 0)),
        "select/count_max": float(chosen.counts.max()),
        "select/weight_mean": float(chosen.weights[chosen.counts > 0].mean()),
    }
    weights = dict(zip(names.tolist(), chosen.weights.tolist(), strict=True))
    return Selected(keep, weights=weights, metrics=metrics)


RECIPE = Recipe(
    name="vspo",
    summary="GRPO that gives the weight of tasks whose rollouts agree to the most valuable other tasks of the batch",
    reference="PRS and VSPO (arXiv 2512.07478), equations 16-20",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    one_round=always,
    defaults={"aggregation": "seq-mean-token-mean", "kl_coef": 1e-3},
    keys=VspoKeys,
    grouped=True,
)
