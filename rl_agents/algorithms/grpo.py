"""GRPO and its variants: advantages from comparing the rollouts of one task, without a critic.

grpo                   A = (R - μ_g)/(σ_g + ε)          PPO's clipped surrogate, mean over tokens
dr-grpo                A = R - μ_g                      sum over tokens by a constant length
rloo                   A = R - mean of the others
reinforce++-baseline   A = whiten(R - μ_g)              over all tokens of the batch
dapo                   as grpo                          clip-higher, dynamic sampling, overlong penalty
gspo                   as grpo                          one ratio per sequence
cispo                  as grpo                          the clip bounds a token's weight
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from rl_agents.advantages import Std, group_statistics, grpo, leave_one_out, rloo, whiten_by_length
from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.config.options import key
from rl_agents.config.sections import DynamicSamplingKeys, OverlongKeys, PolicyGradientKeys
from rl_agents.data.selection import Selected, first_groups, informative_groups
from rl_agents.data.step_table import Returns, StepTable, penalized_return

if TYPE_CHECKING:
    import torch

    from rl_agents.config import Settings
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory
    from rl_agents.losses import Level


@dataclass
class GrpoKeys(PolicyGradientKeys):
    """Advantages within a group of rollouts"""

    group_statistics: Literal["trajectories", "step_rows"] = key(
        "trajectories", "What group statistics are taken over; `step_rows` favors longer episodes (verl-agent)"
    )
    advantage_std: Std = key(
        "sample", "Standard deviation by which group advantages are divided; `none`: no division (Dr.GRPO)"
    )
    leave_one_out: bool = key(False, "Compare each rollout only with the others of its group (NeMo-RL)")


@dataclass
class DapoKeys(GrpoKeys, DynamicSamplingKeys, OverlongKeys):
    """DAPO"""


def _returns(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> tuple[StepTable, Returns]:
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    return table, table.returns(settings.group_statistics)


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = (R_i - mean_g R) / (std_g R + 1e-6), the same for every sampled token of trajectory i.

    ``leave_one_out`` compares with the other members of the group only.
    """
    table, (returns, groups, of_step) = _returns(rows, trajectories, settings)
    estimator = leave_one_out if settings.leave_one_out else grpo
    table.spread(rows, estimator(returns, groups, std=settings.advantage_std)[of_step])


def dr_grpo_credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = R_i - mean_g R: a small deviation does not enlarge the advantages of easy and hard tasks."""
    table, (returns, groups, of_step) = _returns(rows, trajectories, settings)
    table.spread(rows, grpo(returns, groups, std="none")[of_step])


def rloo_credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = R_i - mean of the others = n/(n-1)·(R_i - mean_g R); no deviation, no whitening."""
    table, (returns, groups, of_step) = _returns(rows, trajectories, settings)
    table.spread(rows, rloo(returns, groups)[of_step])


def baseline_credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A = whiten(R_i - mean_g R) over all sampled tokens; a group that agrees gets the whitening offset, not 0.

    A group of one, whose siblings' environments failed, has no baseline: A = 0, and it is not part of the statistics.
    """
    table, (returns, groups, of_step) = _returns(rows, trajectories, settings)
    episodes = table.returns("trajectories")
    compared = group_statistics(episodes.values, episodes.groups).size[episodes.of_step] > 1
    advantages = grpo(returns, groups, std="none")[of_step]
    advantages[compared] = whiten_by_length(advantages[compared], table.lengths[compared])
    table.spread(rows, advantages)


def surrogate(
    inputs: LossInputs, settings: PolicyGradientKeys, level: Level
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on ratios of a level (`rl_agents.losses.ppo_loss`)."""
    from rl_agents.losses import ppo_loss

    clips = {"clip_low": settings.clip_low, "clip_high": settings.clip_high, "dual_clip": settings.dual_clip}
    return ppo_loss(*inputs.tensors, level=level, segments=inputs.segments, **clips)


