"""Environments that cannot be made or begun, as ``gymnasium:trainer.broken_envs:NAME``."""

from typing import Any

from rollout.waiting import Unsteady

from rl_agents.errors import InputError


class Unmade(Unsteady):
    """Raises as soon as it is made."""

    def __init__(self) -> None:
        raise RuntimeError("no simulator here")


class Unset(Unsteady):
    """Lacks something that a person has to mend."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise InputError("the data folder is missing")
