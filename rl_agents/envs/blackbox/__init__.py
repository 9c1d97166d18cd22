"""What the registry knows about blackbox, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.config.options import key
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class BlackboxOptions:
    """Keys of blackbox; see docs/environments/blackbox.md."""

    agent_command: str = key("", "command that plays one task, such as: python my_agent.py {task_id}")
    agent: str = key(
        "", "module:function of an agent that is a coroutine, or a plugin's agent by name, instead of a command"
    )
    agent_python: str = key(
        "", "interpreter that has the agent's libraries, for env.agent=FILE.py:function; empty: this one", needs="agent"
    )
    tasks: str = key(
        "",
        "table of tasks (file, folder, hub:NAME), or an environment's name, whose tasks and starter model are taken",
    )
    task_options: dict[str, Any] = key(
        {}, "options of that environment, for its tasks and for the agent", needs="tasks"
    )
    columns: dict[str, str] = key(
        {}, "what the agent is given -> column of the data, such as question:prompt", needs="tasks"
    )
    agent_timeout_s: float = key(300.0, "seconds that an agent has for a task", gt=0)
    agent_concurrency: int = key(16, "agents at once in a rollout process", ge=1)
    error_reward: float | None = key(
        None,
        "reward of an episode whose agent raised or returned no result; without one such episodes are counted and "
        "excluded from training",
    )
    reasoning: Literal["keep", "as_sent"] = key(
        "keep", "what the model reads again of its thoughts: what it wrote, or what the agent sends back"
    )


SPEC = EnvSpec(
    name="blackbox",
    summary="your own agent, unchanged: a program or coroutine that asks the policy over HTTP",
    reference="StepPO (gateway and step-native traces), sections 4.4 and 6.2",
    options=BlackboxOptions,
    max_turns=50,
    borrows=True,
    blocking="inline",
)