def policy_loss(inputs: LossInputs, settings: PolicyGradientKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on token ratios (`rl_agents.losses.ppo_loss`)."""
    return surrogate(inputs, settings, "token")


def gspo_loss(inputs: LossInputs, settings: PolicyGradientKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on s_i = exp(mean_j(lp - lp_old)) over a row; all its tokens are clipped together.

    A row is an episode with ``sample_layout=merged``, a step with ``sample_layout=per_step``.
    """
    return surrogate(inputs, settings, "sequence")


def cispo_loss(inputs: LossInputs, settings: PolicyGradientKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """-sg(clip(ρ_j))·A_j·lp_j: rare tokens that steer a response keep their gradient when their ratio is clipped."""
    from rl_agents import losses

    return losses.cispo_loss(*inputs.tensors, clip_low=settings.clip_low, clip_high=settings.clip_high)


def select(trajectories: Sequence[Trajectory], settings: Settings, generator: np.random.Generator) -> Selected:
    """Keep the first ``tasks_per_iteration`` groups whose returns differ; ask for more while there are fewer.

    The return is the one that is trained on, with shaped rewards and penalties of unparsable actions, so that failures
    that a staged reward tells apart are kept. The overlong penalty does not count, as in the paper (equation 11 reads
    correctness): a group that agrees is dropped even when lengths differ.
    """
    groups = np.array([t.group_id for t in trajectories])
    if not settings.dynamic_sampling:
        return Selected(np.ones(groups.size, dtype=bool))
    keep = informative_groups([penalized_return(t, settings.invalid_action_penalty) for t in trajectories], groups)
    kept, wanted = np.unique(groups[keep]).size, settings.tasks_per_iteration
    metrics = {"select/informative_share": kept / max(np.unique(groups).size, 1)}
    if kept < wanted:
        return Selected(keep, wanted - kept, metrics=metrics)
    return Selected(first_groups(groups, keep, wanted), metrics=metrics)


def one_round(settings: Settings) -> bool:
    """Whether all groups are taken as they come."""
    return not settings.dynamic_sampling


#: Keys of `GrpoKeys` that only the advantages of `credit` read.
OF_CREDIT = ("advantage_std", "leave_one_out")

GRPO = AlgorithmSpec(
    name="grpo",
    summary="PPO with the mean return of a group of rollouts of the same task as baseline",
    reference="Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), section 4.1",
    credit=credit,
    policy_loss=policy_loss,
    keys=GrpoKeys,
    grouped=True,
)
DR_GRPO = replace(
    GRPO,
    name="dr-grpo",
    summary="GRPO without the division by the group's deviation and by the response's length",
    reference="Liu et al. 2025, Understanding R1-Zero-like training (arXiv 2503.20783), section 3.2",
    credit=dr_grpo_credit,
    defaults={"loss_agg_mode": "seq-mean-token-sum-norm"},
    unread=OF_CREDIT,
)
RLOO = replace(
    GRPO,
    name="rloo",
    summary="Dr.GRPO with an unbiased baseline: the mean return of the other rollouts of the task",
    reference="Ahmadian et al. 2024, Back to Basics (arXiv 2402.14740), section 3.3",
    credit=rloo_credit,
    unread=OF_CREDIT,
)
REINFORCE_PP_BASELINE = replace(
    GRPO,
    name="reinforce++-baseline",
    summary="Dr.GRPO with advantages divided by their standard deviation over all tokens of the batch",
    reference="Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), section 3",
    credit=baseline_credit,
    # The usual pairing: k2 in the loss, whose gradient is that of the KL.
    defaults={"kl_coef": 1e-3, "kl_estimator": "k2"},
    unread=OF_CREDIT,
)
DAPO = replace(
    GRPO,
    name="dapo",
    summary="GRPO with clip-higher, token mean, dynamic sampling of tasks and a soft penalty on overlong responses",
    reference="Yu et al. 2025, DAPO (arXiv 2503.14476), section 3",
    select=select,
    one_round=one_round,
    defaults={"clip_low": 0.2, "clip_high": 0.28, "dynamic_sampling": True, "overlong_factor": 1.0},
    keys=DapoKeys,
)
GSPO = replace(
    GRPO,
    name="gspo",
    summary="GRPO with one importance ratio per sequence, the geometric mean of its token ratios",
    reference="Zheng et al. 2025, GSPO (arXiv 2507.18071), equations 5-7",
    policy_loss=gspo_loss,
    defaults={"clip_low": 3e-4, "clip_high": 4e-4, "loss_agg_mode": "seq-mean-token-mean"},
    stale_unit="step",
)
CISPO = replace(
    GRPO,
    name="cispo",
    summary="GRPO whose clip bounds the weight of a token instead of removing its gradient",
    reference="Chen et al. 2025, MiniMax-M1 (arXiv 2506.13585), equations 4-5",
    policy_loss=cispo_loss,
    # clip_low of 1 or more: no lower bound, as in the released example.
    defaults={"clip_low": 10.0, "clip_high": 0.2},
    unread=("dual_clip",),
)
