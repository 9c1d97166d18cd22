"""The check before a search that branching returns to the same state."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import TextEnv
from rl_agents.errors import InputError
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.branching import Branching, replay, restore, takes_snapshots
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_step
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.request_queue import Failures
from rl_agents.rollout.turns import Player

#: Actions before the state that is restored.
PREFIX = 3
MAX_SNAPSHOT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reached:
    """A state, and the observations of the first way to it.

    Attributes:
        actions: those that lead to the state, and one more.
        shown: the observations after the reset and after each action.
    """

    spec: EpisodeSpec
    way: str
    actions: tuple[str, ...] = ()
    shown: tuple[Mapping[str, Any], ...] = ()
    snapshot: Any = None


@dataclass(slots=True)
class BranchingCheck(Failures):
    """Result of `check_branching`.

    Attributes:
        checked: the specs whose episodes were checked.
    """

    checked: list[EpisodeSpec] = field(default_factory=list)

    def by_job(self) -> Mapping[Hashable, EpisodeSpec]:
        return {spec: spec for spec in self.checked}


async def check_branching(
    specs: Sequence[EpisodeSpec], pool: EnvPool, player: Player, branching: Branching, env_name: str
) -> BranchingCheck:
    """Run an episode per spec, then reach one of its states repeatedly and compare what follows.

    Episodes that the environment fails are skipped, because training reports them.
    """
    rollouts = await collect_episodes(specs, pool, player.engine, player.context, player.limits)
    check = BranchingCheck(engine_errors=rollouts.engine_errors, input_error=rollouts.input_error)
    try:
        for spec, trajectory in rollouts.by_job().items():
            await _check_episode(spec, trajectory, pool, player.limits.env_timeout_s, branching, env_name)
            check.checked.append(spec)
    except InputError as error:
        check.note(error)
    return check


async def _check_episode(
    spec: EpisodeSpec, trajectory: Trajectory, pool: EnvPool, timeout_s: float, branching: Branching, name: str
) -> None:
    """Reach a state of an episode several times; raises `InputError` with the first difference."""
    state = Reached(spec, branching)
    difference = ""
    envs: list[TextEnv] = []
    try:
        envs += await pool.take_several(3)
        state = replace(state, way="snapshot" if takes_snapshots(envs[0], branching) else "replay")
        if trajectory.failed or not trajectory.steps:
            return
        actions = [step.action for step in trajectory.steps]
        state = replace(state, actions=tuple(actions[: min(PREFIX, len(actions) - 1) + 1]))
        seeds = (spec.seed, spec.seed, spec.seed + 1)
        guards = [pool.guard(env, spec.task_id, seed, timeout_s) for env, seed in zip(envs, seeds, strict=True)]
        first, second, third = map(Seat, envs, guards)
        move = bystander(third, trajectory)
        state = await _reach(first, state)
        difference = await _difference(second, state, move) or await _difference(first, state, move)
    except EnvFailure as failure:
        difference = str(failure)
    finally:
        for env in envs:
            await pool.discard(env)  # the check may have changed it
    if difference:
        raise InputError(
            f"environment {name} cannot be branched by {state.way}: {difference} "
            f"(task {spec.task_id}, after {max(0, len(state.actions) - 1)} actions); see branching in "
            "docs/algorithms/3spo.md"
        )


@dataclass(frozen=True, slots=True)
class Seat:
    env: TextEnv
    guard: EnvGuard


#: Called between two steps of the check.
Between = Callable[[], Awaitable[None]]


def bystander(seat: Seat, trajectory: Trajectory) -> Between:
    """Return what moves another episode of the task by one call, as in a training run, to detect shared state."""
    actions = cycle([None, *(step.action for step in trajectory.steps)])

    async def move() -> None:
        action = next(actions)
        with contextlib.suppress(EnvFailure):
            if action is None:
                options = {"task_id": trajectory.task_id}
                await seat.guard.call(seat.env.reset, seed=seat.guard.generators.seed, options=options)
            else:
                await seat.guard.call(seat.env.step, action)

    return move


async def _reach(seat: Seat, state: Reached) -> Reached:
    """Reach the state for the first time, undisturbed.

    Raises:
        EnvFailure: the environment fails, or its snapshot cannot travel.
    """
    shown = await _replayed(seat, state)
    snapshot: Any = None
    if state.way == "snapshot":
        snapshot = await seat.guard.call(seat.env.snapshot)  # type: ignore[attr-defined]
        if problem := _not_portable(snapshot):
            raise EnvFailure(problem)
    return replace(state, shown=(*shown, await _acted(seat, state.actions[-1])), snapshot=snapshot)


async def _difference(seat: Seat, state: Reached, between: Between) -> str:
    """Reach the state again, with another episode in between; return the first difference."""
    await between()
    if state.way == "snapshot":
        await restore(seat.env, seat.guard, state.snapshot)
    else:
        for before, now in zip(state.shown, await _replayed(seat, state, between), strict=False):
            if differing := _first_differing(before, now):
                return differing
    await between()
    differing = _first_differing(state.shown[-1], await _acted(seat, state.actions[-1]))
    return differing and f"after the same further action {differing}"


async def _replayed(seat: Seat, state: Reached, between: Between | None = None) -> list[dict[str, Any]]:
    spec, actions = state.spec, state.actions[:-1]
    answers = await replay(seat.env, seat.guard, spec.seed, spec.task_id, actions, between=between)
    return [_shown(answer, info) for answer, info in answers]


async def _acted(seat: Seat, action: str) -> dict[str, Any]:
    answer: Any = await seat.guard.call(seat.env.step, action)
    return _shown(read_step(answer), answer[-1])


def _shown(answer: EnvReply, info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "observation": answer.observation,
        "anchor": answer.anchor,
        "list of admissible actions": _listed(info.get("admissible_actions")),
        "reward": answer.reward,
        "end": (answer.terminated, answer.truncated),
    }


def _listed(actions: Any) -> list[str] | None:
    """Return actions as text; sets are sorted, because equal ones may differ in order."""
    if not isinstance(actions, Iterable):
        return None
    texts = [str(action) for action in actions]
    return sorted(texts) if isinstance(actions, Set) else texts


def _first_differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    for name, value in first.items():
        if value != second[name]:
            return f"it shows another {name} than before ({ascii(value)[:80]}, then {ascii(second[name])[:80]})"
    return ""


def _not_portable(snapshot: Any) -> str:
    """Return why a snapshot cannot be sent between driver and runners; empty if it can."""
    if snapshot is None:
        return "snapshot() returned None in the middle of an episode"
    try:
        size = len(pickle.dumps(snapshot))
    except Exception as error:  # the object's own methods may raise anything
        return f"its snapshot cannot be pickled: {type(error).__name__}: {error}"
    if size > MAX_SNAPSHOT_BYTES:
        return f"its snapshot has {size} bytes, more than {MAX_SNAPSHOT_BYTES}: use branching=replay"
    return ""
