"""The plain policy's success as an iteration's episodes tell it, with a standard error between tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rl_agents.data.trajectory import Trajectory

#: Tags: mean over tasks, its standard error, and how many tasks.
SAMPLE, SAMPLE_SE, TASKS = (f"collapse_monitor/{name}" for name in ("sample", "sample_se", "tasks"))


def policy_sample(trajectories: Sequence[Trajectory], groups: int) -> dict[str, float]:
    """Mean success of the first task groups, m = Σ_g m_g / n, and its standard error e; nothing without episodes.

        e² = max(Σ_g (m_g - m)² / ((n-1)·n), p·(1-p) / N),    p = (X + 1) / (N + 2)

    with X of N episodes solved: the second term keeps a handful of tasks that happen to agree from having no noise.

    Later groups were run because earlier ones agreed (dynamic sampling), and are no sample of the policy. Episodes
    that their environment failed are excluded.

    Args:
        trajectories: in the order in which they were asked for.
        groups: of a first round.
    """
    first = set(list(dict.fromkeys(t.group_id for t in trajectories))[:groups])
    solved: dict[int, list[bool]] = {}
    for trajectory in trajectories:
        if trajectory.group_id in first and not trajectory.failed:
            solved.setdefault(trajectory.group_id, []).append(trajectory.success)
    if not solved:
        return {}
    means = np.array([np.mean(group) for group in solved.values()])
    episodes = sum(len(group) for group in solved.values())
    rate = (sum(map(sum, solved.values())) + 1) / (episodes + 2)
    between = float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0
    error = math.sqrt(max(between, rate * (1 - rate) / episodes))
    return {SAMPLE: float(means.mean()), SAMPLE_SE: error, TASKS: float(len(means))}
