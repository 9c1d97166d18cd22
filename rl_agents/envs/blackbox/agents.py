"""The agent that blackbox's keys name, and the environment that a task names.

`TaskWorld` runs that environment for an agent that cannot import it.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rl_agents.envs.base import make_env, synchronous
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.tasks import NEEDED
from rl_agents.envs.spec import TextEnv
from rl_agents.errors import InputError
from rl_agents.gateway.agent_interpreter import HostedAgent
from rl_agents.gateway.process_supervisor import Agent, AgentClient, CommandAgent, FunctionAgent
from rl_agents.gateway.results import AgentResult, read_result
from rl_agents.plugins import member

#: Seconds in which a Python must start.
PROBE_S = 60.0
#: Entries of an environment's ``info`` that an agent's result has, too.
PASSED_ON = ("success", "metrics", "references", "points", "evidence")


class TaskWorld:
    """One episode; see `rl_agents.gateway.agent_interpreter.AgentEnvironment`.

    Raises:
        ValueError: from `act`: the task names no environment, or no episode is running.
    """

    def __init__(self, given: AgentClient) -> None:
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

    def close(self) -> None:
        if self._env is not None and not self._done:
            self._env.close()

    def result(self) -> AgentResult | None:
        if self._env is None:
            return None
        known = {name: self._info[name] for name in PASSED_ON if name in self._info}
        return read_result({**known, "reward": self._reward, "truncated": self._truncated})

    def _reset(self) -> str:
        if self._env is not None:
            raise ValueError("client.reset() was called twice; an episode begins once")
        if "env" not in self._task:
            raise ValueError("the task is a line of a file and names no environment; the agent must run it itself")
        self._env = synchronous(make_env(self._task["env"], self._task["options"], self._task["max_turns"]))
        observation, self._info = self._env.reset(seed=self._seed, options={"task_id": self._task["id"]})
        return observation


def load_agent(options: BlackboxOptions) -> Agent:
    """Return the agent.

    Raises:
        InputError: no agent is set, the command cannot be read, or there is no such coroutine function.
    """
    if options.agent_command:
        return CommandAgent.read(options.agent_command)
    if not options.agent:
        raise InputError(NEEDED)
    if options.agent_python:
        return hosted_agent(options.agent, options.agent_python)
    if ":" not in options.agent:
        raise InputError(f"env.agent={options.agent}: write module:function")
    function = member(options.agent, f"env.agent={options.agent}")
    if not inspect.iscoroutinefunction(function):
        wanted = f"write async def {options.agent.rpartition(':')[2]}(task, client)"
        raise InputError(f"env.agent={options.agent}: it is not a coroutine function; {wanted}")
    return FunctionAgent(function)


def hosted_agent(agent: str, python: str) -> HostedAgent:
    """Return an agent for another interpreter.

    Raises:
        InputError: it is not ``FILE.py:function``, or there is no such file or interpreter.
    """
    file, _, name = agent.rpartition(":")
    path = Path(file).expanduser().resolve()
    if path.suffix != ".py" or not name.isidentifier():
        raise InputError(f"env.agent={agent}: with env.agent_python, write FILE.py:function")
    if not path.is_file():
        raise InputError(f"env.agent={agent}: there is no file {file}")
    return HostedAgent(interpreter(python), str(path), name, TaskWorld)


@cache
def interpreter(python: str) -> str:
    """Return the path of ``env.agent_python``; raises `InputError`: there is no such program, or it is no Python."""
    program = shutil.which(Path(python).expanduser())
    if program is None:
        raise InputError(f"env.agent_python={python}: there is no such program")
    with suppress(OSError, subprocess.SubprocessError):
        words, nothing = [program, "-c", "print(6 * 7)"], subprocess.DEVNULL
        if subprocess.check_output(words, timeout=PROBE_S, stdin=nothing, stderr=nothing).strip() == b"42":
            return str(Path(program).absolute())
    raise InputError(f"env.agent_python={python}: it is no Python interpreter")
