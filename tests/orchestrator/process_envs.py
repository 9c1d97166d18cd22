"""Environments for env runners that are processes of their own, which import this module from the working directory."""

import itertools
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import ray

#: The task that ends the process.
DEADLY = 5


class Odd(gymnasium.Env[str, str]):
    """One of its tasks ends the process that plays it."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if seed == DEADLY and ray.get_runtime_context().get_actor_id():  # the driver looks at first prompts, too
            os._exit(9)
        return "3 of 4 : 123 1A2B", {}

    def step(self, action: str) -> Any:
        return "1A2B", float(len(action) % 2), False, False, {}


class Fickle(gymnasium.Env[str, str]):
    """Answers after a time that nobody can foresee; what it answers depends on the actions alone."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn = 0
        return f"3 of 4 : 123 {(seed or 0) % 5}A2B", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        time.sleep(random.SystemRandom().choice([0.0, 0.0, 0.002, 0.02]))
        won = len(action) % 2 == 1
        return f"{len(action) % 4}A1B", float(won), self.turn == 3, False, {"success": won}


class Striking(gymnasium.Env[str, str]):
    """Kills the process named in a file when so many episodes have ended here, while longer ones go on."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)
    ended = itertools.count(1)

    def __init__(self, target: str, at: int) -> None:
        self.target, self.at = Path(target), at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 2 + (seed or 0) % 5
        return f"3 of 4 : 123 {self.left}A2B", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        if not self.left and next(self.ended) == self.at:
            os.kill(int(self.target.read_text()), signal.SIGKILL)
        return f"{len(action) % 4}A1B", float(len(action) % 2), not self.left, False, {"success": True}
