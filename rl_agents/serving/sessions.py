"""Agent sessions: the trained agent, or a person in its place, acts in an environment turn by turn.

A session is an episode of `rl_agents.rollout.agent_loop`: prompts, exact tokens and context are those of training.
Each session's environment has a thread of its own (`rl_agents.rollout.env_worker`), or a process where it declares one:
environments may block. Time limits are those of training.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field

from rl_agents.chat.template import ContextPolicy
from rl_agents.config import Settings
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import TextEnv, env_spec, plain_options, read_env_options, task_ids
from rl_agents.errors import InputError, unknown
from rl_agents.inference.base import Completion, Sampling
from rl_agents.rollout.agent_loop import Episode
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.env_pool import EnvPool, env_pool
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


@dataclass
class Session:
    """An episode and what has been shown of it.

    Attributes:
        turns: as `play` returned them.
        label: checkpoint that answered last.
    """

    settings: Settings
    request: SessionRequest
    envs: EnvPool
    episode: Episode
    opening: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    turns: list[dict[str, Any]] = field(default_factory=list)
    label: str = ""
    last_used: float = field(default_factory=time.monotonic)
    turn: asyncio.Task[dict[str, Any]] | None = None

    @property
    def busy(self) -> bool:
        return self.turn is not None and not self.turn.done()

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
        """Return how the episode ended; None while it continues."""
        trajectory = self.episode.trajectory
        if not trajectory.end_cause:
            return None
        return {
            "success": trajectory.success,
            "return": trajectory.episode_return,
            "end_cause": trajectory.end_cause,
            "metrics": trajectory.metrics,
        }

    async def play(self, action: str | None) -> dict[str, Any]:
        """Play one turn; it is on record even if the client has left."""
        before = len(self.episode.trajectory.steps)
        await self.episode.turn(action)
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


#: Seconds for a turn that is given up to let go of its environment.
LEAVE_S = 5.0


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
        #: Of sessions that are over: the task that closes the environment, which may hang in a call.
        self._ended: dict[EnvPool, asyncio.Task[None]] = {}
        #: Turns that were in progress when their session was closed.
        self._left: dict[EnvPool, asyncio.Task[dict[str, Any]]] = {}
        self._opening = 0

    @property
    def count(self) -> int:
        """Sessions that hold a place, those being opened and those that hang included."""
        self._ended = {envs: task for envs, task in self._ended.items() if envs.hanging or not task.done()}
        self._left = {envs: turn for envs, turn in self._left.items() if not turn.done()}
        return len(self._open) + self._opening + len({envs for envs in self._ended if envs.hanging} | self._left.keys())

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
        self._opening += 1
        try:
            session = await self._opened(settings, request, generate)
        except (InputError, EnvFailure) as error:
            status, code = (400, "invalid_value") if isinstance(error, InputError) else (502, "environment_failed")
            raise ApiError(status, f"{settings.env}: {public(error)}", code) from None
        finally:
            self._opening -= 1
        session.label = label
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
        if session.busy:
            raise ApiError(409, "a turn of this session is in progress", "session_busy")
        patience = self._options.request_timeout_s + self._settings.env_timeout_s
        session.turn = asyncio.create_task(session.play(action))
        try:
            done, _ = await asyncio.wait({session.turn}, timeout=patience)
            if not done:
                session.turn.cancel()
                await asyncio.wait({session.turn}, timeout=LEAVE_S)
                self._end(session)
                message = f"{session.settings.env} did not answer within {patience:g} s; the session is closed"
                raise ApiError(504, message, "timeout")
            return session.turn.result()
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
        """Close the sessions that were not used for ``session_idle_s``."""
        limit = time.monotonic() - self._options.session_idle_s
        for session in [s for s in self._open.values() if s.last_used < limit and not s.busy]:
            self._end(session)

    async def close_all(self) -> None:
        for session in list(self._open.values()):
            self._end(session)
        for turn in self._left.values():
            turn.cancel()
        if self._ended:
            await asyncio.wait(self._ended.values(), timeout=LEAVE_S)

    def _end(self, session: Session) -> None:
        """Let go of a session; one with a turn in progress, or a hanging environment, keeps its place until then."""
        self._open.pop(session.id, None)
        if session.turn is not None:
            self._left[session.envs] = session.turn
        self._let_go(session.envs, session.episode.env)

    def _let_go(self, envs: EnvPool, env: TextEnv) -> None:
        self._ended[envs] = asyncio.create_task(envs.discard(env))

    def _session_settings(self, request: SessionRequest) -> Settings:
        """Return the run's settings with the session's environment and options."""
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
        if "process" not in (settings.env_blocking, env_spec(name).blocking):
            settings.env_blocking = "thread"
        return settings

    async def _opened(self, settings: Settings, request: SessionRequest, generate: Generate) -> Session:
        """Have the environment made and reset, within the limits of a run; raises as `create` does."""
        envs = env_pool(settings)
        try:
            env = await envs.take()
        except BaseException:  # one that is not made in time holds its thread
            self._ended[envs] = asyncio.create_task(envs.close())
            raise
        try:
            task = request.task_id or await _task(settings, request)
            temperature = settings.eval_temperature if request.temperature is None else request.temperature
            limits = Limits.from_settings(settings).for_evaluation(temperature)
            engine: Any = SimpleNamespace(generate=generate)
            guard = envs.guard(env, task, request.seed, limits.env_timeout_s)
            spec = EpisodeSpec(task, 0, 0, request.seed)
            episode = Episode(spec, env, engine, self._context, limits, guard)
            await episode.begin()
            if episode.trajectory.failed:
                raise EnvFailure(episode.trajectory.end_cause)
        except BaseException:  # a client that has left among them
            self._let_go(envs, env)
            raise
        return Session(settings, request, envs, episode, episode.answer.chat or episode.answer.observation)


async def _task(settings: Settings, request: SessionRequest) -> str:
    """Return the task that the seed chooses, within the time that an environment has to start."""
    limit = settings.env_start_timeout_s
    listing = asyncio.to_thread(call_env, 0, task_ids, settings.env, request.split, settings.env_options)
    try:
        tasks: list[str] = await asyncio.wait_for(listing, limit or None)
    except TimeoutError:
        raise EnvFailure(f"env_timeout: tasks: no answer within {limit:g} s (env_start_timeout_s)") from None
    return tasks[request.seed % len(tasks)]
