"""Rollouts of black-box agents: one agent and one gateway session per episode, whose calls become a trajectory.

The agent runs its task by itself, in a process or as a coroutine. The gateway answers its requests, with the seeds and
prompts that the built-in loop would use for the same dialogue. When the agent ends, its session is closed and its
calls become the trajectory's steps. The reward of the agent's result goes to the step with the final answer. Rewards of
single calls stay with these calls.

``end_cause`` is ``terminated``, ``env_truncated`` (reported by the agent), ``max_turns`` or ``context_length`` (a call
was refused), ``agent_timeout`` (trained on like the others), ``truncated_by_rule: ...`` (T3), or
``agent_error: exit code 3: its last line of output``. The last one is excluded from training, or trained on with
``env.error_reward``. An episode whose engine failed is unfinished.

T3 (`Steering`): the truncation rule looks at an answered call when the next one arrives. Only then is it known that the
episode continues, and whether the turn made progress. The agent reports that in its next request, as
``metadata: {"progress": "true"}`` (or ``"false"``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.chat.template import ChatTemplate
from rl_agents.config import Settings
from rl_agents.data.failures import AGENT_ERROR
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.data.tree import last_word
from rl_agents.envs.base import env_spec, part, read_env_options
from rl_agents.envs.options import AgentKeys
from rl_agents.gateway.answers import PendingRequest
from rl_agents.gateway.calls import ModelCall, RequestIdentity
from rl_agents.gateway.gateway import Gateway, GatewayLimits, SessionTrace
from rl_agents.gateway.process_supervisor import Agent, AgentClient, AgentEnd
from rl_agents.gateway.results import NO_REWARD, AgentResult
from rl_agents.gateway.server import serving
from rl_agents.gateway.sessions import OpenSession
from rl_agents.inference.base import Engine, EngineError
from rl_agents.rollout.agent_loop import Rollouts, end_by_rule, rollouts_of
from rl_agents.rollout.recording import CallsOnly, Recorder
from rl_agents.rollout.request_queue import gathered
from rl_agents.rollout.truncation import ANSWER_INSTRUCTION, Rule, Truncation, TurnFacts, reasons
from rl_agents.rollout.turns import Limits, episode_turns
from rl_agents.store.records import SessionStart
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.web.errors import ApiError

PROGRESS = {"true": True, "false": False}


@dataclass(eq=False)
class Steering:
    """The truncation rule of one session.

    Attributes:
        after: what happens when it fires, see `rl_agents.rollout.agent_loop`.
        turn: after which it fired; 0: it has not fired.
        stopped: the agent was stopped when it fired.
    """

    rule: str = ""
    after: str = ""
    instruction: str = ""
    state: Rule | None = None
    turn: int = 0
    stopped: bool = False
    _answered: int = 0
    _last: Step | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fired(self) -> bool:
        return self.turn > 0

    def answered(self, step: Step) -> None:
        self._answered += 1
        self._last = step

    def fires(self, call: ModelCall) -> bool:
        """Apply the rule to the last answer, from which the agent continues now; once for each answer."""
        step, self._last = self._last, None
        if step is None or self.state is None or self.fired:
            return False
        metadata = call.options.get("metadata") or {}
        progress = PROGRESS.get(str(metadata.get("progress")).lower()) if isinstance(metadata, dict) else None
        if self.state.fires(TurnFacts(self._answered, step.valid, progress, step.action)):
            self.turn = self._answered
        return self.fired

    def stop(self) -> None:
        self.stopped = True
        self._stop.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, AgentEnd]) -> AgentEnd:
        """Return how the agent's run ends; `stop` cancels it."""
        running = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else AgentEnd()
        finally:
            stopping.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running})


class WatchedGateway(Gateway):
    """A gateway whose sessions may be cut by a truncation rule."""

    def __init__(
        self, engine: Engine, template: ChatTemplate, limits: GatewayLimits, pool: PoolSink | None = None
    ) -> None:
        super().__init__(engine, template, limits, pool)
        self._watched: dict[str, Steering] = {}
        self.on_call = self._answered

    def watch(self, session: str, truncation: Truncation | None, seed: int, instruction: str) -> Steering:
        """Apply a truncation rule to a session; None: no rule.

        Args:
            instruction: the text that makes the agent's model answer.
        """
        steering = Steering()
        if truncation is not None:
            steering = Steering(truncation.name, truncation.after, instruction, truncation.start(seed))
        self._watched[session] = steering
        return steering

    async def close(self, session: str, reason: str = "") -> SessionTrace:
        self._watched.pop(session, None)
        return await super().close(session, reason)

    def _answered(self, session: str, step: Step) -> None:
        if session in self._watched:
            self._watched[session].answered(step)

    def begin(self, session: str, call: ModelCall, identity: RequestIdentity) -> PendingRequest:
        steering, open_session = self._watched.get(session), self.sessions.get(session)
        # A retry does not continue from the last answer.
        if steering and open_session and open_session.earlier(identity) is None and steering.fires(call):
            if steering.after != "force_answer":
                steering.stop()
                raise ApiError(410, f"the session was cut by the rule {steering.rule}", "session_over")
            self.steer(session, steering.instruction)
        return super().begin(session, call, identity)


