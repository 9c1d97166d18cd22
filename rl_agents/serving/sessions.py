"""Agent sessions: the trained agent, or a person in its place, acts in an environment turn by turn.

A session is an episode of `rl_agents.rollout.agent_loop`: prompts, exact tokens and context are those of training.
Each session has a thread of its own, which has the environment made and makes all calls to it: environments may block,
and may hold objects that belong to a thread. Time limits are those of training.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import Field

from rl_agents.chat.template import ContextPolicy
from rl_agents.config import Settings
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import TextEnv, env_spec, plain_options, read_env_options, task_ids
from rl_agents.errors import InputError, unknown
from rl_agents.inference.base import Completion, EngineError, Sampling, Weights
from rl_agents.rollout.agent_loop import Episode
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.truncation import question_of
from rl_agents.rollout.turns import Limits
from rl_agents.serving.options import ServingOptions
from rl_agents.web.bodies import Body
from rl_agents.web.errors import ApiError, bad_request, public


class SessionRequest(Body):
    """``POST /agent/sessions``.

    Attributes:
        env: environment; None: the run's own.
        options: its own keys, over the run's.
        task_id: a task of it; None: the one that ``seed`` chooses from ``split``.
        seed: fixes the task, where none is named, and all sampling.
        temperature: None: the run's ``eval_temperature``.
    """

    env: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict, max_length=32)
    task_id: str | None = Field(None, max_length=1024)
    split: Literal["train", "test"] = "test"
    seed: int = Field(0, ge=0, lt=2**63)
    temperature: float | None = Field(None, ge=0, le=2)


class StepRequest(Body):
    """``POST /agent/sessions/ID/step``: without ``action`` the agent acts, with it a person does."""

    action: str | None = Field(None, max_length=16_384)


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


T = TypeVar("T")
#: Seconds that a limit is looked at later here than where the environment is called, if it is called elsewhere.
LATER_S = 0.5


class Sessions:
    """All sessions of a server, bounded in number and in idle time."""

    def __init__(self, options: ServingOptions, settings: Settings, context: ContextPolicy) -> None:
        """Begin without sessions.

        Args:
            options: the server's keys.
            settings: the run's, whose environment, context and limits sessions share.
            context: how prompts are built.
        """
        self._options, self._settings, self._context = options, settings, context
        self._open: dict[str, Session] = {}
        #: Threads of sessions that are over and that an environment has not given back yet.
        self._stuck: list[Worker] = []
        self._opening = 0

    @property
    def count(self) -> int:
        """Sessions that hold a place, those being opened and those that hang included."""
        self._stuck = [worker for worker in self._stuck if worker.hangs]
        return len(self._open) + self._opening + len(self._stuck)

    async def create(self, request: SessionRequest, generate: Generate, label: str) -> Session:
        """Open a session and reset its environment.

        Args:
            generate: samples an answer.
            label: checkpoint that is served.

        Raises:
            ApiError: 400 for an environment, option or task that is not there or not allowed; 429 when all places are
                taken; 502 when the environment fails.
        """
        settings = self._session_settings(request)
        self.sweep()
        if self.count >= self._options.max_sessions:
            raise ApiError(429, f"all {self._options.max_sessions} sessions are in use; close one", "too_many_sessions")
        worker, engine = Worker(settings), LoopEngine(generate, asyncio.get_running_loop())
        self._opening += 1
        try:
            episode = await self._opened(settings, request, engine, worker)
        except (InputError, EnvFailure) as error:
            self._let_go(worker)
            status, code = (400, "invalid_value") if isinstance(error, InputError) else (502, "environment_failed")
            raise ApiError(status, f"{settings.env}: {public(error)}", code) from None
        except asyncio.CancelledError:  # whoever asked has left
            self._let_go(worker)
            raise
        finally:
            self._opening -= 1
        session = Session(settings, request, worker, episode, label=label)
        session.opening = episode.answer.chat or episode.answer.observation
        self._open[session.id] = session
        return session

    def get(self, session_id: str) -> Session:
        """Return an open session.

        Raises:
            ApiError: 404.
        """
        self.sweep()
        if session_id not in self._open:
            raise ApiError(404, "no such session; idle sessions are closed", "session_not_found")
        session = self._open[session_id]
        session.last_used = time.monotonic()
        return session

    async def step(self, session_id: str, action: str | None) -> dict[str, Any]:
        """Play one turn: the agent's, or ``action`` in its place.

        Raises:
            ApiError: 404; 409 when the episode has ended or a turn is in progress; 400 when ``action`` is too long;
                504 when no answer comes; and what the engine raises, after which the turn may be played again.
        """
        session = self.get(session_id)
        if session.episode.trajectory.end_cause:
            raise ApiError(409, "the episode has ended", "episode_ended")
        if session.worker.busy:
            raise ApiError(409, "a turn of this session is in progress", "session_busy")
        patience = self._options.request_timeout_s + self._settings.env_timeout_s
        try:
            return await session.worker.call(patience, session.play, action)
        except TimeoutError:
            self._end(session)
            message = f"{session.settings.env} did not answer within {patience:g} s; the session is closed"
            raise ApiError(504, message, "timeout") from None
        except InputError as error:
            raise bad_request(public(error), "action") from None
        finally:
            session.last_used = time.monotonic()

    def close(self, session_id: str) -> None:
        """Close a session and its environment.

        Raises:
            ApiError: 404.
        """
        self._end(self.get(session_id))

    def sweep(self) -> None:
        """Close the sessions that nobody has used for ``session_idle_s``."""
        limit = time.monotonic() - self._options.session_idle_s
        for session in [s for s in self._open.values() if s.last_used < limit and not s.worker.busy]:
            self._end(session)

    def close_all(self) -> None:
        for session in list(self._open.values()):
            self._end(session)

    def _end(self, session: Session) -> None:
        """Let go of a session; one whose environment hangs keeps its place, and is closed when that returns."""
        self._open.pop(session.id, None)
        self._let_go(session.worker)

    def _let_go(self, worker: Worker) -> None:
        if worker.hangs:
            self._stuck.append(worker)
        worker.stop()

    def _session_settings(self, request: SessionRequest) -> Settings:
        """Return the run's settings with the session's environment and options.

        Raises:
            ApiError: 400 for what is not allowed.
        """
        settings, name = copy.deepcopy(self._settings), request.env or self._settings.env
        allowed = self._options.allowed_envs(self._settings.env)
        if name not in allowed:
            raise bad_request(str(unknown("environment", name, allowed)), "env")
        for option in request.options:
            if option not in self._options.allowed_options():
                message = f"clients may not set option '{option}' (server option session_options)"
                raise bad_request(message, f"options.{option}")
        try:
            if name != settings.env:
                settings.env, settings.env_options, settings.max_turns = name, {}, 0
            options = {**settings.env_options, **request.options}
            settings.env_options = plain_options(read_env_options(env_spec(name), options, chosen=request.options))
        except InputError as error:
            raise bad_request(public(error), "options") from None
        return settings

    async def _opened(self, settings: Settings, request: SessionRequest, engine: LoopEngine, worker: Worker) -> Episode:
        """Have the environment made and reset, within the limits of a run.

        Raises:
            EnvFailure: the environment failed, or took too long.
            InputError: no such task, or options that the environment refuses.
        """
        limit_s = settings.env_start_timeout_s
        task_id = await _within(limit_s, "start", " (env_start_timeout_s)", worker, _make, settings, request, worker)
        return await _within(
            settings.env_timeout_s, "reset", "", worker, self._begin, task_id, settings, request, engine, worker
        )

    def _begin(
        self, task_id: str, settings: Settings, request: SessionRequest, engine: LoopEngine, worker: Worker
    ) -> Episode:
        """Reset the environment; runs in the session's thread, and raises as `_opened` does."""
        temperature = settings.eval_temperature if request.temperature is None else request.temperature
        limits = Limits.from_settings(settings).for_evaluation(temperature)
        spec = EpisodeSpec(task_id, 0, 0, request.seed)

        def make(env: TextEnv, guard: EnvGuard) -> Episode:
            return Episode(spec, env, engine, self._context, limits, guard)

        episode = worker.episode(make, task_id, request.seed, limits.env_timeout_s)
        if episode.trajectory.failed:
            raise EnvFailure(episode.trajectory.end_cause)
        return episode


async def _within(limit_s: float, name: str, key: str, worker: Worker, call: Callable[..., T], *args: Any) -> T:
    """Make a call in the session's thread; where that thread calls the environment, nothing else limits its time."""
    try:
        return await worker.call(limit_s + LATER_S if limit_s else None, call, *args)
    except TimeoutError:
        raise EnvFailure(f"env_timeout: {name}: no answer within {limit_s:g} s{key}") from None


def _make(settings: Settings, request: SessionRequest, worker: Worker) -> str:
    """Make the environment and return the task; runs in the session's thread."""
    worker.make()
    if request.task_id is not None:
        return request.task_id
    tasks = call_env(0, task_ids, settings.env, request.split, settings.env_options)
    return tasks[request.seed % len(tasks)]
