"""The environments of a runner: idle ones are handed out again, and no more live at once than may.

``inline``: called in the runner's loop; a coroutine function's waits are everybody's chance. ``thread`` and
``process``: called elsewhere, side by side (`env_hosts`, `env_process`). ``auto``: inline at first, and measured
(`latency_probe`): where calls turn out to be long, later episodes play elsewhere, and a line says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Literal, cast

from rl_agents.config import Settings
from rl_agents.envs.base import TextEnv, env_spec
from rl_agents.envs.spec import Blocking
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.env_hosts import CLOSE_TIMEOUT_S, EnvFactory, ThreadHost
from rl_agents.rollout.env_process import EnvRecipe, ProcessHost
from rl_agents.rollout.latency_probe import Gauge
from rl_agents.rollout.process_state import enter_folder, working_folder
from rl_agents.rollout.prompting import env_factory
from rl_agents.rollout.safe_env import EnvGuard
from rl_agents.rollout.task_watch import TaskWatch
from rl_agents.rollout.time_limits import CallTimeout, debugger_active


class Places:
    """Places of one event loop's environments.

    Args:
        limit: how many there are by now; 0: any number.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def admitted(self, count: int) -> None:
        """Wait for ``count`` places at once."""
        if not self._waiting and self._fits(count):
            self._taken += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(count)
            else:
                with contextlib.suppress(ValueError):  # `wake` has passed over it
                    self._waiting.remove((count, turn))
                self.wake()
            raise

    def spare(self) -> bool:
        """Take a place, if there is one that nobody waits for."""
        if self._waiting or not self._fits(1):
            return False
        self._taken += 1
        return True

    def release(self, count: int) -> None:
        """Give places back."""
        self._taken -= count
        self.wake()

    def wake(self) -> None:
        """Let those in who wait, as far as there are places."""
        while self._waiting and self._fits(self._waiting[0][0]):
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._taken += count
                turn.set_result(None)

    def _fits(self, count: int) -> bool:
        # Who needs more at once than may live gets them when nobody else has any.
        limit = self._limit()
        return not limit or not self._taken or self._taken + count <= limit


Mode = Literal["inline", "thread", "process"]
#: Environments that live at once where nobody says how many.
MOST: dict[Mode, int] = {"inline": 0, "thread": 256, "process": max(8, os.cpu_count() or 1)}
#: Threads that hang in a call, beyond which later episodes play in processes, which can be killed.
MAX_STUCK = 16
#: Times that an environment is suspected and acquitted, before nobody asks any more who draws.
MAX_ACQUITTED = 3
#: What the making of environments is called among the tasks that hang: no task.
START = ""


