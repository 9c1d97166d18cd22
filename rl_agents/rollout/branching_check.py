"""The check before a search: does the chosen way of branching really lead back to a state?"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import TextEnv
from rl_agents.errors import InputError
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.branching import Branching, copy_of, restore, takes_snapshots
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, call_env, read_reset, read_step
from rl_agents.rollout.env_guard import EnvGuard, EnvPool
from rl_agents.rollout.turns import Player

#: Actions before the state that is restored.
PREFIX = 3
MAX_SNAPSHOT_BYTES = 1 << 20


@dataclass(slots=True)
class BranchingCheck:
    """Result of `check_branching`; its shape is that of other answers of a runner.

    Attributes:
        ways: ``snapshot`` or ``replay`` by the spec that was checked.
    """

    ways: dict[EpisodeSpec, str] = field(default_factory=dict)
    engine_errors: list[str] = field(default_factory=list)
    input_error: str = ""

    def by_job(self) -> Mapping[Hashable, str]:
        """The ways by specs."""
        return {spec: way for spec, way in self.ways.items()}


async def check_branching(
    specs: Sequence[EpisodeSpec], pool: EnvPool, player: Player, branching: Branching, env_name: str
) -> BranchingCheck:
    """Play an episode per spec, then reach a state of it again and again and compare what follows.

    Episodes that the environment fails are passed over: they are reported when training meets them.
    """
    rollouts = await collect_episodes(specs, pool, player.engine, player.context, player.limits)
    check = BranchingCheck(engine_errors=rollouts.engine_errors, input_error=rollouts.input_error)
    try:
        for spec, trajectory in rollouts.by_job().items():
            assert isinstance(spec, EpisodeSpec)
            check.ways[spec] = _check_episode(trajectory, pool, player.limits.env_timeout_s, branching, env_name)
    except InputError as error:
        check.input_error = check.input_error or str(error)
    return check


def _check_episode(trajectory: Trajectory, pool: EnvPool, timeout_s: float, branching: Branching, name: str) -> str:
    """Return the way that works.

    Raises:
        InputError: it does not lead back; the message says what differed.
    """
    actions = [step.action for step in trajectory.steps]
    prefix: list[str] = []
    way: str = branching
    envs: list[TextEnv] = []
    try:
        envs += [call_env(0, pool.take) for _ in range(3)]
        way = "snapshot" if takes_snapshots(envs[0], branching) else "replay"
        if trajectory.failed or not actions:
            return way
        prefix = actions[: min(PREFIX, len(actions) - 1)]
        seats = [Seat(env, pool.guard(env, trajectory.task_id, trajectory.seed, timeout_s)) for env in envs[:2]]
        bystander = Bystander(envs[2], trajectory, timeout_s)
        difference = _difference(seats, bystander, trajectory, prefix, actions[len(prefix)], way == "snapshot")
    except EnvFailure as failure:
        difference = str(failure)
    finally:
        for env in envs:
            pool.discard(env)  # whatever the check has done to it
    if difference:
        raise InputError(
            f"environment {name} cannot be branched by {way}: {difference} "
            f"(task {trajectory.task_id}, after {len(prefix)} actions); see branching in docs/algorithms/3spo.md"
        )
    return way


@dataclass(frozen=True, slots=True)
class Seat:
    """An environment and the guard of its calls."""

    env: TextEnv
    guard: EnvGuard


class Bystander:
    """Another episode of the task that is played in between, as episodes of a run are: states must not mix."""

    def __init__(self, env: TextEnv, trajectory: Trajectory, timeout_s: float) -> None:
        self.env, self.options = env, {"task_id": trajectory.task_id}
        self.guard = EnvGuard(trajectory.task_id, trajectory.seed + 1, timeout_s)
        self.actions = [step.action for step in trajectory.steps]
        self.calls = 0

    def move(self) -> None:
        """Reset or step; whatever comes of it is nobody's business."""
        turn = self.calls % (len(self.actions) + 1)
        self.calls += 1
        with contextlib.suppress(EnvFailure):
            if turn == 0:
                self.guard.call(self.env.reset, seed=self.guard.process.seed, options=self.options)
            else:
                self.guard.call(self.env.step, self.actions[turn - 1])


def _difference(
    seats: Sequence[Seat],
    bystander: Bystander,
    trajectory: Trajectory,
    prefix: Sequence[str],
    action: str,
    copies: bool,
) -> str:
    """Reach the state once, undisturbed, then in another environment and again in the first, with another episode in
    between; name the first thing that differs."""
    first, second = seats
    reached = _replay(first, trajectory, prefix)
    snapshot = copy_of(first.env, first.guard) if copies else None
    if copies and (problem := _not_portable(snapshot)):
        return problem
    expected = _acted(first, action)
    for seat in (second, first):
        bystander.move()
        if copies:
            restore(seat.env, seat.guard, snapshot)
        else:
            again = _replay(seat, trajectory, prefix, bystander.move)
            for before, now in zip(reached, again, strict=True):
                if differing := _first_differing(before, now):
                    return differing
        bystander.move()
        if differing := _first_differing(expected, _acted(seat, action)):
            return f"after the same further action {differing}"
    return ""


def _replay(
    seat: Seat, trajectory: Trajectory, prefix: Sequence[str], between: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Everything that is shown on the way to the state."""
    seat.guard.process.reset()
    answer: Any = seat.guard.call(seat.env.reset, seed=trajectory.seed, options={"task_id": trajectory.task_id})
    shown = [_shown(read_reset(answer), answer[-1])]
    for action in prefix:
        between()
        shown.append(_acted(seat, action))
    return shown


def _acted(seat: Seat, action: str) -> dict[str, Any]:
    answer: Any = seat.guard.call(seat.env.step, action)
    return _shown(read_step(answer), answer[-1])


def _shown(answer: EnvReply, info: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal in equal states."""
    return {
        "observation": answer.observation,
        "anchor": answer.anchor,
        "list of admissible actions": info.get("admissible_actions"),
        "reward": answer.reward,
        "end": (answer.terminated, answer.truncated),
    }


def _first_differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    for name, value in first.items():
        if value != second[name]:
            return f"it shows another {name} than before ({ascii(value)[:80]}, then {ascii(second[name])[:80]})"
    return ""


def _not_portable(snapshot: Any) -> str:
    """Say why a snapshot cannot travel between driver and runners."""
    if snapshot is None:
        return "snapshot() returned None in the middle of an episode"
    try:
        size = len(pickle.dumps(snapshot))
    except Exception as error:  # whatever the object's own methods raise
        return f"its snapshot cannot be pickled: {type(error).__name__}: {error}"
    if size > MAX_SNAPSHOT_BYTES:
        return f"its snapshot has {size} bytes, more than {MAX_SNAPSHOT_BYTES}: use branching=replay"
    return ""
