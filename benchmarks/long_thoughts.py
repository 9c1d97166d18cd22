"""An environment with long responses: in every room a thought of about sixty tokens, then a door; one final reward.

    python run.py sft --env gymnasium:benchmarks.long_thoughts:Rooms --output models/rooms

There are three rooms in a fixed order. The right door is fixed for each pair of room and sign, and no observation
says whether a door was right. The reward after the last door is the share of right doors, and an episode is solved
if all are right. A reward discounted per token reaches the first room's door times gamma ** 125, one discounted per
step times gamma ** 2.

The thoughts of demonstrations are random clauses without meaning and end with the room and its sign; a share `RIGHT`
of their doors is right. Tuned for a start between 0.05 and 0.3: the rooms, and the iterations of imitation.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import gymnasium
from gymnasium.spaces import Text

ROOMS = ("hall", "attic", "tower")
SIGNS = ("sun", "moon", "star")
DOORS = ("red", "green", "blue")
#: Share of the demonstrated doors that are right.
RIGHT = 0.6
CLAUSES = (
    "let me look at the walls once more",
    "there may be something that i have missed",
    "somebody was here long before i came in",
    "it is quiet and nothing seems to move",
    "a careful mind takes its time with doors",
    "i go over all that is known now",
)
#: Clauses of a thought.
FEWEST, MOST = 6, 7
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def right_door(room: str, sign: str) -> str:
    """Return the right door for a room and a sign; every door is right for one sign of each room."""
    doors = list(DOORS)
    Random(f"long thoughts / {room}").shuffle(doors)
    return doors[SIGNS.index(sign)]


class Rooms(gymnasium.Env):
    blocking = "inline"  # a step takes microseconds, and runs repeat bit for bit
    observation_space = action_space = Text(max_length=1000)
    max_turns = len(ROOMS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.signs = [SIGNS[int(number)] for number in self.np_random.integers(len(SIGNS), size=len(ROOMS))]
        self.chosen: tuple[str, ...] = ()
        return self.shown(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`: the door follows the thought; any other word is wrong."""
        door = _THOUGHT.sub("", action).strip()
        self.chosen = (*self.chosen, door)
        ended = len(self.chosen) == len(ROOMS)
        right = [right_door(*place) == own for place, own in zip(self.places(), self.chosen, strict=False)]
        reward = sum(right) / len(ROOMS) if ended else 0.0
        metrics = {f"right_{room}": float(own) for room, own in zip(ROOMS, right, strict=False)}
        info = {"valid": door in DOORS, "success": ended and all(right), "metrics": metrics}
        return "" if ended else self.shown(), reward, ended, False, info

    def shown(self) -> str:
        return "-".join(self.places()[len(self.chosen)])

    def places(self) -> list[tuple[str, str]]:
        return list(zip(ROOMS, self.signs, strict=True))

    def snapshot(self) -> tuple[list[str], tuple[str, ...]]:
        return self.signs, self.chosen

    def restore(self, state: tuple[list[str], tuple[str, ...]]) -> None:
        self.signs, self.chosen = state

    def demonstrate(self, observation: str, random: Random) -> str:
        """A player with long thoughts that is right with probability `RIGHT`."""
        room, sign = self.places()[len(self.chosen)]
        clauses = " ".join(random.choice(CLAUSES) for _ in range(random.randint(FEWEST, MOST)))
        right = right_door(room, sign)
        door = right if random.random() < RIGHT else random.choice([d for d in DOORS if d != right])
        return f"<think> {clauses} so {room}-{sign} </think> {door}"
