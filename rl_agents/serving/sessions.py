"""Agent sessions: the trained agent, or a person instead, acts in an environment turn by turn.

A session is an episode of `rl_agents.rollout.agent_loop`, with the prompts, exact tokens, context and time limits of
training. Its environment has its own thread (`rl_agents.rollout.env_worker`), since environments may block.
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
from rl_agents.envs.base import env_spec, task_ids
from rl_agents.errors import InputError
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
        task_id: a task of the environment; None: ``seed`` chooses one from ``split``.
        seed: of the sampling.
        temperature: None: the run's ``eval_temperature``.
    """

    task_id: str | None = Field(None, max_length=1024)
    split: Literal["train", "test"] = "test"
    seed: int = Field(0, ge=0, lt=2**63)
    temperature: float | None = Field(None, ge=0, le=2)


class StepRequest(Body):
    """``POST /agent/sessions/ID/step``: without ``action`` the agent acts, otherwise a person."""

    action: str | None = Field(None, max_length=16_384)


Generate = Callable[[Sequence[int], Sampling], Coroutine[Any, Any, Completion]]


@dataclass
class AgentSession:
    """An episode and its turns so far.

    Attributes:
        turns: as `play` returned them.
        label: checkpoint of the last answer.
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
        trajectory, limits = self.episode.trajectory, self.episode.limits
        return {
            "id": self.id,
            "env": self.settings.env,
            "task_id": trajectory.task_id,
            "seed": self.request.seed,
            "temperature": limits.temperature,
            "context": self.settings.context,
            "max_turns": limits.max_turns,
            "checkpoint": self.label,
            "task": self.opening,
            "turns": self.turns,
            "observation": self.episode.answer.observation,
            "done": bool(trajectory.end_cause),
            "outcome": self.outcome(),
        }

    def outcome(self) -> dict[str, Any] | None:
        """Return how the episode ended; None while it is running."""
        trajectory = self.episode.trajectory
        if not trajectory.end_cause:
            return None
        names = {"success": "success", "return": "episode_return", "end_cause": "end_cause", "metrics": "metrics"}
        return {name: getattr(trajectory, attribute) for name, attribute in names.items()}

    async def play(self, action: str | None) -> dict[str, Any]:
        """Run one turn; it is recorded even if the client disconnects. Without room in the context, it has no text."""
        steps = self.episode.trajectory.steps
        before, by = len(steps), "agent" if action is None else "human"
        await self.episode.turn(action)
        answer, outcome = self.episode.answer, self.outcome()
        written = steps[before:]
        step = written.pop() if written and not written[-1].is_summary else None
        info: dict[str, Any] = {"by": by, "checkpoint": self.label if by == "agent" else ""}
        if written:
            info["summary"] = written[0].action
        if step is not None:
            info |= {"valid": step.valid, "prompt_tokens": len(step.prompt_ids)}
            info |= {"response_tokens": len(step.response_ids), "finish_reason": step.finish_reason}
        turn = {
            "observation": answer.observation,
            "text": step.action if step else "",
            "action": question_of(step.action) if step else "",
            "reward": step.reward if step else 0.0,
            "done": outcome is not None,
            "info": {**info, "metrics": answer.metrics, "outcome": outcome},
        }
        self.turns.append(turn)
        return turn


#: Seconds that a canceled turn has to release its environment.
LEAVE_S = 5.0


class Sessions:
    """All sessions of a server, with limits on number and idle time."""

    def __init__(self, options: ServingOptions, settings: Settings, context: ContextPolicy) -> None:
        self._options, self._context = options, context
        self._settings = copy.deepcopy(settings)
        self._settings.env_blocking = "thread"
        self._open: dict[str, AgentSession] = {}
        #: Of ended sessions: the task that closes the environment, which may hang in a call, and a running turn.
        self._ended: dict[EnvPool, list[asyncio.Task[Any]]] = {}
        self._opening = 0

    @property
    def count(self) -> int:
        """The number of used places, including sessions that are being opened or hang."""
        ended = self._ended.items()
        hanging = {envs for envs, (_, *turns) in ended if envs.hanging or not all(turn.done() for turn in turns)}
        self._ended = {envs: tasks for envs, tasks in ended if envs in hanging or not tasks[0].done()}
        return len(self._open) + self._opening + len(hanging)

    async def create(self, request: SessionRequest, generate: Generate, label: str) -> AgentSession:
        """Open a session and reset its environment; ``label`` is the served checkpoint.

        Raises:
            ApiError: 400 for an unknown task; 429 if all places are used; 502 if the environment fails, 503 if its
                module is missing.
        """
        self.sweep()
        if self.count >= self._options.max_sessions:
            raise ApiError(429, f"all {self._options.max_sessions} sessions are in use; close one", "too_many_sessions")
        try:
            env_spec(self._settings.env)
        except InputError as error:  # the server's machine lacks its module
            raise ApiError(503, public(error), "environment_missing") from None
        self._opening += 1
        try:
            session = await self._opened(request, generate)
        except (InputError, EnvFailure) as error:
            status, code = (400, "invalid_value") if isinstance(error, InputError) else (502, "environment_failed")
            raise ApiError(status, f"{self._settings.env}: {public(error)}", code) from None
        finally:
            self._opening -= 1
        session.label = label
        self._open[session.id] = session
        return session

    def get(self, session_id: str) -> AgentSession:
        """Return an open session, or raise an `ApiError` (404)."""
        self.sweep()
        if session_id not in self._open:
            raise ApiError(404, "no such session; idle sessions are closed", "session_not_found")
        session = self._open[session_id]
        session.last_used = time.monotonic()
        return session

    async def step(self, session_id: str, action: str | None) -> dict[str, Any]:
        """Run one turn: the agent's, or ``action`` instead.

        Raises:
            ApiError: 404; 409 if the episode has ended or a turn is in progress; 400 if ``action`` is too long; 504 if
                there is no answer; and the engine's errors, after which the turn can be repeated.
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
        """Close a session and its environment; raises as `get` does."""
        self._end(self.get(session_id))

    def sweep(self) -> None:
        """Close sessions that have been idle for ``session_idle_s``."""
        limit = time.monotonic() - self._options.session_idle_s
        for session in [s for s in self._open.values() if s.last_used < limit and not s.busy]:
            self._end(session)

    async def close_all(self) -> None:
        for session in list(self._open.values()):
            self._end(session)
        closing = [tasks[0] for tasks in self._ended.values()]
        for turn in [turn for tasks in self._ended.values() for turn in tasks[1:]]:
            turn.cancel()
        if closing:
            await asyncio.wait(closing, timeout=LEAVE_S)

    def _end(self, session: AgentSession) -> None:
        """Remove a session; its place stays used until its turn ends and its environment does not hang."""
        self._open.pop(session.id, None)
        turns = [] if session.turn is None else [session.turn]
        self._ended[session.envs] = [asyncio.create_task(session.envs.discard(session.episode.env)), *turns]

    async def _opened(self, request: SessionRequest, generate: Generate) -> AgentSession:
        """Make and reset the environment within the time limits of a run; raises as `create` does."""
        settings = self._settings
        envs = env_pool(settings)
        try:
            env = await envs.take()
        except BaseException:  # an environment that is not made in time keeps its thread
            self._ended[envs] = [asyncio.create_task(envs.close())]
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
        except BaseException:  # also if the client disconnects
            self._ended[envs] = [asyncio.create_task(envs.discard(env))]
            raise
        return AgentSession(settings, request, envs, episode, episode.answer.chat or episode.answer.observation)


async def _task(settings: Settings, request: SessionRequest) -> str:
    """Return the task that the seed chooses, within the start timeout of environments."""
    limit = settings.env_start_timeout_s
    listing = asyncio.to_thread(call_env, 0, task_ids, settings.env, request.split, settings.env_options)
    try:
        tasks: list[str] = await asyncio.wait_for(listing, limit or None)
    except TimeoutError:
        raise EnvFailure(f"env_timeout: tasks: no answer within {limit:g} s (env_start_timeout_s)") from None
    return tasks[request.seed % len(tasks)]
