"""The agent that blackbox's keys name."""

from __future__ import annotations

import inspect

from rl_agents.envs.blackbox.spec import BlackboxOptions
from rl_agents.envs.blackbox.tasks import NEEDED
from rl_agents.envs.gymnasium_registry import own_module
from rl_agents.errors import InputError, unknown
from rl_agents.gateway.launch import Agent, CommandAgent, FunctionAgent


def load_agent(options: BlackboxOptions) -> Agent:
    """Return the agent.

    Raises:
        InputError: none is named, the command cannot be read, or there is no such coroutine function.
    """
    if options.agent_command:
        return CommandAgent.read(options.agent_command)
    if not options.agent:
        raise InputError(NEEDED)
    module, colon, name = options.agent.partition(":")
    if not (module and colon and name):
        raise InputError(f"env.agent={options.agent}: write module:function")
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
