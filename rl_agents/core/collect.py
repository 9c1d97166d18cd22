"""Collecting the episodes that were asked for, all of them, whoever dies on the way."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from rl_agents.engines.group import InferenceGroup
from rl_agents.errors import InputError
from rl_agents.rollout.trajectory import EpisodeSpec, Trajectory

MAX_ROUNDS = 6
RESTART_PATIENCE_S = 120.0


@dataclass
class Collected:
    """Result of one collection: one trajectory per spec, in the order of the specs.

    Attributes:
        resampled: episodes that had to be played again because a runner or an engine was lost.
        events: one line per loss, for the log.
    """

    trajectories: list[Trajectory]
    resampled: int = 0
    events: list[str] = field(default_factory=list)


class LocalRunner:
    """The env runner in the driver's own process, in the place of RLlib's group of actors."""

    def __init__(self, config: Any, engine: Any) -> None:
        from rl_agents.rollout.env_runner import TextEnvRunner

        self.local_env_runner = TextEnvRunner(config=config, worker_index=0)
        self.local_env_runner.set_engine(engine)

    def num_remote_env_runners(self) -> int:
        return 0

    def stop(self) -> None:
        """Close the environments."""
        self.local_env_runner.stop()


class RolloutError(RuntimeError):
    """Episodes could not be completed although runners and engines were restarted."""


class Collector:
    """Sends episode specs to env runners and asks again, with the same seeds, for those that got lost."""

    def __init__(self, env_runner_group: Any, inference_group: InferenceGroup | None, timeout_s: float) -> None:
        self.group = env_runner_group
        self.inference = inference_group
        self.timeout_s = timeout_s

    def collect(self, specs: Sequence[EpisodeSpec], temperature: float | None = None) -> Collected:
        """Play all ``specs``.

        Raises:
            InputError: a mistake that a person has to mend, such as a prompt longer than the context.
            RolloutError: some are still missing after several rounds; the message names the last losses.
        """
        done: dict[EpisodeSpec, Trajectory] = {}
        result = Collected([])
        for attempt in range(MAX_ROUNDS):
            missing = [spec for spec in specs if spec not in done]
            if attempt:
                result.resampled += len(missing)
                self._restore(result.events)
            done.update(self._round(missing, temperature, result.events))
            if len(done) == len(specs):
                result.trajectories = [done[spec] for spec in specs]
                return result
        raise RolloutError(
            f"{len(specs) - len(done)} of {len(specs)} episodes missing after {MAX_ROUNDS} rounds; "
            f"last losses: {'; '.join(result.events[-3:]) or 'none reported'}"
        )

    def _round(
        self, specs: list[EpisodeSpec], temperature: float | None, events: list[str]
    ) -> dict[EpisodeSpec, Trajectory]:
        """Send specs out once and gather what comes back."""
        if self.group.num_remote_env_runners() == 0:
            answers = [self.group.local_env_runner.sample(specs=specs, temperature=temperature)]
        else:
            answers = self._remote_round(specs, temperature, events)
        done: dict[EpisodeSpec, Trajectory] = {}
        for rollouts in answers:
            if rollouts.input_error:
                raise InputError(rollouts.input_error)
            events.extend(rollouts.engine_errors)
            for trajectory in rollouts.trajectories:
                key = EpisodeSpec(trajectory.task_id, trajectory.group_id, trajectory.member, trajectory.seed)
                done[key] = trajectory
        return done

    def _remote_round(self, specs: list[EpisodeSpec], temperature: float | None, events: list[str]) -> list[Any]:
        manager = self.group._worker_manager
        ids = self.group.healthy_env_runner_ids()
        if not ids:
            events.append("no env runner is alive")
            return []
        shares = split_groups(specs, len(ids))
        busy = [(runner, share) for runner, share in zip(ids, shares, strict=True) if share]
        results = manager.foreach_actor(
            [SampleCall(share, temperature) for _, share in busy],
            remote_actor_ids=[runner for runner, _ in busy],
            timeout_seconds=self.timeout_s,
        )
        answers = {result.actor_id: result.get() for result in results if result.ok}
        for runner, share in busy:
            if runner not in answers:
                self._replace(runner, len(share), events)
        return list(answers.values())

    def _replace(self, runner: int, episodes: int, events: list[str]) -> None:
        """RLlib keeps a runner that timed out and queues work behind it: kill it, so that Ray restarts it."""
        manager = self.group._worker_manager
        if runner in manager.healthy_actor_ids():
            events.append(f"env runner {runner} did not finish {episodes} episodes within {self.timeout_s:.0f} s")
            ray.kill(manager.actors()[runner], no_restart=False)
            manager.set_actor_state(runner, False)
        else:
            events.append(f"env runner {runner} died while playing {episodes} episodes")

    def _restore(self, events: list[str]) -> None:
        """Bring engines and then runners back, and introduce them to each other."""
        deadline = time.monotonic() + RESTART_PATIENCE_S
        if self.inference is not None:
            self.inference.restore()
        if self.group.num_remote_env_runners() == 0:
            return
        while (
            not self.group.probe_unhealthy_env_runners(timeout_seconds=10) and not self.group.healthy_env_runner_ids()
        ):
            if time.monotonic() > deadline:
                events.append(f"no env runner came back within {RESTART_PATIENCE_S:.0f} s")
                return
            time.sleep(1)
        self.introduce()

    def introduce(self) -> None:
        """Give every env runner the engines' handles."""
        if self.inference is not None:
            self.group._worker_manager.foreach_actor(
                SetEngines(self.inference.handles()), timeout_seconds=RESTART_PATIENCE_S
            )


def split_groups(specs: Sequence[EpisodeSpec], shares: int) -> list[list[EpisodeSpec]]:
    """Deal whole groups out, so that siblings share their prompt's prefix in one engine."""
    groups: dict[int, list[EpisodeSpec]] = defaultdict(list)
    for spec in specs:
        groups[spec.group_id].append(spec)
    dealt: list[list[EpisodeSpec]] = [[] for _ in range(shares)]
    for index, group in enumerate(groups.values()):
        dealt[index % shares].extend(group)
    return dealt


class SampleCall:
    """What an env runner is asked to do (a class, so that it travels small)."""

    def __init__(self, specs: list[EpisodeSpec], temperature: float | None) -> None:
        self.specs, self.temperature = specs, temperature

    def __call__(self, runner: Any) -> Any:
        return runner.sample(specs=self.specs, temperature=self.temperature)


class SetEngines:
    """Hands engine handles to a runner."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def __call__(self, runner: Any) -> None:
        runner.set_engines(self.handles)
