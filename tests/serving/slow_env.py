"""An environment of three steps that can be told to fail or to hang."""

import threading
import time
from dataclasses import dataclass
from typing import Any

import gymnasium

from rl_agents.config.options import key
from rl_agents.envs.base import EnvSpec, register

#: Set to let hanging steps return.
RELEASE = threading.Event()
CLOSED: list[str] = []


@dataclass(frozen=True)
class SlowOptions:
    size: int = key(1, "of the board")


class SlowEnv(gymnasium.Env[str, str]):
    """The task's name says what the second step (or the reset) does: ``plain``, ``hang``, ``raise``, ``no-reset``,
    ``hang-reset``. Of size 7 it is not made before `RELEASE`.
    """

    def __init__(self, size: int) -> None:
        self._task = "new"
        if size == 7:
            RELEASE.wait(30)
        self._thread = threading.current_thread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._task, self._turn = (options or {})["task_id"], 0
        if self._task == "hang-reset":
            RELEASE.wait(30)
        if self._task == "no-reset":
            raise RuntimeError("no board")
        return "hello", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assert threading.current_thread() is self._thread
        self._turn += 1
        if self._turn == 2 and self._task == "hang":
            RELEASE.wait(30)
        if self._turn == 2 and self._task == "raise":
            raise ValueError("lost a piece")
        time.sleep(0.01)
        return f"dear {action}", 0.5, self._turn == 3, False, {"success": self._turn == 3}

    def close(self) -> None:
        CLOSED.append(self._task)


def make(options: SlowOptions, max_turns: int) -> SlowEnv:
    return SlowEnv(options.size)


def task_ids(split: str, options: SlowOptions) -> list[str]:
    return ["plain", "hang", "raise", "no-reset"]


register(EnvSpec("slow", "three steps", "-", SlowOptions, 5, module=__name__, gym_id="tests/Slow-v0"))
