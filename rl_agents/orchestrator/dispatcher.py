"""A stream's groups go to env runners, and come back: each to the least busy one, and again what got lost."""

from __future__ import annotations

from collections.abc import Callable

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError, RolloutError
from rl_agents.orchestrator.collector import MAX_ROUNDS, Collector
from rl_agents.orchestrator.fault_tolerance import DIED, failed_episode
from rl_agents.orchestrator.group_buffer import Group, Groups
from rl_agents.orchestrator.remote_batches import Lost
from rl_agents.orchestrator.weight_sync_thread import Upkeep
from rl_agents.rollout.agent_loop import Rollouts

#: Longest wait for an answer before new groups are looked after, in seconds.
WAIT_S = 0.1


class HandOut:
    """What the thread of a stream does in turns: `give`, then `fetch`."""

    def __init__(self, collector: Collector, groups: Groups, upkeep: Upkeep, complete: Callable[[Group], None]) -> None:
        """
        Args:
            upkeep: is told of losses.
            complete: called with every group whose episodes are all there.
        """
        self._collector, self._groups, self._upkeep, self._complete = collector, groups, upkeep, complete
        self._hopeless = 0

    def give(self) -> None:
        """Give groups that wait to the least busy env runners; those that lost one wait until it is known why."""
        restoring, exchanges = self._upkeep.restoring(), self._collector.exchanges
        for group in self._groups.all():
            if group.batch is not None or not group.missing() or (restoring and group.attempt):
                continue
            self._bury(group)
            left, loads = group.missing(), exchanges.loads()
            if not loads or not left:
                continue
            first = self._collector.first_attempt()
            attempt = None if first is None else first + group.attempt
            options = {"temperature": None, "attempt": attempt}
            group.batch = exchanges.submit(min(loads, key=lambda runner: loads[runner]), "sample", left, options)

    def fetch(self) -> None:
        """Take what has come."""
        batches = {group.batch: group for group in self._groups.all() if group.batch is not None}
        if not batches:
            with self._groups.changed:
                self._groups.changed.wait(WAIT_S)
            return
        for number, answer in self._collector.exchanges.fetch(list(batches), WAIT_S).items():
            self._answered(batches[number], answer)

    def drop(self) -> None:
        """Give up what is being played."""
        self._collector.exchanges.drop([group.batch for group in self._groups.all() if group.batch is not None])

    def _bury(self, group: Group) -> None:
        """Give up the episodes of a task in which env runners die; raises `EpisodesFail` when there is nothing else."""
        losses = self._collector.losses
        left = [spec for spec in group.missing() if losses.deadly(spec)]
        if not left:
            return
        group.done.update({spec: failed_episode(spec, DIED) for spec in left})
        if not group.missing():
            self._complete(group)
        alive = sum(not t.failed for group in self._groups.all() for t in list(group.done.values()))
        losses.check_deaths(alive + self._groups.admission.iteration)

    def _answered(self, group: Group, answer: Rollouts | Lost) -> None:
        """Keep what came of a group; have the rest played again."""
        group.batch = None
        before = len(group.done)
        if isinstance(answer, Lost):
            events = [answer.event]
            group.sure = False
        else:
            if answer.input_error:
                self._refuse(answer)
            events = list(dict.fromkeys(answer.engine_errors))
            group.done.update({_spec(trajectory): trajectory for trajectory in answer.trajectories})
            if any(trajectory.steps for trajectory in answer.trajectories):
                self._hopeless = 0
        for event in events:
            print(f"[rl_agents] {event}; its episodes are played again", flush=True)
        if group.missing():
            self._again(group, events[-1], fruitless=len(group.done) == before)
        else:
            self._complete(group)

    def _again(self, group: Group, event: str, *, fruitless: bool) -> None:
        """Note a loss; raises `RolloutError` when that happens too often in a row."""
        left = len(group.missing())
        group.attempt += 1
        group.resampled += left
        group.fruitless = group.fruitless + 1 if fruitless else 0
        if group.fruitless >= MAX_ROUNDS:
            raise RolloutError(f"{left} episodes missing after {MAX_ROUNDS} rounds; last losses: {event}")
        self._upkeep.strike()

    def _refuse(self, answer: Rollouts) -> None:
        """Raise a user error, unless only this group's first prompt is too long."""
        self._hopeless += 1
        if answer.unfinished or self._hopeless >= self._groups.admission.batch:
            raise InputError(answer.input_error)


def _spec(trajectory: Trajectory) -> EpisodeSpec:
    return EpisodeSpec(trajectory.task_id, trajectory.group_id, trajectory.member, trajectory.seed)
