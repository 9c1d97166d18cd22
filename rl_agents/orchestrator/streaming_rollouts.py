"""Streaming rollouts: env runners sample without a pause, with the engines' newest weights.

The learners' thread takes ``tasks_per_iteration`` complete groups for an iteration. Each admitted group has a thread,
which rolls it out (`Collector.collect`) and gets its rewards. Another thread gives engines new weights in the middle of
episodes. Which groups are taken depends on timing, but their age does not exceed ``max_staleness``, which is asserted
on every batch.

After a checkpoint a stream continues with the groups that had been admitted and not trained on. They are rolled out
again with their seeds, and the pool serves their recorded calls. Groups that were admitted later are dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.orchestrator.collector import Company
from rl_agents.orchestrator.rollout_batch import Experience, TaskPosition
from rl_agents.orchestrator.rollout_buffer import POLL_S, RolloutBuffer, Sampled, Unit
from rl_agents.orchestrator.staleness_control import Admission, TooOld
from rl_agents.rollout.agent_loop import Rollouts

#: Seconds after which the rewards of a group are tried again after a user error.
AGAIN_S = 1.0


@dataclass(eq=False)
class Group(Unit):
    """The episodes of one task.

    Attributes:
        episodes: all of them, once they are complete.
        resampled: number of repeated episodes.
        sure: all its calls are, or will be, in the pool.
    """

    specs: Sequence[EpisodeSpec] = ()
    episodes: list[Trajectory] = field(default_factory=list)
    resampled: int = 0
    sure: bool = True


class StreamBuffer(RolloutBuffer[Group]):
    """Groups without barriers; ``place`` counts those that were trained on, in any order."""

    def __init__(self, producer: Sampled, iterations: int) -> None:
        self.episodes, self.settings, self._workers = producer.episodes, producer.episodes.settings, producer.workers
        super().__init__(producer, iterations, ahead=True)
        self.begin(0, 0, TaskPosition())

    # --- the learners' thread ----------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: TaskPosition, before: Sequence[Any] = ()) -> None:
        """See `BatchBuffer.begin`."""
        self._restart(iteration, version, place)
        self._started, self._push_s = False, 0.0
        self._push_error: BaseException | None = None
        #: User errors of judges, and too long first prompts since the last group without one.
        self._refused = self._hopeless = 0
        self._last_loss = ""
        #: The last exported weights, and those that engines have not loaded yet, with version and iteration.
        self._weights: Any = None
        self._offered: tuple[Any, int, int] | None = None
        waiting = list(zip(*(before[part::4] for part in range(4)), strict=True))
        self._table = {number: self._make(number, version, task) for number, _, version, task in waiting}
        self._admission = Admission(self.settings.tasks_per_iteration, self.settings.max_staleness)
        self._admission.resume(iteration, place.position, {number: admitted for number, admitted, *_ in waiting})

    def _make(self, number: int, version: int | None = None, task: str = "") -> Group:
        """Return the group with the task and the seeds of a number.

        Args:
            version: of the engines' weights at its admission; None: the present one.
            task: that was drawn then; empty: draw it. One that is no longer sampled is replaced.
        """
        if version is None:
            version = self._workers().version
        iteration, first = divmod(number, self.settings.tasks_per_iteration)
        left_out, tasks = self.place.bad.left_out, self.episodes.tasks
        kept = task in tasks and task not in left_out
        specs = training_specs(
            [task] if kept else tasks, iteration, 1, self.settings.group_size, self.settings.seed, position=number,
            first_group=first, left_out=left_out, difficulty=None if kept else self.place.difficulty,
            busy={group.specs[0].task_id for group in self._table.values()},
        )  # fmt: skip
        specs = [replace(spec, group_id=number) for spec in specs]
        return Group(number, self.version if version is None else version, specs=specs)

    def _collect(self, iteration: int) -> Experience:
        started = time.perf_counter()
        if self._started:
            self._admit()  # a run that continues beyond its end needs more groups
        else:
            self._start()
        ready = len(self._admission.finished)
        try:
            experience = self.episodes.choose(iteration, lambda played, missing: self._take(played, missing, iteration))
        except BaseException:
            with self._changed:
                self._admission.put_back()
            raise
        waited = time.perf_counter() - started
        with self._changed:
            playing = len(self._admission.waiting) - len(self._admission.finished)
            admitted = self._admission.admitted
        counts = {"stream/admitted": admitted, "stream/playing": playing, "stream/ready": ready}
        experience.metrics.update({name: float(count) for name, count in counts.items()})
        experience.metrics.update({"timing_s/rollout": waited, "timing_s/wait_rollout": waited})
        experience.metrics["timing_s/sync"] = self._push_s
        return experience

    def _take(self, played: list[Trajectory], missing: int, iteration: int) -> int:
        groups: list[Group] = []

        def taken() -> bool:
            groups.extend(self._table[number] for number in self._admission.take(missing, iteration))
            return bool(groups)

        if played:
            with self._changed:
                self._admission.pass_over(missing)
                self._admit()
        self._wait(taken, self._error)
        trajectories = [trajectory for group in groups for trajectory in group.episodes]
        oldest = min((step.policy_version for t in trajectories for step in t.steps), default=self.version)
        if self.version - oldest > self._admission.bound:
            at = f"a step of version {oldest} at version {self.version}"
            raise TooOld(f"{at}: the bound is {self._admission.bound}")
        played.extend(trajectories)
        return sum(group.resampled for group in groups)

    def _error(self) -> BaseException | None:
        errors = [self._push_error, *(group.error for group in self._table.values())]
        return next((error for error in errors if error is not None), None)

    def publish(self, version: int) -> None:
        """See `BatchBuffer.publish`."""
        if version != self.version:
            self._weights = self.producer.export()
        assert self._experience is not None
        with self._changed:
            self._trained(version, self.place.after(self._experience.played))
            self._offer()

    def recorded(self) -> bool:
        complete = self.producer.recorded()
        with self._changed:
            for group in self._table.values():
                group.sure = group.sure and complete
            return all(self._table[number].sure for number in self._admission.taken)

    def in_flight(self) -> list[int | str]:
        """Return, flattened, number, iteration and version at admission, and task of every group that was not trained
        on."""
        with self._changed:
            waiting = sorted({**self._admission.taken, **self._admission.waiting}.items())
            groups = [(self._table[number], admitted) for number, admitted in waiting]
            return [part for g, admitted in groups for part in (g.number, admitted, g.version, g.specs[0].task_id)]

    def oldest(self) -> int:
        with self._changed:
            return min([self.version, *(group.version for group in self._table.values())])

    def settle(self) -> list[Trajectory]:
        """Write all calls so far to the pool, including those of unfinished episodes."""
        if self._started:
            self.recorded()
        with self._changed:
            return [episode for group in self._table.values() if not group.sure for episode in group.episodes]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `BatchBuffer.paused`; rollouts continue in the meantime."""
        with self._changed:
            self._changed.wait_for(lambda: self._offered is None or self._push_error)
        yield

    # --- weights -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._workers().collector.pump.shared = True
        self._weights = self.producer.export()
        with self._changed:
            self._offer()
            self._spawn(self._push_all)

    def _offer(self) -> None:
        self._offered = (self._weights, self.version, self.iteration)
        self._changed.notify_all()

    def _push_all(self, closed: threading.Event) -> None:
        """In a thread, push offered weights and admit runners that are back."""
        try:
            while not closed.is_set():
                if (offered := self._offered) is not None:
                    self._push(offered)
                self._workers().collector.fault_tolerance.look()
                with self._changed:
                    if self._offered is None and not closed.is_set():
                        self._changed.wait(POLL_S)
        except BaseException as error:
            self._push_error = error
        finally:
            self._leave()

    def _push(self, offered: tuple[Any, int, int]) -> None:
        weights, version, iteration = offered
        started = time.perf_counter()
        self.producer.push(weights, version)
        with self._changed:
            self._push_s = time.perf_counter() - started
            self._admission.publish(iteration)
            self._offered = None if self._offered is offered else self._offered
            if not self._closed.is_set():
                self._admit()
            self._changed.notify_all()

    # --- the thread of a group ---------------------------------------------------------------------------------

    def _roll_out(self, group: Group, closed: threading.Event) -> None:
        company = Company(closed.is_set, self._completed, self._tolerates, self._report)
        collected = self._workers().collector.collect(group.specs, record=True, company=company)
        with self._changed:
            group.episodes, group.resampled = collected.answers, collected.resampled
            if any(trajectory.steps for trajectory in group.episodes):
                self._hopeless = 0

    def _report(self, event: str) -> None:
        """Print a loss once, because many groups lose episodes with one runner."""
        with self._changed:
            known, self._last_loss = event == self._last_loss, event
        if not known:
            print(f"[rl_agents] {event}; repeating its episodes", flush=True)

    def _completed(self) -> int:
        with self._changed:
            alive = sum(not t.failed for group in self._table.values() for t in group.episodes)
            return alive + self._admission.iteration

    def _tolerates(self, answers: Rollouts) -> bool:
        """Tolerate a too long first prompt if other groups may have shorter ones."""
        with self._changed:
            self._hopeless += 1
            return not answers.unfinished and self._hopeless < self._admission.batch

    def _reward(self, group: Group, closed: threading.Event) -> None:
        """Retry rewards until they succeed; after B user errors raise the last one.

        A judge that did not answer one question may answer the next one. ``judge_concurrency`` bounds its concurrent
        questions.
        """
        reward = self.episodes.reward
        while not closed.is_set():
            try:
                reward.apply(group.episodes)
                return
            except InputError:
                with self._changed:
                    self._refused += not closed.is_set()
                    last = self._refused >= self._admission.batch
                if last or not reward.waits:
                    raise
                closed.wait(AGAIN_S)
