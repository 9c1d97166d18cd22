"""State keys, the algorithm's interface to a search (`States`), and values of states under the policy.

`StateChain`: values of the Markov chain of all sampled steps. A search visits promising states, so the outcomes of its
trajectories are biased: after the best of eight children almost all succeed. But all children, including those that
are never entered, are unbiased samples of the policy. Counted as transitions between states they form a chain, whose
values

    V(s) = (W(s) + γ·Σ_s' N(s, s')·V(s') + γ·k·V̄) / (N(s) + k)

are those of the policy, independent of the search: N(s) steps were sampled at s, N(s, s') of them led to s', W(s)
ended solved, and the others ended unsolved; k prior steps lead to an average state of value V̄. With γ < 1 early success
is worth more than late success. Steps of whole episodes may have any rewards: then W(s) is the sum of those at s
(`rl_agents.algorithms.chain_gae`).

A chain with a turn limit values a state by the remaining turns (`values_within`). Without it an action that changes
nothing costs 1 - γ of V, while one that ends a trajectory unsolved costs all of V: on webshop policies stopped buying,
and success fell from 0.12 to 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rl_agents.advantages import FloatArray, chain_values, values_within
from rl_agents.config.sections import StateKeys

KEY_BYTES = 12
#: Maximum states that a method keeps; the least recently counted ones are dropped.
MAX_STATES = 100_000
#: `end_cause` of a path of the search that is trained on alongside siblings.
PATH = "path"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The results of the actions sampled at a state, each [samples].

    Attributes:
        ended: the trajectory ended there, not because of the turn limit.
    """

    keys: tuple[str, ...]
    ended: tuple[bool, ...]
    solved: tuple[bool, ...]