#: Causes of unanswered requests for which the agent is not responsible.
OURS = ("engine_error", "timeout", "internal_error")


@dataclass(frozen=True, slots=True)
class BlackBox:
    """An agent and its tasks.

    Attributes:
        max_turns: of the environment whose tasks it runs, as the agent receives it.
        env: the environment's name.
    """

    agent: Agent
    options: AgentKeys
    max_turns: int
    env: str = "blackbox"

    def tasks(self, name: str) -> Any:
        """Return a function of the environment's module ``tasks``, or None."""
        return part(env_spec(self.env), "tasks", name)


def load_black_box(settings: Settings) -> BlackBox | None:
    """Return the agent of a run; None if the built-in loop runs.

    Raises:
        InputError: the agent cannot be used.
    """
    spec = env_spec(settings.env)
    if not spec.agent:
        return None
    options = read_env_options(spec, settings.env_options)
    return BlackBox(part(spec, "agents", "load_agent")(options), options, episode_turns(settings), spec.name)


async def collect_blackbox(
    specs: Sequence[EpisodeSpec], box: BlackBox, engine: Engine, template: ChatTemplate, limits: Limits,
    recorder: Recorder | None = None, places: asyncio.Semaphore | None = None,
) -> Rollouts:  # fmt: skip
    """Run all episodes, ``agent_concurrency`` at once, with the result of `agent_loop.collect_episodes`.

    Args:
        recorder: writes calls to the pool, and serves them again after a crash; None: nothing is recorded.
        places: the concurrency limit, shared with other batches; None: one for this batch.
    """
    pool = None if recorder is None else CallsOnly(recorder)
    gateway = WatchedGateway(engine, template, gateway_limits(box.options, limits), pool)
    places = places or asyncio.Semaphore(box.options.agent_concurrency)
    groups: dict[int, list[EpisodeSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.group_id, []).append(spec)
    async with serving(gateway) as url:
        played = [_play(spec, groups[spec.group_id], box, gateway, url, limits, places, recorder) for spec in specs]
        results = await gathered(played)
    return rollouts_of(specs, [(r, _too_long(r, limits)) if isinstance(r, Trajectory) else r for r in results])


def _too_long(trajectory: Trajectory, limits: Limits) -> str:
    if trajectory.end_cause != "context_length" or trajectory.steps:
        return ""
    return f"no first prompt fits max_model_len={limits.max_model_len} ({trajectory.task_id})"


def gateway_limits(options: AgentKeys, limits: Limits) -> GatewayLimits:
    """Return the gateway's limits, equal to those of the built-in loop."""
    same = {name: getattr(limits, name) for name in ("max_model_len", "max_response_tokens", "temperature", "top_p")}
    return GatewayLimits(
        **same, reasoning=options.reasoning, max_calls=limits.max_turns, request_timeout_s=options.agent_timeout_s,
        close_wait_s=0.0,  # an agent that has ended waits for no answer
    )  # fmt: skip


async def _play(
    spec: EpisodeSpec, group: Sequence[EpisodeSpec], box: BlackBox, gateway: WatchedGateway, url: str, limits: Limits,
    places: asyncio.Semaphore, recorder: Recorder | None,
) -> Trajectory:  # fmt: skip
    """Run one episode.

    Raises:
        EngineError: a request has no answer, for which the agent is not responsible.
        InputError: there is no such task.
    """
    task_id = spec.task_id.removeprefix(limits.task_prefix)
    task = box.tasks("task_payload")(task_id, box.options, box.max_turns)
    words = box.tasks("answer_words")
    words = (words(box.options) if words else "") or ANSWER_INSTRUCTION
    session = f"s{spec.seed:016x}"
    async with places:
        opening = SessionStart(session, spec.group_id, spec.member, spec.seed, spec.task_id, task=task)
        seeds = (step_seed(spec.seed, number) for number in range(limits.max_turns))
        key = gateway.open(opening, [] if recorder is None else recorder.again(seeds))
        steering = gateway.watch(session, limits.truncation, spec.seed, words)
        try:
            given = AgentClient(session, key, url, task, spec.seed, f"g{group[0].seed:016x}", len(group))
            end = await steering.unless_stopped(box.agent.run(given, box.options.agent_timeout_s))
            problem = unanswered(gateway.sessions[session])
        finally:
            trace = await gateway.close(session)
    if problem:
        raise EngineError(problem)
    for step in trace.steps:
        step.call = step.call if recorder is None else recorder.name(step.call)
    return trajectory_of(spec, trace, end, steering, limits, box.options.error_reward)


def unanswered(session: OpenSession) -> str:
    """Return why a request got no answer from us, also after retries; empty if all were answered."""
    for attempts in session.requests.values():
        last = attempts[-1].task
        error = last.exception() if last.done() and not last.cancelled() else None
        if error is not None and getattr(error, "code", "") in OURS:
            return str(error)
    return ""


def trajectory_of(
    spec: EpisodeSpec, trace: SessionTrace, end: AgentEnd, steering: Steering, limits: Limits,
    error_reward: float | None = None,
) -> Trajectory:  # fmt: skip
    """Make a trajectory of an agent's session and of its end.

    Args:
        error_reward: replaces the result's reward if the agent failed; None: such an episode is ``failed``.
    """
    trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, steps=trace.steps)
    result = end.result or AgentResult()
    reward = trace.reward if result.reward is None else result.reward
    rewarded = reward is not None or any(step.reward for step in trace.steps)
    _end(trajectory, trace, end, rewarded, limits)
    erred = trajectory.end_cause.startswith(AGENT_ERROR)
    if erred and error_reward is not None and trajectory.steps:
        reward, trajectory.failed, trajectory.terminated = error_reward, False, True
    if trajectory.steps:
        trajectory.steps[last_word(trajectory)].reward += reward or 0.0
    zeroed = steering.fired and not trajectory.failed and _end_by_rule(trajectory, trace, end, steering)
    trajectory.metrics = dict(result.metrics)
    trajectory.facts |= _facts(result, trace)
    won = trajectory.episode_return > 0 if result.success is None else result.success
    trajectory.success = bool(trajectory.steps) and not (trajectory.failed or erred or zeroed) and won
    return trajectory


