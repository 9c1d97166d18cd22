"""The registry's entry of verifiers, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_agents.config.options import key
from rl_agents.envs.gymnasium_adapter import DEFAULT_MAX_TURNS
from rl_agents.envs.options import AgentKeys, PlayerKey
from rl_agents.envs.spec import EnvSpec

PAGE = "docs/environments/verifiers.md"


@dataclass(frozen=True)
class VerifiersOptions(AgentKeys, PlayerKey):
    """Keys of verifiers; see docs/environments/verifiers.md."""

    id: str = key("", "environment: the name of an installed one, such as owner/gsm8k, or a file")
    agent_python: str = key("", "Python that has the library verifiers and the environment")
    args: dict[str, Any] = key({}, "arguments of load_environment; v1: fields of the task set's configuration")
    agent: dict[str, Any] = key({}, "v1: fields of the agent's configuration, such as {max_turns: 4}")
    limit: int = key(0, "number of tasks that are read of a v1 task set; 0 for all", ge=0)
    success_reward: float | None = key(None, "lowest reward of a success; empty for any above 0")


SPEC = EnvSpec(
    name="verifiers",
    summary="any environment of the library verifiers, in its own Python",
    reference="verifiers (github.com/PrimeIntellect-ai/verifiers)",
    options=VerifiersOptions,
    max_turns=DEFAULT_MAX_TURNS,
    module=f"{__name__}.env",
    agent=True,
    blocking="inline",
)
