"""The environment that a task of blackbox names, played for an agent that cannot import it."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from rl_agents.envs.base import make_env, synchronous
from rl_agents.envs.spec import TextEnv
from rl_agents.gateway.process_supervisor import Given
from rl_agents.gateway.results import AgentResult, read_result

#: Of an environment's ``info``, what an agent's result has, too.
PASSED_ON = ("success", "references", "points", "evidence")


class TaskWorld:
    """One episode; see `rl_agents.gateway.agent_interpreter.World`.

    Raises:
        ValueError: from `act`: the task names no environment, or the episode is not under way.
    """

    def __init__(self, given: Given) -> None:
        self._task, self._seed = given.task, given.seed
        self._env: TextEnv | None = None
        self._reward, self._done, self._truncated = 0.0, False, False
        self._info: Mapping[str, Any] = {}

    def act(self, text: str | None) -> tuple[str, bool]:
        if text is None:
            return self._reset(), False
        if self._env is None or self._done:
            raise ValueError("the episode has ended" if self._done else "call client.reset() before client.step()")
        observation, reward, terminated, self._truncated, self._info = self._env.step(text)
        self._reward, self._done = self._reward + float(reward), terminated or self._truncated
        if self._done:
            self._env.close()
        return observation, self._done

    def result(self) -> AgentResult | None:
        if self._env is None:
            return None
        metrics = {k: v for k, v in self._info.get("metrics", {}).items() if isinstance(v, Real)}
        known = {name: self._info[name] for name in PASSED_ON if name in self._info}
        return read_result({**known, "reward": self._reward, "truncated": self._truncated, "metrics": metrics})

    def _reset(self) -> str:
        if self._env is not None:
            raise ValueError("client.reset() was called twice; an episode begins once")
        if "env" not in self._task:
            raise ValueError("the task is a line of a file and names no environment; play it in the agent")
        self._env = synchronous(make_env(self._task["env"], self._task["options"], self._task["max_turns"]))
        observation, self._info = self._env.reset(seed=self._seed, options={"task_id": self._task["id"]})
        return observation
