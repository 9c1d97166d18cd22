"""Branching: several continuations of one state, which are sampled concurrently.

A runner keeps no state between requests. A `BranchPoint` describes how to reach the state again, by the environment's
``restore(snapshot)`` or by a seeded reset and a replay of the actions. It also has the dialogue so far. Siblings
therefore share one prompt, which the engine computes once. The same request with the same seeds has the same result on
every runner, so that a lost runner loses nothing.

An environment that can be copied has two methods. ``snapshot()`` returns the episode's state as a small, immutable
object that can be pickled. ``restore(snapshot)`` continues from it, in this environment or in another one with the same
options, before or after a reset. A snapshot contains all generators that the episode draws from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.chat.template import Dialogue
from rl_agents.data.trajectory import Step
from rl_agents.envs.base import TextEnv
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_reset, read_step
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.request_queue import Failures
from rl_agents.rollout.turns import Limits, Player, end_cause, is_success

Branching = Literal["auto", "snapshot", "replay"]


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A state to branch at.

    Attributes:
        actions: responses that lead from the reset to the state.
        dialogue: that the policy has read; None before the start state was seen.
        snapshot: of the environment in this state; None if there is none.
        call: the name of the last call before the state in the pool; 0: none.
    """

    task_id: str
    seed: int
    actions: tuple[str, ...] = ()
    dialogue: Dialogue | None = None
    anchor: str = ""
    episode_return: float = 0.0
    snapshot: Any = field(default=None, repr=False)
    call: int = 0


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """A request to sample one child per seed; without seeds, only to observe the state.

    Attributes:
        group_id: number of the request and of its `Expansion`.
    """

    group_id: int
    point: BranchPoint
    seeds: tuple[int, ...] = ()


@dataclass(slots=True)
class Child:
    """One continuation: a sampled step and its result.

    Attributes:
        end_cause: why the episode ends here, as in `Trajectory`; empty if it continues.
        failed: the environment failed, as ``end_cause`` describes.
        snapshot: of the state that was reached, if the episode continues.
    """

    step: Step
    answer: EnvReply
    end_cause: str = ""
    failed: bool = False
    success: bool = False
    snapshot: Any = field(default=None, repr=False)


@dataclass(slots=True)
class Expansion:
    """The result of a `BranchSpec`.

    Attributes:
        children: in the order of the seeds.
        answer, snapshot: of the state itself, if no child was requested.
        end_cause: why there are no children: ``context_length``, or how the environment failed.
        env_steps: sampled actions that the environment executed; equal actions are executed once.
        replayed_steps: steps that were executed to reach the state.
    """

    group_id: int
    children: list[Child] = field(default_factory=list)
    answer: EnvReply | None = None
    snapshot: Any = field(default=None, repr=False)
    end_cause: str = ""
    failed: bool = False
    prompt_tokens: int = 0
    env_steps: int = 0
    replayed_steps: int = 0


@dataclass(slots=True)
class Expansions(Failures):
    """The results of a list of requests; a request whose engine failed has none, and has to be repeated."""

    expansions: list[Expansion] = field(default_factory=list, repr=False)

    def by_job(self) -> Mapping[Hashable, Expansion]:
        return {expansion.group_id: expansion for expansion in self.expansions}


def takes_snapshots(env: TextEnv, branching: Branching) -> bool:
    """Whether this environment is branched by snapshots instead of replay.

    Raises:
        InputError: snapshots are required, and it has none.
    """
    able = all(callable(getattr(env, name, None)) for name in ("snapshot", "restore"))
    if branching == "snapshot" and not able:
        raise InputError("branching=snapshot: the environment has no snapshot() and restore(); use branching=replay")
    return able and branching != "replay"


async def restore(env: TextEnv, guard: EnvGuard, snapshot: Any) -> None:
    """Restore the environment; the global generators begin again with the seed. Raises like `EnvGuard.call`."""
    guard.generators.reset()
    await guard.call(env.restore, snapshot)  # type: ignore[attr-defined]


async def replay(
    env: TextEnv, guard: EnvGuard, seed: int, task_id: str, actions: Sequence[str], longest: int = 0,
    between: Callable[[], Awaitable[None]] | None = None,
) -> list[tuple[EnvReply, Mapping[str, Any]]]:  # fmt: skip
    """Reset and act; return the answers with their ``info``. Raises like `EnvGuard.call`.

    Args:
        longest: characters of an observation, see `read_reset`.
        between: awaited before each action.
    """
    guard.generators.reset()
    answer: Any = await guard.call(env.reset, seed=seed, options={"task_id": task_id})
    found = [(read_reset(answer, longest, env), answer[-1])]
    for action in actions:
        if between is not None:
            await between()
        answer = await guard.call(env.step, action)
        found.append((read_step(answer, longest, env), answer[-1]))
    return found


