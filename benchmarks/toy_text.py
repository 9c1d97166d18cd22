"""Two of gymnasium's own environments in words, each with a mediocre player.

    python run.py sft --env gymnasium:benchmarks.toy_text:Taxi --output models/taxi

`Taxi` is Taxi-v3: fetch a passenger and bring them to one of four stands, around walls. Only the first observation
names the destination, so two equal observations may belong to different states. `Lake` is FrozenLake-v1: 16 fields,
four of them holes, and two of three steps slip to one side.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Text

STANDS = ("red", "green", "yellow", "blue")
MOVES = {"south": (1, 0), "north": (-1, 0), "east": (0, 1), "west": (0, -1)}
#: Share of random actions of the mediocre players.
TAXI_ERRORS, LAKE_ERRORS = 0.45, 0.3


class InWords(gymnasium.Env):
    """A toy-text environment whose actions are words; a snapshot holds its state and its random state.

    ``goal_in_key``: complete state keys, with what is said only once, at the beginning.
    """

    blocking = "inline"  # a step takes microseconds, and runs repeat bit for bit
    observation_space = action_space = Text(max_length=1000)
    gym_id: str
    actions: tuple[str, ...]
    errors: float

    def __init__(self, goal_in_key: bool = False) -> None:
        self.goal_in_key = goal_in_key
        self.inner: Any = gymnasium.make(self.gym_id, disable_env_checker=True, max_episode_steps=10_000).unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.inner.reset(seed=seed)
        return self.first(), self._info(admissible_actions=list(self.actions))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`: an unknown word costs a turn."""
        word = action.strip()
        if word not in self.actions:
            return "no such action", 0.0, False, False, self._info(valid=False, success=False)
        _, reward, ended, _, _ = self.inner.step(self.actions.index(word))
        solved = bool(ended and reward > 0)
        return self.shown(), float(solved), bool(ended), False, self._info(success=solved)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        return int(self.inner.s), self.inner.np_random.bit_generator.state

    def restore(self, state: tuple[int, dict[str, Any]]) -> None:
        self.inner.s, self.inner.np_random.bit_generator.state = state[0], state[1]

    def demonstrate(self, observation: str, random: Random) -> str:
        return random.choice(self.actions) if random.random() < self.errors else self.expert(observation, random)

    def first(self) -> str:
        return self.shown()

    def shown(self) -> str:
        raise NotImplementedError

    def expert(self, observation: str, random: Random) -> str:
        raise NotImplementedError

    def _info(self, **facts: Any) -> dict[str, Any]:
        return {**facts, "anchor": self.first()} if self.goal_in_key else facts


class Taxi(InWords):
    gym_id = "Taxi-v3"
    actions = (*MOVES, "pickup", "dropoff")
    errors = TAXI_ERRORS
    max_turns = 30

    def first(self) -> str:
        return f"to {STANDS[self._parts()[3]]} : {self.shown()}"

    def shown(self) -> str:
        row, column, passenger, _ = self._parts()
        return f"row {row} column {column} passenger {(*STANDS, 'inside')[passenger]}"

    def expert(self, observation: str, random: Random) -> str:
        """Return the first action of a shortest path, by breadth-first search in the transition table."""
        seen, queue = {self.inner.s}, deque([(self.inner.s, "")])
        while queue:
            state, begun = queue.popleft()
            for action, word in enumerate(self.actions):
                (_, after, reward, ended), *_ = self.inner.P[state][action]
                if ended and reward > 0:
                    return begun or word
                if after not in seen and not ended:
                    seen.add(after)
                    queue.append((after, begun or word))
        return self.actions[0]

    def _parts(self) -> tuple[int, int, int, int]:
        row, column, passenger, destination = self.inner.decode(self.inner.s)
        return int(row), int(column), int(passenger), int(destination)


class Lake(InWords):
    gym_id = "FrozenLake-v1"
    actions = ("left", "down", "right", "up")
    errors = LAKE_ERRORS
    max_turns = 60

    def __init__(self) -> None:
        super().__init__()
        self.best = self._policy()

    def shown(self) -> str:
        return f"row {self.inner.s // 4} column {self.inner.s % 4}"

    def expert(self, observation: str, random: Random) -> str:
        return self.actions[int(self.best[self.inner.s])]

    def _policy(self) -> np.ndarray:
        table, values = self.inner.P, np.zeros(16)
        for _ in range(300):
            gains = np.array(
                [
                    [
                        sum(p * (r + 0.99 * values[s] * (not end)) for p, s, r, end in table[state][action])
                        for action in range(4)
                    ]
                    for state in range(16)
                ]
            )
            values = gains.max(axis=1)
        return gains.argmax(axis=1)