def _end(trajectory: Trajectory, trace: SessionTrace, end: AgentEnd, rewarded: bool, limits: Limits) -> None:
    result = end.result or AgentResult()
    cause = _cut(trace, end, result, len(trajectory.steps) >= limits.max_turns)
    if cause == "agent_timeout" and not trajectory.steps:
        trajectory.end_cause, trajectory.failed = "agent_timeout: it made no request", True
    elif cause:
        trajectory.end_cause, trajectory.truncated = cause, True
    elif problem := end.error or _lacking(trajectory, rewarded):
        trajectory.end_cause, trajectory.failed = f"{AGENT_ERROR}: {problem}", True
    else:
        trajectory.end_cause, trajectory.terminated = "terminated", True


def _cut(trace: SessionTrace, end: AgentEnd, result: AgentResult, full: bool) -> str:
    if end.timed_out:
        return "agent_timeout"
    if trace.end == "context_length":
        return "context_length"
    if trace.end == "max_calls" or (result.truncated and full):
        return "max_turns"
    if trace.end == "steered":
        return "steered"
    return "env_truncated" if result.truncated else ""


def _lacking(trajectory: Trajectory, rewarded: bool) -> str:
    if not trajectory.steps:
        return "it asked the model nothing"
    return "" if rewarded else NO_REWARD


def _end_by_rule(trajectory: Trajectory, trace: SessionTrace, end: AgentEnd, steering: Steering) -> bool:
    """End a truncated episode like the built-in loop; return whether its return is set to 0."""
    answered = end.result is not None and not end.error and not end.result.truncated and not end.timed_out
    if steering.stopped:
        outcome, zero = ("return 0", True) if steering.after == "zero" else ("prefix kept", False)
    elif trace.end == "context_length":
        outcome, zero = "no room to answer", True
    else:
        outcome, zero = ("answered", False) if answered else ("no answer", True)
    why = reasons(steering.state)
    trajectory.facts["truncation"] = {"rule": steering.rule, "turn": steering.turn, "because": why}
    end_by_rule(trajectory, outcome, zero)
    return zero


def _facts(result: AgentResult, trace: SessionTrace) -> dict[str, object]:
    facts: dict[str, object] = {"references": result.references, "points": result.points, "gateway": trace.facts()}
    found = {name: value for name, value in facts.items() if value}
    return found if result.evidence is None else {**found, "evidence": result.evidence}
