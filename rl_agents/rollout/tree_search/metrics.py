"""Metrics of a search's iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_agents.data.trajectory import Step, step_metrics

#: S from which on a state counts as one to train on.
HIGH_SCORE = 0.5


@dataclass(slots=True)
class SearchCounts:
    """Counts since the beginning of the iteration.

    Attributes:
        scores: S of every state with a decision.
        env_steps: sampled actions that were executed; equal siblings of one state share one execution.
        replayed_steps: steps that were executed to reach states.
    """

    scores: list[float] = field(default_factory=list)
    rollouts: list[int] = field(default_factory=list)
    states: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    env_steps: int = 0
    replayed_steps: int = 0
    backtracks: int = 0
    skipped: int = 0
    paths: int = 0
    tasks_ended: int = 0

    def metrics(self, states_known: int, frontier: int) -> dict[str, float]:
        """Return the ``search/`` tags, and the ``rollout/`` tags about steps: paths share steps, but samples do not.

        Args:
            states_known: states with statistics.
            frontier: number of waiting states of all tasks.
        """
        counts = {
            "states_known": states_known, "frontier_size": frontier, "backtracks": self.backtracks,
            "skipped_actions": self.skipped, "trained_paths": self.paths, "tasks_ended": self.tasks_ended,
            "sampled_steps": len(self.steps), "env_steps": self.env_steps, "replayed_steps": self.replayed_steps,
        }  # fmt: skip
        found = {f"search/{name}": float(count) for name, count in counts.items()}
        if self.scores:
            rollouts = np.array(self.rollouts)
            found["search/score_mean"] = float(np.mean(self.scores))
            found["search/high_score_share"] = float(np.mean(np.array(self.scores) >= HIGH_SCORE))
            for name, chosen in (("0", rollouts == 0), ("1", rollouts == 1), ("more", rollouts > 1)):
                found[f"search/rollouts_{name}"] = float(np.mean(chosen))
        if self.steps:
            found |= {"rollout/response_tokens": float(self.response_tokens), **step_metrics(self.steps)}
            found["search/unique_states_per_rollout"] = len(self.states) / len(self.steps)
            found["rollout/unique_states_per_step"] = found["search/unique_states_per_rollout"]
        return found

    @property
    def response_tokens(self) -> int:
        return sum(len(step.response_ids) for step in self.steps)


def merge_updates(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the metrics of an iteration's optimizer steps: costs add up, extremes and flags keep the largest, the rest
    are means."""
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for update in updates for name in update):
        values = [update[name] for update in updates if name in update]
        if name.startswith(("timing_s/", "rows/", "search/")):
            merged[name] = float(sum(values))
        elif name.endswith("_max") or name == "actor/skipped_steps":
            merged[name] = float(max(values))
        else:
            merged[name] = float(np.mean(values))
    return merged
