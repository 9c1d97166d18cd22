"""What search methods share: how states are named, how many samples they get, and what a step earns.

What sets a method apart is one object, its `States`: what it knows about states and what they are worth. That of 3spo
counts finished trajectories (`rl_agents.algorithms.three_spo`), that of chain-search solves the Markov chain of all
sampled steps (`rl_agents.algorithms.chain_search`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from rl_agents.credit.statistics import FloatArray
from rl_agents.credit.three_spo import StateScore, novelty, novelty_weight, rollout_count, step_reward
from rl_agents.settings.search import SearchKeys, StateKeys

KEY_BYTES = 12
#: States that a method keeps; beyond, those least recently counted are forgotten and unseen again.
MAX_STATES = 100_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the actions sampled at a state led to, each [samples].

    Attributes:
        keys: states that were reached.
        ended: the trajectory ended there.
        solved: and was solved.
    """

    keys: tuple[str, ...]
    ended: tuple[bool, ...]
    solved: tuple[bool, ...]


class States(Protocol):
    """What a method knows about states, and what they are worth to it.

    Attributes:
        once_per: equal actions at a state are followed once in a ``search``, or once among ``siblings``.
        finished, solved: trajectories that ended so far, and those of them that were solved.
    """

    once_per: Literal["search", "siblings"]
    finished: int
    solved: int

    def __len__(self) -> int:
        """States known."""

    def visits(self, key: str) -> float:
        """N of a state: what was counted there; 0 for an unseen one."""

    def score(self, keys: Sequence[str], depth: int) -> StateScore:
        """S and gate of states that are met at this depth (1 for start states), float64 [states]."""

    def progress(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """What each step from a state gained, float64 [samples], by what was known before these steps."""

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the steps sampled at a state."""

    def finish(self, path: Sequence[str], success: bool, *, terminal: bool) -> None:
        """Count a finished trajectory.

        Args:
            path: keys from the start state to the last one.
            terminal: the environment or the turn limit ended it in its last state.
        """

    def end_iteration(self) -> None:
        """An iteration is over."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""


def digest(*parts: str) -> str:
    """A short name for texts: 96 bits, the same on every machine."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=KEY_BYTES).hexdigest()


def state_key(task_id: str, text: str, settings: StateKeys) -> str:
    """Return the key of a state: a digest of its text, and of the task with ``state_scope=task``."""
    scope = task_id if settings.state_scope == "task" else ""
    return digest(scope, "", text)  # the empty part: keys of earlier checkpoints stay valid


def allocation(key: str, depth: int, states: States, settings: SearchKeys, most: int) -> tuple[float, int]:
    """(S, n) of a state: n = ceil(G_max·S), 0 where the gate is closed (3SPO, eq. 3), or G_max everywhere.

    Args:
        most: G_max.
    """
    found = states.score([key], depth)
    score = float(found.score[0])
    if settings.search_rollouts == "uniform":
        return score, most
    return score, int(rollout_count(found.score, found.open, maximum=most)[0])


def step_rewards(path: Sequence[str], outcomes: Outcomes, states: States, settings: SearchKeys) -> FloatArray:
    """R of every sample (3SPO, eq. 2) by what was known before these steps, each part switchable; float64 [samples].

    Args:
        path: keys from the start state to the state that was sampled at.
    """
    key, count = path[-1], len(outcomes.keys)
    weight, novel, gained = 0.0, np.zeros(count), np.zeros(count)
    known = settings.novelty_until == "solved" and states.solved > 0
    if settings.novelty != "none" and not known:
        fixed = settings.novelty_fixed or None
        weight = float(novelty_weight(states.visits(key), decay=settings.novelty_decay, fixed=fixed))
        novel = np.array(
            [
                novelty(key, after, mode=settings.novelty, next_total=states.visits(after), path=path)
                for after in outcomes.keys
            ]
        )
    if settings.score_difference != "none":
        gained = states.progress(key, len(path), outcomes)
    return step_reward(novel, gained, outcomes.solved, weight, success_weight=settings.success_weight)
