"""How states are named, and what a search asks its algorithm about them (`States`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rl_agents.advantages.statistics import FloatArray
from rl_agents.config.search import StateKeys

KEY_BYTES = 12
#: States that a method keeps; beyond, those least recently counted are forgotten and unseen again.
MAX_STATES = 100_000
#: `end_cause` of what is trained on beside siblings: a path of the search that ended.
PATH = "path"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the actions sampled at a state led to, each [samples].

    Attributes:
        keys: states that were reached.
        ended: the trajectory ended there, by something else than the turn limit.
        solved: and was solved.
    """

    keys: tuple[str, ...]
    ended: tuple[bool, ...]
    solved: tuple[bool, ...]


class States(Protocol):
    """What a search method knows about states.

    Attributes:
        finished, solved: trajectories that ended so far, and those of them that were solved.
    """

    finished: int
    solved: int

    def __len__(self) -> int:
        """States known."""

    def allocation(self, key: str, depth: int, most: int) -> tuple[float, int]:
        """Score of a state at this depth (1 for a start state), and how many actions to sample there: 0 to ``most``."""

    def step_rewards(self, path: Sequence[str], outcomes: Outcomes) -> FloatArray:
        """Reward of each step sampled at the last state of ``path``, by what was known before; float64 [samples]."""

    def path_gains(self, path: Sequence[str], solved: bool) -> FloatArray:
        """Reward of each step of a path that ended, for training on it beside siblings, [steps]; empty: none."""

    def deviation(self, siblings: Sequence[FloatArray]) -> float | None:
        """What advantages of an update are divided by, of the rewards at each of its states; None: siblings' own."""

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the steps sampled at a state."""

    def finish(self, path: Sequence[str], success: bool) -> None:
        """Count a finished trajectory; ``path`` holds the keys from the start state to the last one."""

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