class Position:
    def __init__(self, point: BranchPoint, pool: EnvPool, branching: Branching, limits: Limits) -> None:
        self.point, self.pool, self.branching, self.limits = point, pool, branching, limits
        self.guard: EnvGuard
        self.env: TextEnv | None = None
        self.snapshot = point.snapshot
        self.replayed_steps = 0
        self._there = False

    async def reach(self) -> TextEnv:
        """Return the environment in the state.

        Raises:
            EnvFailure: it failed, or the replay led to a different state than the first time.
            InputError: see `takes_snapshots`.
        """
        if self.env is None:
            self.env = await self.pool.take()
            point = self.point
            self.guard = self.pool.guard(self.env, point.task_id, point.seed, self.limits.env_timeout_s)
        if not self._there:
            if self.snapshot is not None and self.branching != "replay":
                await restore(self.env, self.guard, self.snapshot)
            else:
                point, longest = self.point, self.limits.max_observation_characters
                replayed = await replay(self.env, self.guard, point.seed, point.task_id, point.actions, longest)
                self.replayed_steps += len(point.actions)
                self.answer = replayed[-1][0]
                self._check(self.answer)
                self.snapshot = await self.take_snapshot()
        self._there = True
        return self.env

    async def take_snapshot(self) -> Any:
        """Return a snapshot of the environment; None if it is branched by replay."""
        assert self.env is not None
        if not takes_snapshots(self.env, self.branching):
            return None
        return await self.guard.call(self.env.snapshot)  # type: ignore[attr-defined]

    def moved(self) -> None:
        self._there = False

    async def broken(self) -> None:
        if self.env is not None:
            env, self.env = self.env, None
            await self.pool.discard(env)
        self._there = False

    def leave(self) -> None:
        if self.env is not None:
            self.pool.give_back(self.env)
        self.env = None

    def _check(self, answer: EnvReply) -> None:
        dialogue = self.point.dialogue
        if dialogue is None:
            return
        if (answer.observation, answer.anchor) != (dialogue.observation, self.point.anchor):
            steps = len(self.point.actions)
            raise EnvFailure(f"env_diverged: the replay of {steps} actions led to another state than the first time")


async def expand(spec: BranchSpec, pool: EnvPool, player: Player, branching: Branching) -> Expansion:
    """Answer one request.

    Raises:
        EngineError: the engine failed.
        InputError: the environment reports a user error.
    """
    position = Position(spec.point, pool, branching, player.limits)
    expansion = Expansion(spec.group_id)
    try:
        if spec.seeds:
            await _sample(spec, position, player, expansion)
        else:
            await position.reach()
            expansion.answer, expansion.snapshot = position.answer, position.snapshot
    except EnvFailure as failure:
        await position.broken()
        expansion.end_cause, expansion.failed = str(failure), True
    except InputError:
        await position.broken()
        raise
    finally:
        position.leave()  # in mid-episode, but the next user resets it
        expansion.replayed_steps = position.replayed_steps
    return expansion


async def _sample(spec: BranchSpec, position: Position, player: Player, expansion: Expansion) -> None:
    """Sample all siblings at once, then execute them one after the other, each from the same state."""
    dialogue = spec.point.dialogue
    assert dialogue is not None, "the start state is looked at before anything is sampled there"
    env = await position.reach()
    prompt_ids = await player.prompt(env, position.guard, dialogue)
    expansion.prompt_tokens = len(prompt_ids)
    if not player.has_room(prompt_ids):
        expansion.end_cause = "context_length"
        return
    completions = await asyncio.gather(
        *(player.complete(prompt_ids, seed, spec.point.call) for seed in spec.seeds), return_exceptions=True
    )
    before = EnvReply(dialogue.observation, anchor=spec.point.anchor)
    steps: list[Step] = []
    for completion in completions:
        if isinstance(completion, BaseException):
            raise completion
        steps.append(player.step(prompt_ids, completion, before, dialogue.chat))
    first_of: dict[str, Step] = {}
    for step in steps:
        first_of.setdefault(step.action, step)
    executed = {action: await _execute(step, position, player) for action, step in first_of.items()}
    expansion.env_steps = len(executed)
    expansion.children = [_with_step(executed[step.action], step) for step in steps]


async def _execute(step: Step, position: Position, player: Player) -> Child:
    point = position.point
    try:
        env = await position.reach()
        position.moved()
        answer = await player.act(env, position.guard, step)
        cause = end_cause(answer, len(point.actions) + 1, player.limits.max_turns)
        won = bool(cause) and is_success(answer, point.episode_return + step.reward)
        snapshot = None if cause else await position.take_snapshot()
    except EnvFailure as failure:
        await position.broken()
        return Child(step, EnvReply(""), str(failure), failed=True)
    return Child(step, answer, cause, success=won, snapshot=snapshot)


def _with_step(child: Child, step: Step) -> Child:
    """Return the same outcome for a sibling with the same action, perhaps in other tokens."""
    if child.step is step:
        return child
    step.reward, step.valid, step.metrics = child.step.reward, child.step.valid, child.step.metrics
    return Child(step, child.answer, child.end_cause, child.failed, child.success, child.snapshot)


async def expand_all(specs: Sequence[BranchSpec], pool: EnvPool, player: Player, branching: Branching) -> Expansions:
    with pool.watch.batch({spec.point.task_id for spec in specs}):
        answers = await asyncio.gather(*(expand(s, pool, player, branching) for s in specs), return_exceptions=True)
    result = Expansions()
    for answer in answers:
        if isinstance(answer, Expansion):
            result.expansions.append(answer)
        else:
            result.note(answer)
    result.input_error = result.input_error or _too_long(specs, result.expansions, player)
    return result


def _too_long(specs: Sequence[BranchSpec], expansions: Sequence[Expansion], player: Player) -> str:
    starts = {spec.group_id: spec.point.task_id for spec in specs if spec.seeds and not spec.point.actions}
    met = [e for e in expansions if e.group_id in starts]
    if not met or any(e.end_cause != "context_length" for e in met):
        return ""
    limit = player.limits.max_model_len
    return (
        f"prompt of {met[0].prompt_tokens} tokens does not fit max_model_len={limit} (task {starts[met[0].group_id]})"
    )
