"""The registry's entry of openenv, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_agents.config.options import key
from rl_agents.envs.gymnasium_adapter import DEFAULT_MAX_TURNS, SeedOptions
from rl_agents.envs.options import PlayerKey
from rl_agents.envs.spec import EnvSpec

PAGE = "docs/environments/openenv.md"


@dataclass(frozen=True)
class OpenEnvOptions(PlayerKey, SeedOptions):
    """Keys of openenv; see docs/environments/openenv.md."""

    kwargs: dict[str, Any] = key({}, "further arguments of the server's reset, such as {level: 2}")
    success_return: float | None = key(None, "lowest return of a success; empty for any above 0")
    url: str = key("", "URL of the server, such as http://127.0.0.1:8000")
    key_env: str = key("", "environment variable with the server's token; empty for none")
    prompt: str = key("", "instruction before the first observation")
    shown: list[str] = key([], "fields of the observation that the agent reads; empty for all but metadata")
    timeout_s: float = key(30.0, "time limit of one answer of the server, in seconds", gt=0)
    wait_s: float = key(60.0, "time for a server that died to be there again, in seconds; then its episodes fail", ge=0)


SPEC = EnvSpec(
    name="openenv",
    summary="any server of OpenEnv, also of tools",
    reference="OpenEnv (github.com/meta-pytorch/OpenEnv)",
    options=OpenEnvOptions,
    max_turns=DEFAULT_MAX_TURNS,
    module=f"{__name__}.env",
    blocking="inline",  # coroutines
)