class EnvPool:
    """Hands out idle environments and creates new ones when none is idle.

    Args:
        make_env: creates an environment.
        blocking: where environments are called, see the module.
        concurrency: environments alive at once; 0 takes `MOST`.
        recipe: how a process makes one; without it there are no processes.
        name: of the environment, for messages.
        start_timeout_s: seconds that making one may take; 0 is no limit.

    Attributes:
        created: how many were created.
        mode: where environments are called that are created from now on.
    """

    def __init__(
        self, make_env: EnvFactory, blocking: Blocking = "inline", concurrency: int = 0,
        recipe: EnvRecipe | None = None, name: str = "", start_timeout_s: float = 0.0,
    ) -> None:  # fmt: skip
        if blocking == "process" and recipe is None:
            raise ValueError("a process needs a recipe to make its environment")
        self._make_env, self._recipe, self._concurrency, self._name = make_env, recipe, concurrency, name
        self._start_timeout_s = start_timeout_s
        self.mode: Mode = "inline" if blocking == "auto" else blocking
        self._gauge = Gauge(lambda: self._places.wake()) if blocking == "auto" else None
        self._measured = blocking == "auto"
        #: Where it was called before it was moved; None: it never was.
        self._before: Mode | None = None
        self.created = 0
        self.watch = TaskWatch()
        self._idle: list[TextEnv] = []
        #: Idle ones that are not where later ones are called; closed before another is taken.
        self._outdated: list[TextEnv] = []
        self._hosts: dict[int, ThreadHost] = {}
        self._stuck: list[ThreadHost] = []
        #: Working directories of environments whose construction changed it.
        self._folders: dict[int, str] = {}
        #: A process in which an episode shows what the environment itself does; wanted, and there.
        self._suspected, self._witness, self._acquitted = False, cast(ProcessHost | None, None), 0
        self._places = Places(lambda: self.limit)

    @property
    def side_by_side(self) -> bool:
        """Whether the calls of several environments take less time than one after the other."""
        return self.mode != "inline" or self.watch.waited

    @property
    def limit(self) -> int:
        """Environments that may live at once; 0: any number."""
        if self._gauge is not None and not self._gauge.begun:
            return 1  # the first one is measured before others do the same
        return self._concurrency or MOST[self.mode]

    @property
    def hanging(self) -> bool:
        """Whether a thread of an environment was left in a call that goes on."""
        return any(host.left and host.alive for host in (*self._hosts.values(), *self._stuck))

    async def take(self) -> TextEnv:
        """Return an environment that nobody else uses, as soon as there may be one.

        Raises:
            EnvFailure, InputError: it cannot be made.
        """
        return (await self.take_several(1))[0]

    async def take_several(self, count: int) -> list[TextEnv]:
        """Return several at once: who holds one must not wait for another."""
        await self._places.admitted(count)
        return await self._ready(count)

    async def take_spare(self) -> TextEnv | None:
        """Return one more for somebody who holds one already; None where that would mean to wait."""
        if not self._places.spare():
            return None
        return (await self._ready(1))[0]

    def guard(self, env: TextEnv | None, task_id: str, seed: int, timeout_s: float) -> EnvGuard:
        """Return the guard of an episode in ``env``."""
        host = self._hosts.get(id(env))
        guard = EnvGuard(task_id, seed, timeout_s, self.watch, host, None if host is not None else self._gauge)
        if host is None:
            guard.process.folder = self._folders.get(id(env), "")
        return guard

    def give_back(self, env: TextEnv) -> None:
        """Keep the environment of an episode that ended cleanly, or that somebody stopped."""
        host = self._hosts.get(id(env))
        if host is not None:
            self._look_at(host)
        if host is not None and host.over:  # stopped in the middle of a call
            self._stuck.append(self._hosts.pop(id(env)))
        else:
            self._keep(env)
        self._places.release(1)

    async def discard(self, env: TextEnv) -> None:
        """Close the environment of a failed episode; what it raises while closing no longer matters."""
        try:
            await self._close(env)
        finally:
            self._places.release(1)

    async def close(self) -> None:
        """Close all idle environments."""
        idle, self._idle, self._outdated = self._idle + self._outdated, [], []
        await asyncio.gather(*map(self._close, idle), return_exceptions=True)  # one is no reason to leave another

    async def _ready(self, count: int) -> list[TextEnv]:
        """Return environments for which there are places; what is not made gives its place back."""
        envs: list[TextEnv] = []
        try:
            while len(envs) < count:
                envs.append(await self._one())
        except BaseException:
            for env in envs:
                self._keep(env)
            self._places.release(count)
            raise
        return envs

    def _keep(self, env: TextEnv) -> None:
        (self._idle if self._mode_of(env) == self.mode else self._outdated).append(env)

    async def _one(self) -> TextEnv:
        self._settle()
        while self._outdated:
            await self._close(self._outdated.pop())
        if self._suspected and (witness := await self._made_witness()) is not None:
            return witness
        if self._idle:
            return self._idle.pop()
        self.watch.check(START)
        try:
            made = await self._made()
        except EnvFailure as failure:
            if not isinstance(failure.__cause__, CallTimeout):
                raise
            named = EnvFailure(f"{failure} (env_start_timeout_s)")
            self.watch.hung(START, str(named), reset=True)
            raise named from failure.__cause__
        self.created += 1
        return made

    async def _made(self) -> TextEnv:
        return await (self._made_here() if self.mode == "inline" else self._made_elsewhere())

    async def _made_here(self) -> TextEnv:
        folder = working_folder()

        def start() -> TextEnv:
            return self._make_env()

        try:
            env = call_env(self._start_timeout_s, start)
            changed = working_folder()
        finally:
            enter_folder(folder, working_folder())
        if changed != folder:
            self._folders[id(env)] = changed
        declared = getattr(env, "blocking", "auto") if self._gauge is not None else "auto"
        if declared == "auto":
            return env
        self._gauge, self._measured = None, False  # it says by itself what it is
        if declared not in MOST:
            self._places.wake()
            raise InputError(f"environment {self._name}: blocking={declared!a}: must be one of {', '.join(MOST)}")
        stays = declared == "inline" or not self._moves(declared)
        self._places.wake()  # not before the mode is known, which says how many may live
        if stays:
            return env
        await self._close(env)
        return await self._made_elsewhere()

    async def _made_elsewhere(self) -> TextEnv:
        watches = self._measured and self._acquitted < MAX_ACQUITTED and self._recipe is not None
        host = ThreadHost(watches) if self.mode == "thread" else ProcessHost(cast(EnvRecipe, self._recipe))
        try:
            env = await host.make(self._make_env, 0 if debugger_active() else self._start_timeout_s)
        except BaseException as error:
            await self._end(host)
            if not isinstance(error, InputError) or not isinstance(host, ProcessHost) or not self._goes_back(error):
                raise
            return await self._made()
        self._hosts[id(env)] = host
        return env

    async def _made_witness(self) -> TextEnv | None:
        """Return the environment in a process that says what it changes there; None where it cannot be had."""
        self._suspected = False
        host = ProcessHost(cast(EnvRecipe, self._recipe), watches=True)
        try:
            env = await host.make(self._make_env, 0 if debugger_active() else self._start_timeout_s)
        except BaseException as error:
            await self._end(host)
            if not isinstance(error, EnvFailure | InputError):
                raise
            self._acquitted = MAX_ACQUITTED  # as far as anybody can see
            return None
        self._hosts[id(env)] = self._witness = host
        return env

    def _goes_back(self, error: InputError) -> bool:
        """Whether to call it where it was before: only this process knows it, for one that a notebook registered."""
        if self._before is None:
            return False
        if self._recipe is not None:
            self.mode, self._recipe = self._before, None
            print(f"environment {self._name}: cannot be made in another process ({error}): it stays here", flush=True)
        return True

    async def _close(self, env: TextEnv) -> None:
        self._folders.pop(id(env), None)
        host = self._hosts.pop(id(env), None)
        if host is None:
            with contextlib.suppress(Exception):
                await EnvGuard("", 0, CLOSE_TIMEOUT_S).call(env.close)
            return
        self._look_at(host)
        await self._end(host)

    async def _end(self, host: ThreadHost) -> None:
        try:
            await host.close()
        finally:
            if host.left:
                self._stuck.append(host)

    def _mode_of(self, env: TextEnv) -> Mode:
        host = self._hosts.get(id(env))
        if host is None:
            return "inline"
        return "process" if host.may_die else "thread"

    def _settle(self) -> None:
        """Move to where the environment is better off, as far as that is known by now."""
        gauge = self._gauge
        if gauge is not None and gauge.verdict:
            self._gauge = None
            self._moves(gauge.verdict, gauge.reason)
        self._stuck = [host for host in self._stuck if host.alive]
        if self.mode == "thread" and len(self._stuck) > MAX_STUCK:
            self._moves("process", f"{len(self._stuck)} threads hang in it")

    def _look_at(self, host: ThreadHost) -> None:
        """Draw conclusions from an episode.

        A thread sees that somebody has drawn from the process's generators, and not who: the next episode is played in
        a process, where nobody else is.
        """
        if self.mode != "thread":
            return
        if host is not self._witness:
            if host.touched and self._witness is None and self._acquitted < MAX_ACQUITTED:
                self._suspected = True
            host.forget()
            return
        self._witness = None
        if host.touched:
            self._moves("process", f"it {host.touched}, which threads share")
        else:
            self._acquitted += 1

    def _moves(self, mode: Mode, reason: str = "") -> bool:
        """Change the mode, if that is possible, and say so."""
        if mode == "process" and self._recipe is None:
            return False
        if reason:
            self._before = self.mode
        self.mode = mode
        self._outdated, self._idle = self._outdated + self._idle, []
        if reason:
            where = "threads of their own" if mode == "thread" else "processes of their own"
            print(
                f"environment {self._name}: {reason}: later episodes play in {where} (env_blocking={mode})", flush=True
            )
        return True


def env_pool(settings: Settings) -> EnvPool:
    """Return the pool of a run's environments; raises as `env_factory` does."""
    spec = env_spec(settings.env)
    blocking = spec.blocking if settings.env_blocking == "auto" else settings.env_blocking
    if blocking not in ("auto", *MOST):
        raise InputError(f"environment {spec.name}: blocking={blocking!a}: must be one of auto, {', '.join(MOST)}")
    make, recipe = env_factory(settings), EnvRecipe.of(settings)
    return EnvPool(make, blocking, settings.env_concurrency, recipe, settings.env, settings.env_start_timeout_s)
