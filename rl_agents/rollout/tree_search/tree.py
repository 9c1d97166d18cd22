"""One task's search: ranked backtracking depth-first search over states (3SPO, section 3.4 and algorithm 1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.chat.template import Dialogue
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.branching import BranchPoint, Child
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.turns import next_dialogue


@dataclass(eq=False, slots=True)
class Node:
    """A state that was reached.

    Attributes:
        parent, step: how it was reached; None for the start state.
        key: the method's key of the state.
        episode_return: sum of the environment's rewards up to the state.
        snapshot: of the environment, if it can be copied.
        score, rollouts: S and n(s) at its expansion; None and 0 before.
    """

    parent: Node | None
    step: Step | None
    answer: EnvReply
    key: str
    depth: int
    dialogue: Dialogue
    episode_return: float = 0.0
    snapshot: Any = field(default=None, repr=False)
    score: float | None = None
    rollouts: int = 0

    @classmethod
    def start(cls, answer: EnvReply, key: str, snapshot: Any = None) -> Node:
        return cls(None, None, answer, key, 1, Dialogue.start(answer.observation, answer.chat), 0.0, snapshot)

    def after(self, step: Step, answer: EnvReply, key: str, snapshot: Any = None) -> Node:
        """Return the state that a step from here reached."""
        dialogue = next_dialogue(self.dialogue, step, answer)
        return Node(self, step, answer, key, self.depth + 1, dialogue, self.episode_return + step.reward, snapshot)

    def path(self) -> list[Node]:
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def path_keys(self) -> list[str]:
        return [node.key for node in self.path()]

    def steps(self) -> list[Step]:
        return [node.step for node in self.path() if node.step is not None]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A child with the reward that ranks it; ``node`` is None if its environment failed."""

    child: Child
    node: Node | None
    reward: float


@dataclass(eq=False, slots=True)
class Search:
    """The search of one task.

    Attributes:
        number: place in the run's stream of tasks.
        seed: of the environment's reset and of all sampling.
        current: state to expand next; None before the start state is known, and when no state is left.
        frontier: states to return to, the next one last.
        ends: number of followed paths that ended or failed; dropped ones do not count.
        failed: the environment failed before the start state was known.
    """

    number: int
    task_id: str
    seed: int
    current: Node | None = None
    frontier: list[Node] = field(default_factory=list)
    finished: int = 0
    ends: int = 0
    expansions: int = 0
    opened: bool = False
    failed: bool = False

    def point(self, node: Node) -> BranchPoint:
        """Return how a runner reaches a state."""
        actions = tuple(step.action for step in node.steps())
        call = 0 if node.step is None else node.step.call
        state = (node.dialogue, node.answer.anchor, node.episode_return, node.snapshot)
        return BranchPoint(self.task_id, self.seed, actions, *state, call)

    def descend(self, ranked: Sequence[Ranked], *, backtrack: bool) -> int:
        """Continue with the current state's children, best first: descend into the best, keep the others.

        Children that ended, and siblings with the action of an earlier one, are not entered.

        Args:
            ranked: children by reward, descending.
            backtrack: put the others on the frontier, in ascending order, so that the better one is popped first.

        Returns:
            Number of siblings that repeated an action.
        """
        skipped = 0
        following: list[Node] = []
        actions: set[str] = set()
        for item in ranked:
            if item.node is None:
                continue
            repeated = item.child.step.action in actions
            actions.add(item.child.step.action)
            if item.child.end_cause:
                continue
            skipped += repeated
            if not repeated:
                following.append(item.node)
        self.current = following[0] if following else None
        if backtrack:
            self.frontier.extend(reversed(following[1:]))
        return skipped

    def backtrack(self) -> bool:
        """Return to the last state on the frontier; False when there is none."""
        self.current = self.frontier.pop() if self.frontier else None
        return self.current is not None

    def trajectory(self, last: Node, end_cause: str, *, success: bool = False, failed: bool = False) -> Trajectory:
        """Return the path to ``last`` as a finished episode, numbered within the task, with S and n of its states."""
        trajectory = Trajectory(
            self.task_id, self.number, self.finished, self.seed, last.steps(),
            terminated=end_cause == "terminated",
            truncated=not failed and end_cause != "terminated",
            end_cause=end_cause,
            failed=failed,
            success=success,
            metrics=dict(last.answer.metrics),
        )  # fmt: skip
        if last.answer.references:
            trajectory.facts["references"] = last.answer.references
        if chat := last.path()[0].answer.chat:
            trajectory.facts["chat"] = json.loads(chat)
        if chosen := last.path()[:-1]:
            trajectory.facts["search"] = {"scores": [n.score for n in chosen], "rollouts": [n.rollouts for n in chosen]}
        return trajectory
