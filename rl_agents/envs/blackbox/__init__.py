"""The registry's entry of blackbox, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_agents.config.options import key
from rl_agents.envs.options import AgentKeys
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class BlackboxOptions(AgentKeys):
    """Keys of blackbox; see docs/environments/blackbox.md."""

    agent_command: str = key("", "command that runs one task, such as: python my_agent.py {task_id}")
    agent: str = key("", "agent that is a coroutine: module:function; instead of agent_command")
    agent_python: str = key(
        "", "Python with the agent's libraries, for env.agent=FILE.py:function; empty for this one", needs="agent"
    )
    tasks: str = key(
        "",
        "table of tasks (file, folder or hub:NAME), or an environment's name for its tasks and warm-start model",
    )
    task_options: dict[str, Any] = key({}, "keys of the environment that env.tasks names", needs="tasks")
    columns: dict[str, str] = key({}, "field of a task -> column of the data, such as question:prompt", needs="tasks")


SPEC = EnvSpec(
    name="blackbox",
    summary="your own agent, unchanged: a program or coroutine that asks the policy over HTTP",
    reference="StepPO (gateway and step-native traces), sections 4.4 and 6.2",
    options=BlackboxOptions,
    max_turns=50,
    agent=True,
    blocking="inline",
)
