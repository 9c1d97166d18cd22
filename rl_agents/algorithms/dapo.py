"""DAPO: GRPO with a higher upper clip, tasks that teach something only, and a price on length (Yu et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, credit, policy_loss
from rl_agents.config.sections import DynamicSamplingKeys, OverlongKeys
from rl_agents.data.selection import Selected, first_groups, informative_groups
from rl_agents.rewards.overlong import step_penalties

if TYPE_CHECKING:
    from rl_agents.config import Settings
    from rl_agents.data.trajectory import Trajectory


@dataclass
class DapoKeys(GrpoKeys, DynamicSamplingKeys, OverlongKeys):
    """DAPO"""


def select(trajectories: Sequence[Trajectory], settings: Settings, generator: np.random.Generator) -> Selected:
    """Keep the first ``tasks_per_iteration`` groups whose metric varies; ask for more while there are fewer.

    The metric ``success`` ignores the overlong penalty, so that a group that agrees on success is dropped even when
    lengths differ. A group of one, whose siblings' environments failed, is kept (as verl does).
    """
    groups = np.array([t.group_id for t in trajectories])
    if not settings.dynamic_sampling:
        return Selected(np.ones(groups.size, dtype=bool))
    metric = [_metric(t, settings) for t in trajectories]
    keep = informative_groups(metric, groups)
    kept, wanted = np.unique(groups[keep]).size, settings.tasks_per_iteration
    metrics = {"select/informative_share": kept / max(np.unique(groups).size, 1)}
    if kept < wanted:
        return Selected(keep, wanted - kept, metrics=metrics)
    return Selected(first_groups(groups, keep, wanted), metrics=metrics)


def one_round(settings: Settings) -> bool:
    """Whether all groups are taken as they come."""
    return not settings.dynamic_sampling


def _metric(trajectory: Trajectory, settings: Settings) -> float:
    if settings.dynamic_sampling_metric == "success":
        return float(trajectory.success)
    penalty = sum(step_penalties(trajectory, settings)) if settings.dynamic_sampling_metric == "shaped_return" else 0.0
    return trajectory.episode_return + penalty


ALGORITHM = AlgorithmSpec(
    name="dapo",
    summary="GRPO with clip-higher, token mean, dynamic sampling of tasks and a soft penalty on overlong responses",
    reference="Yu et al. 2025, DAPO (arXiv 2503.14476), section 3",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    one_round=one_round,
    defaults={"clip_low": 0.2, "clip_high": 0.28, "dynamic_sampling": True, "overlong_factor": 1.0},
    keys=DapoKeys,
    grouped=True,
)
