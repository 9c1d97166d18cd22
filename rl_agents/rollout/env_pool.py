"""The environments of a runner: idle ones are reused, and their number is limited."""

from __future__ import annotations

import asyncio
import contextlib

from rl_agents.config import Settings
from rl_agents.envs.base import TextEnv, env_spec
from rl_agents.envs.spec import Blocking
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.env_worker import CLOSE_TIMEOUT_S, EnvFactory, EnvGuard, TaskWatch, ThreadHost, folder_kept
from rl_agents.rollout.prompting import env_factory
from rl_agents.time_limits import CallTimeout, debugger_active

#: Default maximum of concurrent environments; 0: no limit.
MAX_CONCURRENT: dict[Blocking, int] = {"inline": 0, "thread": 256}
#: The task under which `TaskWatch` counts environments that hang while they are created.
START = ""


class ConcurrencyLimit:
    """The limit on one event loop's environments, first come, first served.

    Args:
        limit: number of places; 0: no limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._taken = limit, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def admitted(self, count: int) -> None:
        """Wait for ``count`` places at once; more than the limit are admitted when all are free."""
        async with self._turn:  # the others wait behind the first one
            while self._limit and self._taken and self._taken + count > self._limit:
                self._freed.clear()
                await self._freed.wait()
            self._taken += count

    def release(self, count: int) -> None:
        self._taken -= count
        self._freed.set()


class EnvPool:
    """Reuses idle environments, and creates new ones if none is idle.

    Args:
        mode: where environments are called (`rl_agents.rollout.env_worker`).
        concurrency: maximum concurrent environments; 0: `MAX_CONCURRENT`.
        start_timeout_s: maximum seconds for creating an environment; 0: no limit.
    """

    def __init__(
        self, make_env: EnvFactory, mode: Blocking = "inline", concurrency: int = 0, start_timeout_s: float = 0.0
    ) -> None:
        self._make_env, self.mode = make_env, mode
        self._start_timeout_s = start_timeout_s
        self.created = 0
        self.watch = TaskWatch()
        self._idle: list[TextEnv] = []
        self._hosts: dict[int, ThreadHost] = {}
        self._stuck: list[ThreadHost] = []
        self._places = ConcurrencyLimit(concurrency or MAX_CONCURRENT[self.mode])

    @property
    def hanging(self) -> bool:
        """Whether an abandoned thread is still in a call of its environment."""
        return any(host.left and host.alive for host in (*self._hosts.values(), *self._stuck))

    async def take(self) -> TextEnv:
        """Wait for a free place, and return an environment for exclusive use.

        Raises:
            EnvFailure, InputError: it cannot be created.
        """
        return (await self.take_several(1))[0]

    async def take_several(self, count: int) -> list[TextEnv]:
        """Return several at once, because an episode that holds one must not wait for another."""
        await self._places.admitted(count)
        envs: list[TextEnv] = []
        try:
            while len(envs) < count:
                envs.append(await self._one())
        except BaseException:
            self._idle += envs
            self._places.release(count)
            raise
        return envs

    def guard(self, env: TextEnv, task_id: str, seed: int, timeout_s: float) -> EnvGuard:
        return EnvGuard(task_id, seed, timeout_s, self.watch, self._hosts.get(id(env)))

    def give_back(self, env: TextEnv) -> None:
        """Keep the environment of an episode that ended cleanly, or was stopped."""
        host = self._hosts.get(id(env))
        if host is not None and host.over:  # abandoned during a call
            self._left(self._hosts.pop(id(env)))
        else:
            self._idle.append(env)
        self._places.release(1)

    async def discard(self, env: TextEnv) -> None:
        """Close the environment of a failed episode; ignore what it raises while closing."""
        try:
            await self._close(env)
        finally:
            self._places.release(1)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(self._close, idle), return_exceptions=True)  # close all of them

    async def _one(self) -> TextEnv:
        if self._idle:
            return self._idle.pop()
        self.watch.check(START)
        try:
            made = self._made_here() if self.mode == "inline" else await self._made_elsewhere()
        except EnvFailure as failure:
            if not isinstance(failure.__cause__, CallTimeout):
                raise
            named = EnvFailure(f"{failure} (env_start_timeout_s)")
            self.watch.hung(START, str(named), reset=True)
            raise named from failure.__cause__
        self.created += 1
        return made

    def _made_here(self) -> TextEnv:
        def start() -> TextEnv:
            return self._make_env()

        with folder_kept():
            return call_env(self._start_timeout_s, start)

    async def _made_elsewhere(self) -> TextEnv:
        host = ThreadHost()
        try:
            env = await host.make(self._make_env, 0 if debugger_active() else self._start_timeout_s)
        except BaseException:
            await self._end(host)
            raise
        self._hosts[id(env)] = host
        return env

    async def _close(self, env: TextEnv) -> None:
        host = self._hosts.pop(id(env), None)
        if host is not None:
            await self._end(host)
            return
        with contextlib.suppress(Exception):
            await EnvGuard("", 0, CLOSE_TIMEOUT_S).call(env.close)

    async def _end(self, host: ThreadHost) -> None:
        try:
            await host.close()
        finally:
            if host.left:
                self._left(host)

    def _left(self, host: ThreadHost) -> None:
        """Remember a host that was abandoned in a call."""
        self._stuck = [*(each for each in self._stuck if each.alive), host]


def env_pool(settings: Settings) -> EnvPool:
    """Return the pool of a run's environments.

    Raises:
        InputError: the environment declares an unknown ``blocking``.
    """
    spec = env_spec(settings.env)
    blocking = spec.blocking if settings.env_blocking == "auto" else settings.env_blocking
    if blocking not in MAX_CONCURRENT:
        raise InputError(f"environment {spec.name}: blocking={blocking!a}: must be one of {', '.join(MAX_CONCURRENT)}")
    return EnvPool(env_factory(settings), blocking, settings.env_concurrency, settings.env_start_timeout_s)
