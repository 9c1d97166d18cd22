"""Environments that outlive their episodes: creating one may take seconds (ALFWorld, WebShop)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rl_agents.envs.base import TextEnv
from rl_agents.rollout.timeout import CallTimeout, call_with_timeout

EnvFactory = Callable[[], TextEnv]
CLOSE_TIMEOUT_S = 10.0


class EnvPool:
    """Hands out idle environments and creates new ones when none is idle."""

    def __init__(self, make_env: EnvFactory) -> None:
        self._make_env = make_env
        self._idle: list[TextEnv] = []
        self.created = 0

    def take(self) -> TextEnv:
        """Return an environment that nobody else uses; whatever its construction raises is passed on."""
        if self._idle:
            return self._idle.pop()
        env = self._make_env()
        self.created += 1
        return env

    def give_back(self, env: TextEnv) -> None:
        """Keep the environment of an episode that ended cleanly."""
        self._idle.append(env)

    def discard(self, env: TextEnv) -> None:
        """Close the environment of a failed episode; what it raises while closing no longer matters."""
        with contextlib.suppress(Exception, SystemExit, CallTimeout):
            call_with_timeout(CLOSE_TIMEOUT_S, env.close)

    def close(self) -> None:
        """Close all idle environments."""
        while self._idle:
            self.discard(self._idle.pop())
