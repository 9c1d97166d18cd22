"""The agent that blackbox's keys name, and agents that plugins give a name."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.tasks import NEEDED
from rl_agents.envs.blackbox.world import TaskWorld
from rl_agents.errors import InputError, nearest, unknown
from rl_agents.gateway.agent_interpreter import HostedAgent
from rl_agents.gateway.process_supervisor import Agent, AgentClient, CommandAgent, FunctionAgent
from rl_agents.plugins import claim, own_module

#: Plays one task: (task, client) -> result.
Solving = Callable[[Mapping[str, Any], AgentClient], Awaitable[Any]]


@dataclass(frozen=True)
class AgentEntry:
    """An agent as `run.py list` shows it."""

    name: str
    summary: str
    reference: str
    function: Solving


AGENTS: dict[str, AgentEntry] = {}


def register(entry: AgentEntry) -> None:
    """Add an agent of a plugin.

    Raises:
        InputError: its name is taken, or it is not a coroutine function.
    """
    if not inspect.iscoroutinefunction(entry.function):
        raise InputError(f"agent '{entry.name}' of {entry.reference} is not a coroutine function; write async def")
    claim("agent", entry.name, AGENTS)
    AGENTS[entry.name] = entry


def agent(name: str, summary: str) -> Callable[[Solving], Solving]:
    """Decorate a coroutine function ``(task, client)``: ``--env blackbox --set env.agent=name`` trains it."""

    def registered(function: Solving) -> Solving:
        register(AgentEntry(name, summary, function.__module__, function))
        return function

    return registered


def load_agent(options: BlackboxOptions) -> Agent:
    """Return the agent.

    Raises:
        InputError: none is named, the command cannot be read, or there is no such coroutine function.
    """
    if options.agent_command:
        return CommandAgent.read(options.agent_command)
    if not options.agent:
        raise InputError(NEEDED)
    if options.agent_python:
        return hosted_agent(options.agent, options.agent_python)
    if options.agent in AGENTS:
        return FunctionAgent(AGENTS[options.agent].function)
    module, colon, name = options.agent.partition(":")
    if not (module and colon and name):
        hint = f"; {nearest(options.agent, AGENTS)}" if AGENTS else ""
        raise InputError(f"env.agent={options.agent}: write module:function, or the name of a plugin's agent{hint}")
    home = own_module(module, f"env.agent={options.agent}")
    function = getattr(home, name, None)
    if function is None:
        functions = [n for n, value in vars(home).items() if inspect.iscoroutinefunction(value)]
        raise unknown(f"function of {module} in env.agent", name, functions or ["async def agent(task, client)"])
    if not inspect.iscoroutinefunction(function):
        raise InputError(
            f"env.agent={options.agent}: it is not a coroutine function; write async def {name}(task, client)"
        )
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
    program = shutil.which(Path(python).expanduser())
    if program is None:
        raise InputError(f"env.agent_python={python}: there is no such program")
    return HostedAgent(str(Path(program).absolute()), str(path), name, TaskWorld)
