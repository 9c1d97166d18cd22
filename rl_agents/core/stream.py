"""A stream: env runners play without a pause, with the newest weights at hand, and learners take what is finished.

A thread of the driver admits groups (`rl_agents.core.admission`), hands each to the least busy env runner, fetches what
is done, plays again what was lost, and gives the engines new weights in the midst of episodes. The learners' thread
takes ``tasks_per_iteration`` whole groups for an iteration. What it takes depends on timing; how old it is does not
exceed ``staleness``, which is asserted on every batch.

After a checkpoint a stream goes on with the groups that had been admitted and not learned from: they are played again
with their old seeds, and the pool serves the calls that they had made. What was admitted later is forgotten.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rl_agents.core.admission import Admission, TooOld
from rl_agents.core.collector import DIED, MAX_ROUNDS, Collector, Lost, RolloutError, failed_episode
from rl_agents.core.experience import Experience, Place
from rl_agents.core.pipeline import Sampled
from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.rollout.agent_loop import Rollouts

#: Longest wait for an answer before new weights and new groups are looked after, in seconds.
POLL_S = 0.1
#: Seconds that the thread may take to notice that env runners are gone.
CLOSE_S = 10.0


@dataclass
class Group:
    """The episodes of one task, from their admission until they are learned from.

    Attributes:
        version: of the engines' weights at the admission.
        attempt: how often some of the episodes had to be asked for again.
        fruitless: how often in a row that brought nothing.
        resampled: episodes that were asked for again.
        batch: of the collector, while an env runner plays the group; None: it waits for one.
        sure: all its calls are in the pool, or will be there.
    """

    number: int
    version: int
    specs: Sequence[EpisodeSpec]
    done: dict[EpisodeSpec, Trajectory] = field(default_factory=dict)
    attempt: int = 0
    fruitless: int = 0
    resampled: int = 0
    batch: int | None = None
    sure: bool = True

    def missing(self) -> list[EpisodeSpec]:
        """Return the episodes that are not there."""
        return [spec for spec in self.specs if spec not in self.done]


class Stream:
    """What `rl_agents.core.pipeline.Pipeline` does, without barriers.

    Attributes:
        iteration: batches that were learned from.
        version: of the learners' weights.
        place: where the stream of tasks stands: all groups that were learned from, whatever their order.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Sampled, iterations: int) -> None:
        """
        Args:
            iterations: of the run; no more groups are admitted than they need, unless somebody goes on.
        """
        self.producer, self.episodes, self.settings = producer, producer.episodes, producer.episodes.settings
        self.iterations = iterations
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._restoring: threading.Thread | None = None
        self.begin(0, 0, Place())

    # --- the learning side -------------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Go on after ``iteration`` completed ones; what is being played is given up.

        Args:
            version: of the learners' weights.
            place: behind what was learned from.
            before: see `in_flight`.
        """
        self._end()
        settings = self.settings
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        self._admission = Admission(settings.tasks_per_iteration, settings.staleness)
        waiting = list(zip(before[::3], before[1::3], before[2::3], strict=True))
        self._admission.go_on(iteration, place.position, {number: admitted for number, admitted, _ in waiting})
        self._groups = {number: self._group(number, older) for number, _, older in waiting}
        self._horizon: float = self.iterations
        self._experience: Experience | None = None
        #: Weights that the engines wait for, with their version and iteration.
        self._offered: tuple[Any, int, int] | None = None
        self._error: BaseException | None = None
        self._closing = self._moved = self._again = False
        self._push_s = 0.0
        self._hopeless = self._absent = 0

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` learns from; the same again until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: as `Episodes.play` does.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        if self._experience is not None:
            return self._experience
        started = time.perf_counter()
        if iteration >= self._horizon:
            self._horizon = math.inf
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
            counts = {
                "stream/admitted": float(self._admission.admitted),
                "stream/playing": float(len(self._admission.waiting) - len(self._admission.finished)),
                "stream/ready": float(ready),
            }
        times = {"timing_s/rollout": waited, "timing_s/wait_rollout": waited, "timing_s/sync": self._push_s}
        experience.metrics.update({**counts, **times})
        self._experience = experience
        return experience

    def publish(self, version: int) -> None:
        """The learners have learned from the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        assert self._experience is not None
        place = self.place.after(self._experience.played)
        weights = self.producer.export() if version != self.version else None
        with self._changed:
            for number in self._admission.learned():
                del self._groups[number]
            if weights is None and self._offered is not None:
                weights = self._offered[0]
            self.place, self.version, self.iteration = place, version, self.iteration + 1
            self._offered = (weights, version, self.iteration)
            self._experience = None
            self._changed.notify_all()

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        complete = self.producer.recorded()
        with self._changed:
            for group in self._groups.values():
                group.sure = group.sure and complete
            return all(self._groups[number].sure for number in self._admission.taken)

    def in_flight(self) -> list[int]:
        """Number, iteration and version of the admission of every group that is not learned from, one after the other.

        They are what a checkpoint keeps of a stream, beside its counters.
        """
        with self._changed:
            waiting = sorted({**self._admission.taken, **self._admission.waiting}.items())
            return [part for number, admitted in waiting for part in (number, admitted, self._groups[number].version)]

    def oldest(self) -> int:
        """The oldest version that sampled what is to be learned from."""
        with self._changed:
            return min([self.version, *(group.version for group in self._groups.values())])

    def settle(self) -> list[Trajectory]:
        """Have the pool hold all calls so far, of unfinished episodes, too.

        Returns:
            Episodes that are finished and may lack calls there.
        """
        if self._thread is not None:
            self.recorded()
        with self._changed:
            unsure = [group for group in self._groups.values() if not group.sure]
            return [trajectory for group in unsure for trajectory in group.done.values()]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engines have the learners' weights meanwhile; what is being played goes on beside the caller's."""
        with self._changed:
            self._wait(lambda: self._offered is None)
        yield

    def close(self) -> None:
        """Play nothing any more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until nothing is played, when env runners are gone; gives up after some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _take(self, played: list[Trajectory], missing: int, iteration: int) -> dict[str, float]:
        """Wait for so many finished groups, reward them and add them to ``played``."""
        with self._changed:
            if played:
                self._admission.pass_over(missing)
                self._changed.notify_all()
            numbers: list[int] = []

            def there() -> bool:
                numbers.extend(self._admission.take(missing, iteration))
                return bool(numbers)

            self._wait(there)
            if not numbers:
                raise self._error or RuntimeError("the thread that plays episodes has ended")
            groups = [self._groups[number] for number in numbers]
        trajectories = [group.done[spec] for group in groups for spec in group.specs]
        self._check_age(trajectories)
        shaped = self.episodes.reward.apply(trajectories)
        played.extend(trajectories)
        return {**shaped, "rollout/resampled_episodes": float(sum(group.resampled for group in groups))}

    def _check_age(self, trajectories: Sequence[Trajectory]) -> None:
        oldest = min((step.policy_version for t in trajectories for step in t.steps), default=self.version)
        if self.version - oldest > self._admission.bound:
            raise TooOld(f"a step of version {oldest} at version {self.version}: the bound is {self._admission.bound}")

    def _start(self) -> None:
        if self._thread is None:
            self._offered = (self.producer.export(), self.version, self.iteration)
            self.producer.workers().collector.shared = True
            self._thread = threading.Thread(target=self._work, name="rollouts", daemon=True)
            self._thread.start()

    def _wait(self, until: Callable[[], bool]) -> None:
        """Wait, with the lock, until something is so or the thread has ended."""
        while not until() and self._thread is not None and self._thread.is_alive():
            self._changed.wait(POLL_S)

    def _end(self) -> None:
        """End the thread, and give up what is being played."""
        self.close()
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(POLL_S)
        while self._restoring is not None and self._restoring.is_alive():  # it gives engines weights, too
            self._restoring.join(POLL_S)
        self._thread = self._restoring = None

    # --- the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        collector = self.producer.workers().collector
        try:
            while not self._closing and not collector.closed:
                self._push()
                self._admit()
                self._hand_out(collector)
                self._fetch(collector)
        except BaseException as error:
            self._error = error
        finally:
            collector.drop([group.batch for group in list(self._groups.values()) if group.batch is not None])
            with self._changed:
                self._changed.notify_all()

    def _push(self) -> None:
        """Give the engines the newest weights."""
        with self._changed:
            offered = self._offered
        if offered is None or self._restores():  # who restores engines gives them weights as well
            return
        weights, version, iteration = offered
        started = time.perf_counter()
        if weights is not None:
            self.producer.push(weights, version)
        with self._changed:
            self._push_s = time.perf_counter() - started
            self._admission.publish(iteration)
            if self._offered is offered:
                self._offered = None
            self._changed.notify_all()

    def _admit(self) -> None:
        with self._changed:
            admission = self._admission
            further = (self._horizon - self.iteration) * admission.batch
            version = self.producer.workers().version
            while admission.room() and admission.useful() < further:
                number = admission.admit()
                self._groups[number] = self._group(number, self.version if version is None else version)

    def _group(self, number: int, version: int) -> Group:
        """Return a group with the task and the seeds that its number stands for."""
        settings = self.settings
        iteration, first = divmod(number, settings.tasks_per_iteration)
        specs = training_specs(
            self.episodes.tasks, iteration, 1, settings.group_size, settings.seed, position=number, first_group=first,
            left_out=self.place.bad.left_out,
        )  # fmt: skip
        return Group(number, version, [replace(spec, group_id=number) for spec in specs])

    def _hand_out(self, collector: Collector) -> None:
        """Give groups that wait to the least busy env runners; those that lost one wait until all are back."""
        restores = self._restores()
        if self._moved and not restores:
            self._moved = False
            self._bury(collector)
        if self._again and not restores:
            self._restore(collector)
            restores = True
        for group in list(self._groups.values()):
            left = group.missing()
            if group.batch is not None or not left or (restores and group.attempt):
                continue
            loads = collector.loads()
            if not loads:
                if not restores:
                    self._call_back(collector)
                return
            self._absent = 0
            first = collector.first_attempt()
            attempt = None if first is None else first + group.attempt
            options = {"temperature": None, "attempt": attempt}
            group.batch = collector.submit(min(loads, key=lambda runner: loads[runner]), "sample", left, options)

    def _fetch(self, collector: Collector) -> None:
        batches = {group.batch: group for group in list(self._groups.values()) if group.batch is not None}
        if not batches:
            with self._changed:
                self._changed.wait(POLL_S)
            return
        for number, answer in collector.fetch(list(batches), POLL_S).items():
            self._answered(batches[number], answer, collector)

    def _answered(self, group: Group, answer: Rollouts | Lost, collector: Collector) -> None:
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
        left = len(group.missing())
        if left:
            group.attempt += 1
            group.resampled += left
            group.fruitless = 0 if len(group.done) > before else group.fruitless + 1
            if group.fruitless >= MAX_ROUNDS:
                raise RolloutError(f"{left} episodes missing after {MAX_ROUNDS} rounds; last losses: {events[-1]}")
            self._restore(collector)
        self._settle_group(group)

    def _refuse(self, answer: Rollouts) -> None:
        """Raise a user error, unless only this group's first prompt is too long."""
        self._hopeless += 1
        if answer.unfinished or self._hopeless >= self._admission.batch:
            raise InputError(answer.input_error)

    def _settle_group(self, group: Group) -> None:
        if group.missing():
            return
        with self._changed:
            self._admission.finish(group.number)
            self._changed.notify_all()

    # --- losses ------------------------------------------------------------------------------------------------

    def _restores(self) -> bool:
        return self._restoring is not None and self._restoring.is_alive()

    def _restore(self, collector: Collector) -> None:
        """Bring back what was lost, while the others go on; once more when something is lost meanwhile."""

        def restore() -> None:
            events: list[str] = []
            try:
                if collector.restore(events):
                    for group in list(self._groups.values()):
                        group.fruitless = 0
            except Exception as error:
                self._error, self._closing = error, True
            for event in events:
                print(f"[rl_agents] {event}", flush=True)

        self._again = self._restores()  # which may have looked already at what is lost now
        if not self._again:
            self._moved = True
            self._restoring = threading.Thread(target=restore, name="restore", daemon=True)
            self._restoring.start()

    def _call_back(self, collector: Collector) -> None:
        """Nobody is alive: wait for one, some times; raises `RolloutError` when none comes."""
        self._absent += 1
        if self._absent > MAX_ROUNDS:
            raise RolloutError(f"no env runner is alive, and none came back in {MAX_ROUNDS} attempts to restart them")
        self._restore(collector)

    def _bury(self, collector: Collector) -> None:
        """Give up the episodes of tasks in which env runners die."""
        for group in list(self._groups.values()):
            left = [spec for spec in group.missing() if collector.deadly(spec)]
            if left and group.batch is None:
                group.done.update({spec: failed_episode(spec, DIED) for spec in left})
                self._settle_group(group)
        alive = sum(not t.failed for group in list(self._groups.values()) for t in group.done.values())
        collector.check_deaths(alive + self.iteration)


def _spec(trajectory: Trajectory) -> EpisodeSpec:
    return EpisodeSpec(trajectory.task_id, trajectory.group_id, trajectory.member, trajectory.seed)
