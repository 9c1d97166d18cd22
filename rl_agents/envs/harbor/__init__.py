"""The registry's entry of harbor, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PlayerKey
from rl_agents.envs.spec import EnvSpec

PAGE = "docs/environments/harbor.md"


@dataclass(frozen=True)
class HarborOptions(PlayerKey):
    """Keys of harbor; see docs/environments/harbor.md."""

    path: str = key("", "folder of Harbor tasks, or one task")
    sandbox: Literal["auto", "podman", "docker", "bubblewrap", "none"] = key(
        "auto",
        "isolation of commands; auto: the first of podman, docker, bubblewrap that works; none: trusted tasks only",
    )
    build: Literal["refuse", "ignore"] = key(
        "refuse", "instructions of a Dockerfile that only podman and docker can run"
    )
    network: bool = key(False, "whether commands and tests may use the network; always with sandbox=none")
    reward: str = key("reward", "named reward that is trained on; all are metrics")
    success_reward: float = key(1.0, "lowest reward of a success")
    command_timeout_s: float = key(
        60.0, "time limit of a command, in seconds; a task limits all of them together", gt=0
    )
    memory_mb: int = key(2048, "memory in MiB for tasks that name none", ge=16)


SPEC = EnvSpec(
    name="harbor",
    summary="folders of Harbor tasks, with bash in a sandbox",
    reference="Harbor (github.com/harbor-framework/harbor)",
    options=HarborOptions,
    max_turns=30,
    module=f"{__name__}.env",
    blocking="inline",  # coroutines
)
