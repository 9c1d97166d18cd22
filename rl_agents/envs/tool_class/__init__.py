"""``class:<module>:<name>``: a class whose public methods are the agent's tools, as TRL's ``environment_factory``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_agents.config.options import key
from rl_agents.envs.gymnasium_adapter import DEFAULT_MAX_TURNS, options_of, words_starter
from rl_agents.envs.options import ColumnKeys
from rl_agents.envs.spec import EnvFamily, EnvSpec, StarterSpec
from rl_agents.errors import InputError, NoPlayer
from rl_agents.plugins import member

PREFIX = "class:"


@dataclass(frozen=True)
class ToolClassOptions(ColumnKeys):
    """Keys of class; see docs/environments/class.md."""

    tasks: str = key("", "table of tasks, whose rows are the arguments of reset: a file, a folder or hub:NAME")
    kwargs: dict[str, Any] = key({}, "constructor arguments of the class")
    rewards: dict[str, Any] = key({}, "reward function in TRL's form -> its weight, such as {my_rewards:brief: 0.5}")
    success_reward: float | None = key(None, "lowest reward of a success; empty for any above 0")


def class_spec(name: str) -> EnvSpec:
    """Return the spec of ``class:<module>:<name>``; raises as `member` does."""
    path = name.removeprefix(PREFIX)
    made_by = member(path, f"environment {name}")
    if hasattr(made_by, "action_space"):
        raise InputError(f"environment {name}: it is a gymnasium environment: use gymnasium:{path}")
    return EnvSpec(
        name=name,
        summary=f"the public methods of {path} as tools",
        reference="docs/environments/class.md",
        module=f"{__name__}.env",
        gym_id=name,
        options=options_of(path, ToolClassOptions, "module and name of the class"),
        max_turns=getattr(made_by, "max_turns", DEFAULT_MAX_TURNS),
        blocking=getattr(made_by, "blocking", "thread"),
    )


def starter(name: str, options: Any) -> StarterSpec:
    """Return the warm-start model that imitates the class's method ``_demonstrate``; raises `NoPlayer`: it has none."""
    spec, made_by = class_spec(name), member(options.id, name)
    if not hasattr(made_by, "_demonstrate"):
        raise NoPlayer(name, ", or give the class a method _demonstrate (docs/environments/class.md)")
    return words_starter(spec, made_by, options, "_demonstrate", "_expert")


FAMILY = EnvFamily(
    name=f"{PREFIX}<module>:<class>",
    summary="your class whose public methods are the tools, as in TRL",
    reference="docs/environments/class.md",
    spec=class_spec,
    starter=starter,
)
