"""One agent session: an episode of the agent loop, its thread, and what clients see of it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_agents.config import Settings
from rl_agents.envs.base import TextEnv
from rl_agents.inference.base import Completion, EngineError, Sampling, Weights
from rl_agents.rollout.agent_loop import Episode
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.truncation import question_of
from rl_agents.serving.protocol import SessionRequest

T = TypeVar("T")
Generate = Callable[[Sequence[int], Sampling], Coroutine[Any, Any, Completion]]


class LoopEngine:
    """The engine of a session's thread: asks the server's event loop."""

    def __init__(self, generate: Generate, loop: asyncio.AbstractEventLoop) -> None:
        self._generate, self._loop = generate, loop

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample on the server's event loop; its exceptions arrive here."""
        work = asyncio.run_coroutine_threadsafe(self._generate(prompt_ids, sampling), self._loop)
        return await asyncio.wrap_future(work)

    async def sync(self, weights: Weights, version: int) -> None:
        """Refuse: sessions do not own the weights."""
        raise EngineError("a session cannot replace weights")

    def close(self) -> None:
        """Nothing to free."""


class Worker:
    """One thread that makes a session's calls, one at a time, and holds its environment.

    What has to be called in a process, or in a thread of its own, is (`rl_agents.rollout.env_pool`); this thread waits.
    """

    def __init__(self, settings: Settings) -> None:
        """Begin without an environment; raises as `env_pool` does."""
        self._envs: EnvPool = env_pool(settings)
        self._env: TextEnv | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agent-session")
        self._call: asyncio.Future[Any] | None = None
        #: Of the thread, for the session's life: an environment written as coroutines keeps what belongs to a loop.
        self.loop = asyncio.Runner()

    async def call(self, timeout_s: float | None, func: Callable[..., T], *args: Any) -> T:
        """Run ``func`` in the thread; without a limit for None.

        Raises:
            TimeoutError: it has not returned; the thread stays `busy` until it does.
        """
        self._call = asyncio.get_running_loop().run_in_executor(self._pool, func, *args)
        return await asyncio.wait_for(asyncio.shield(self._call), timeout_s)

    @property
    def busy(self) -> bool:
        """Whether a call is in progress, one that was given up included."""
        return self._call is not None and not self._call.done()

    @property
    def hangs(self) -> bool:
        """Whether the environment holds a thread that was to be done with it: this one, or its own."""
        return self.busy or self._envs.hanging

    def make(self) -> None:
        """Make the environment; in the thread.

        Raises:
            EnvFailure, InputError: it cannot be made.
        """
        self._env = self.loop.run(self._envs.take())

    def episode(self, make: Callable[[TextEnv, EnvGuard], Episode], task_id: str, seed: int, limit_s: float) -> Episode:
        """Begin an episode in the environment; in the thread."""
        assert self._env is not None
        episode = make(self._env, self._envs.guard(self._env, task_id, seed, limit_s))
        self.loop.run(episode.begin())
        return episode

    def stop(self) -> None:
        """Have the thread close the environment and end; returns at once."""
        self._pool.submit(self._close)
        self._pool.submit(self.loop.close)
        self._pool.shutdown(wait=False)

    def _close(self) -> None:
        if self._env is not None:
            self.loop.run(self._envs.discard(self._env))


@dataclass
class Session:
    """An episode and what has been shown of it.

    Attributes:
        turns: as `play` returned them.
        label: checkpoint that answered last.
    """

    settings: Settings
    request: SessionRequest
    worker: Worker
    episode: Episode
    opening: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    turns: list[dict[str, Any]] = field(default_factory=list)
    label: str = ""
    last_used: float = field(default_factory=time.monotonic)

    def view(self) -> dict[str, Any]:
        """Return all that a client may see."""
        trajectory = self.episode.trajectory
        return {
            "id": self.id,
            "env": self.settings.env,
            "task_id": trajectory.task_id,
            "seed": self.request.seed,
            "temperature": self.episode.limits.temperature,
            "context": self.settings.context,
            "max_turns": self.episode.limits.max_turns,
            "checkpoint": self.label,
            "task": self.opening,
            "turns": self.turns,
            "observation": self.episode.answer.observation,
            "done": bool(trajectory.end_cause),
            "outcome": self.outcome(),
        }

    def outcome(self) -> dict[str, Any] | None:
        """Return how the episode ended; None while it goes on."""
        trajectory = self.episode.trajectory
        if not trajectory.end_cause:
            return None
        return {
            "success": trajectory.success,
            "return": trajectory.episode_return,
            "end_cause": trajectory.end_cause,
            "metrics": trajectory.metrics,
        }

    def play(self, action: str | None) -> dict[str, Any]:
        """Play one turn in the session's thread; it is on record even when nobody waits for it any more."""
        before = len(self.episode.trajectory.steps)
        self.worker.loop.run(self.episode.turn(action))
        return self._record(before, "agent" if action is None else "human")

    def _record(self, steps_before: int, by: str) -> dict[str, Any]:
        """Describe the turn that was played; nothing was said where the context had no room for a turn."""
        answer, steps = self.episode.answer, self.episode.trajectory.steps
        played = steps[steps_before] if len(steps) > steps_before else None
        info: dict[str, Any] = {"by": by, "checkpoint": self.label if by == "agent" else ""}
        if played is not None:
            info |= {"valid": played.valid, "prompt_tokens": len(played.prompt_ids)}
            info |= {"response_tokens": len(played.response_ids), "finish_reason": played.finish_reason}
        info |= {"metrics": answer.metrics, "outcome": self.outcome()}
        turn = {
            "observation": answer.observation,
            "text": played.action if played else "",
            "action": question_of(played.action) if played else "",
            "reward": played.reward if played else 0.0,
            "done": info["outcome"] is not None,
            "info": info,
        }
        self.turns.append(turn)
        return turn
