"""From played episodes to the numbers of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rl_agents.data.trajectory import Trajectory
from rl_agents.reporting.statistics import Interval, wilson_interval


def success_interval(trajectories: Sequence[Trajectory]) -> Interval:
    """Success rate with its Wilson interval; an episode that its environment broke counts as not solved."""
    return wilson_interval(sum(t.success for t in trajectories), len(trajectories))


def evaluation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the ``eval/`` metrics of one evaluation."""
    success = success_interval(trajectories)
    return {
        "eval/success_rate": success.mean,
        "eval/success_low": success.low,
        "eval/success_high": success.high,
        "eval/return_mean": fmean(t.episode_return for t in trajectories),
        "eval/turns_mean": fmean(len(t.steps) for t in trajectories),
        "eval/episodes": float(len(trajectories)),
        "eval/failed_episodes": float(sum(t.failed for t in trajectories)),
    }