class States(Protocol):
    """A search method's knowledge about states.

    Attributes:
        finished, solved: number of trajectories that ended so far, and of solved ones.
    """

    finished: int
    solved: int

    def __len__(self) -> int:
        """States known."""

    def allocation(self, key: str, depth: int, most: int) -> tuple[float, int]:
        """Return a state's score at this depth (1: start state), and the number of actions to sample, 0 to ``most``."""

    def step_rewards(self, path: Sequence[str], outcomes: Outcomes) -> FloatArray:
        """Return the reward of each step sampled at ``path[-1]``, from earlier knowledge only; float64 [samples]."""

    def path_gains(self, path: Sequence[str], solved: bool, terminated: bool) -> FloatArray:
        """Return the rewards of the last steps of a finished path, as many as are trained on, [steps]; empty: none.

        Args:
            terminated: the environment ended it, not the turn limit.
        """

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
    """Return a 96-bit digest of texts, the same on every machine."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=KEY_BYTES).hexdigest()


def state_key(task_id: str, text: str, settings: StateKeys) -> str:
    """Return the key of a state: a digest of its text, and of the task with ``state_scope=task``."""
    scope = task_id if settings.state_scope == "task" else ""
    return digest(scope, "", text)  # the empty part: keys of earlier checkpoints stay valid


#: Weight of the prior in steps.
PRIOR_STEPS = 1.0
#: Entries below this weight are dropped.
LEAST_WEIGHT = 1e-3


@dataclass(slots=True)
class _State:
    """Weights of the steps sampled at a state: in total, of their rewards, and by next state."""

    steps: float = 0.0
    rewards: float = 0.0
    following: dict[str, float] = field(default_factory=dict)


class StateChain:
    """Transitions between state keys, and the values that follow from them.

    Args:
        gamma: discount per step.
        max_states: maximum states; the least recently sampled ones are dropped.
        turns: turn limit of a trajectory; 0: no limit.
    """

    def __init__(self, gamma: float, max_states: int = MAX_STATES, turns: int = 0) -> None:
        self.gamma, self.max_states, self.turns = gamma, max_states, turns
        self._states: dict[str, _State] = {}  # least recently sampled first
        self._values: dict[str, float] = {}
        self._mean = 0.0
        #: With ``turns``: V_h, [turns + 1, states], the column of each state, and V̄_h.
        self._within, self._columns, self._means = np.zeros((turns + 1, 0)), dict[str, int](), np.zeros(turns + 1)
        self._solved = True

    def __len__(self) -> int:
        return len(self._states)

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the steps sampled at a state; the next state is ignored if the trajectory ended."""
        for child, over, success in zip(outcomes.keys, outcomes.ended, outcomes.solved, strict=True):
            self.count(key, float(success), None if over else child)

    def count(self, key: str, reward: float, child: str | None) -> None:
        """Count one step at a state: its reward, and the next state, or None at an end."""
        state = self._states.pop(key, None) or _State()
        self._states[key] = state
        state.steps += 1.0
        state.rewards += reward
        if child is not None:
            state.following[child] = state.following.get(child, 0.0) + 1.0
        while len(self._states) > self.max_states:
            del self._states[next(iter(self._states))]
        self._solved = False

    def fade(self, factor: float) -> None:
        """Multiply all weights, and drop entries below `LEAST_WEIGHT`."""
        if factor != 1.0:
            self._states, self._solved = self._faded(factor), False

    def faded(self, factor: float) -> StateChain:
        """Return a copy of this chain with all weights multiplied."""
        chain = StateChain(self.gamma, self.max_states, self.turns)
        chain._states, chain._values, chain._mean, chain._solved = self._faded(factor), self._values, self._mean, False
        return chain

    def _faded(self, factor: float) -> dict[str, _State]:
        found: dict[str, _State] = {}
        for key, state in self._states.items():
            if (steps := state.steps * factor) > LEAST_WEIGHT:
                weights = ((child, weight * factor) for child, weight in state.following.items())
                following = {child: weight for child, weight in weights if weight > LEAST_WEIGHT}
                found[key] = _State(steps, state.rewards * factor, following)
        return found

    def steps(self, key: str) -> float:
        state = self._states.get(key)
        return state.steps if state else 0.0

    def values(self, keys: Sequence[str], prior: float | None = None) -> FloatArray:
        """Return V of states, float64; in [0, 1] if rewards are 1 for solved ends, else 0.

        Args:
            keys: [states].
            prior: value of a state without samples; None: V̄.
        """
        self._solve()
        unseen = self._mean if prior is None else prior
        return np.array([self._values.get(key, unseen) for key in keys], dtype=np.float64)

    def values_within(self, keys: Sequence[str], left: int, prior: float | None = None) -> FloatArray:
        """Return V_h of states with h = ``left`` turns left, float64 [states]; 0 at h <= 0. ``prior``: see `values`."""
        self._solve()
        if left <= 0:
            return np.zeros(len(keys))
        unseen, row = self._means[left] if prior is None else prior, self._within[left]
        found = (row[self._columns[key]] if key in self._columns else unseen for key in keys)
        return np.array(list(found), dtype=np.float64)

    def _solve(self) -> None:
        """Iterate to convergence, starting from the last values."""
        if self._solved or not self._states:
            return
        number = {key: index for index, key in enumerate(self._states)}
        states = list(self._states.values())
        steps, rewards = (np.array([getattr(s, name) for s in states]) for name in ("steps", "rewards"))
        links = [(i, number.get(child, -1), w) for i, s in enumerate(states) for child, w in s.following.items()]
        counts = steps, rewards, *(np.array([link[part] for link in links]) for part in range(3))
        self._solved = True
        if self.turns:
            self._columns = number
            self._within = values_within(*counts, turns=self.turns, gamma=self.gamma, prior=PRIOR_STEPS)
            self._means = self._within @ steps / steps.sum()
            return
        start = np.array([self._values.get(key, self._mean) for key in number])
        values = chain_values(*counts, gamma=self.gamma, prior=PRIOR_STEPS, start=start)
        self._mean = float(values @ steps / steps.sum())
        self._values = dict(zip(number, values.tolist(), strict=True))

    # --- checkpoints -------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        states = {key: [state.steps, state.rewards, state.following] for key, state in self._states.items()}
        return {"states": states, "values": self._values, "mean": self._mean, "solved": self._solved and not self.turns}

    def load_json(self, data: Mapping[str, Any]) -> None:
        self._states = {str(k): _State(float(n), float(w), dict(f)) for k, (n, w, f) in data["states"].items()}
        self._values = {str(key): float(value) for key, value in data["values"].items()}
        self._mean, self._solved = float(data["mean"]), bool(data["solved"])
        self._within, self._columns, self._means = np.zeros((self.turns + 1, 0)), {}, np.zeros(self.turns + 1)
