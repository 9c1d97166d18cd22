"""A game of two turns, for any model: the seats' rewards depend on the lengths of both answers."""

from typing import Any

import gymnasium


class Lengths(gymnasium.Env[str, str]):
    action_space = observation_space = gymnasium.spaces.Text(10_000)
    seats, max_turns, blocking = 2, 1, "inline"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.shared, self.said = bool((options or {}).get("seats")), list[int]()
        return "guess a number", {"seat": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.said.append(len(action))
        if self.shared and len(self.said) == 1:
            return "guess a number too", 0.0, False, False, {"seat": 1, "turn_metrics": {"letters": len(action)}}
        won = 1.0 if sum(self.said) % 3 else -1.0
        info = {"seat": 0, "rewards": [won, -won], "turn_metrics": {"letters": len(action)}}
        return "over", won, True, False, info
