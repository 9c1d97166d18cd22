"""Environments that fail from some time on, as ``gymnasium:trainer.broken_envs:NAME``."""

from typing import Any

from rollout.waiting import Waiting

from rl_agents.errors import InputError


class Unmade(Waiting):
    """Cannot be made once it is ``broken``."""

    broken = False

    def __init__(self) -> None:
        if self.broken:
            raise RuntimeError("no simulator here")


class Unset(Waiting):
    """Lacks something that a person has to mend."""

    broken = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.broken:
            raise InputError("the data folder is missing")
        return super().reset(seed=seed, options=options)
