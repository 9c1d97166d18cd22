"""Siblings of one state on their way to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_agents.data.trajectory import Trajectory
from rl_agents.search.rewards import step_rewards
from rl_agents.search.statistics import StateStatistics
from rl_agents.search.tree import Node


@dataclass(frozen=True, slots=True)
class Sibling:
    """One of them: the state that its action reached, and how the episode ended there, if it did."""

    node: Node
    end_cause: str
    success: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The siblings of a state.

    Attributes:
        number: the learner's group id.
    """

    number: int
    parent: Node
    siblings: tuple[Sibling, ...]

    def rewards(self, statistics: StateStatistics) -> list[float]:
        """Step rewards by what is known now."""
        ended, won = [bool(s.end_cause) for s in self.siblings], [s.success for s in self.siblings]
        nodes = [sibling.node for sibling in self.siblings]
        rewards: list[float] = step_rewards(self.parent, nodes, ended, won, statistics).tolist()
        return rewards

    def trajectories(self, task_id: str, seed: int, rewards: Sequence[float]) -> list[Trajectory]:
        """One-step trajectories with these rewards: what lowering, credit and losses read.

        ``facts`` holds ``reach``, the estimated probability that the policy comes to their state.
        """
        found, facts = [], {"reach": self.parent.reach()}
        for member, (sibling, reward) in enumerate(zip(self.siblings, rewards, strict=True)):
            assert sibling.node.step is not None
            step, cause = replace(sibling.node.step, reward=reward), sibling.end_cause or "branched"
            found.append(
                Trajectory(
                    task_id, self.number, member, seed, [step], terminated=True, end_cause=cause,
                    success=sibling.success, facts=facts,
                )
            )  # fmt: skip
        return found


def reach_weights(siblings: Sequence[Trajectory]) -> dict[int, float]:
    """Weights of groups for `rl_agents.core.shaping`: reach, with mean 1 over the siblings.

    A search spends as much on a state that one sibling in eight led to as on one that seven led to. With these weights
    an update speaks of states as often as the policy comes to them.
    """
    mean = sum(trajectory.facts["reach"] for trajectory in siblings) / len(siblings)
    return {trajectory.group_id: trajectory.facts["reach"] / mean for trajectory in siblings}
