"""Tasks of mixed difficulty: three doors on one of five floors, which the warm-start model knows more or less well.

    python run.py sft --env gymnasium:benchmarks.mixed_doors:Doors --output models/doors

The right one of four doors is fixed for each place. Demonstrations choose it with a probability that is evenly
spaced over the places of a floor, within the floor's limits (`FLOORS`). A task has three places of one floor, and is
solved if all its doors are right. So more than half of the groups of eight agree at the start. Learning about one
floor does not help on another. The limits were tuned with GRPO for these properties and a start between 0.05 and
0.3.
"""

from __future__ import annotations

from random import Random
from typing import Any

import gymnasium
from gymnasium.spaces import Text

#: Floor -> probability of the right door at its least and at its best known place.
FLOORS = {
    "vault": (0.15, 0.35),
    "cellar": (0.25, 0.45),
    "ground": (0.35, 0.6),
    "first": (0.5, 0.85),
    "attic": (0.97, 0.995),
}
WINGS = "abcde"
DOORS = ("red", "green", "blue", "white")
#: Places of a task.
LENGTH = 3


def right_door(place: str) -> str:
    return Random(f"mixed doors / {place}").choice(DOORS)


def known(place: str) -> float:
    floor, wing = place.split("-")
    least, most = FLOORS[floor]
    return least + (most - least) * WINGS.index(wing) / (len(WINGS) - 1)


class Doors(gymnasium.Env):
    blocking = "inline"  # a step takes microseconds, and runs repeat bit for bit
    observation_space = action_space = Text(max_length=1000)
    max_turns = LENGTH

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        floor = list(FLOORS)[int(self.np_random.integers(len(FLOORS)))]
        self.places = [f"{floor}-{WINGS[int(n)]}" for n in self.np_random.integers(len(WINGS), size=LENGTH)]
        self.chosen: tuple[str, ...] = ()
        return self.places[0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`: the action is the door; any other word is wrong."""
        self.chosen = (*self.chosen, action.strip())
        ended = len(self.chosen) == LENGTH
        won = ended and all(door == right_door(place) for door, place in zip(self.chosen, self.places, strict=True))
        shown = "" if ended else self.places[len(self.chosen)]
        return shown, float(won), ended, False, {"valid": self.chosen[-1] in DOORS, "success": won}

    def snapshot(self) -> tuple[list[str], tuple[str, ...]]:
        return self.places, self.chosen

    def restore(self, state: tuple[list[str], tuple[str, ...]]) -> None:
        self.places, self.chosen = state

    def demonstrate(self, observation: str, random: Random) -> str:
        """A player that is right with the probability `known` of the place."""
        right = right_door(observation)
        is_known = random.random() < known(observation)
        return right if is_known else random.choice([door for door in DOORS if door != right])
