"""A stream: env runners play without a pause, with the newest weights at hand, and learners take what is finished.

Four threads of the driver share one table (`rl_agents.orchestrator.group_buffer`): the learners' takes
``tasks_per_iteration`` whole groups for an iteration; *rollouts* admits groups
(`rl_agents.orchestrator.staleness_control`), hands them to env runners and fetches what is done
(`rl_agents.orchestrator.dispatcher`); *upkeep* gives engines new weights in the midst of episodes and brings back what
was lost (`rl_agents.orchestrator.weight_sync_thread`); *reward* asks judges about groups that are complete
(`rl_agents.orchestrator.async_rewards`). What is taken depends on timing; how old it is does not exceed ``staleness``,
which is asserted on every batch.

After a checkpoint a stream goes on with the groups that had been admitted and not learned from: they are played again
with their old seeds, and the pool serves the calls that they had made. What was admitted later is forgotten.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from rl_agents.data.trajectory import Trajectory
from rl_agents.orchestrator.async_rewards import Rewarding
from rl_agents.orchestrator.dispatcher import HandOut
from rl_agents.orchestrator.group_buffer import Group, Groups
from rl_agents.orchestrator.rollout_batch import Experience, Place
from rl_agents.orchestrator.rollout_buffer import Sampled
from rl_agents.orchestrator.staleness_control import TooOld
from rl_agents.orchestrator.weight_sync_thread import Upkeep
from rl_agents.orchestrator.worker_thread import Beside


class Stream:
    """What `rl_agents.orchestrator.rollout_buffer.Pipeline` does, without barriers.

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
        self._beside = Beside("rollouts")
        self._changed = self._beside.changed
        self._upkeep: Upkeep | None = None
        self._rewarding: Rewarding | None = None
        self.begin(0, 0, Place())

    # --- the learners' thread ----------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Go on after ``iteration`` completed ones; what is being played is given up.

        Args:
            version: of the learners' weights.
            place: behind what was learned from.
            before: see `in_flight`.
        """
        self._end()
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        self._groups = Groups(self.episodes, self._changed, iteration, place)
        self._groups.go_on(before)
        self._horizon: float = self.iterations
        self._experience: Experience | None = None
        self._upkeep = self._make_upkeep(self._groups)
        self._rewarding = Rewarding(self.episodes.reward, self.settings.tasks_per_iteration, self._groups.ready)

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` learns from; the same again until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: as `Episodes.play` does.
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        if self._experience is not None:
            return self._experience
        started = time.perf_counter()
        if iteration >= self._horizon:
            self._horizon = math.inf
        self._start()
        ready = len(self._groups.admission.finished)
        try:
            experience = self.episodes.choose(iteration, lambda played, missing: self._take(played, missing, iteration))
        except BaseException:
            with self._changed:
                self._groups.admission.put_back()
            raise
        waited = time.perf_counter() - started
        times = {"timing_s/rollout": waited, "timing_s/wait_rollout": waited}
        if self._upkeep is not None:
            times["timing_s/sync"] = self._upkeep.push_s
        experience.metrics.update({**self._groups.counts(), "stream/ready": float(ready), **times})
        self._experience = experience
        return experience

    def publish(self, version: int) -> None:
        """The learners have learned from the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        assert self._experience is not None and self._upkeep is not None
        place = self.place.after(self._experience.played)
        weights = self.producer.export() if version != self.version else None
        with self._changed:
            self._groups.learned()
            self._groups.place = self.place = place
            self.version, self.iteration = version, self.iteration + 1
            self._experience = None
            self._upkeep.offer(weights, version, self.iteration)

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        return self._groups.recorded(self.producer.recorded())

    def in_flight(self) -> list[int]:
        """Number, iteration and version of the admission of every group that is not learned from, one after the other.

        They are what a checkpoint keeps of a stream, beside its counters.
        """
        return self._groups.in_flight()

    def oldest(self) -> int:
        """The oldest version that sampled what is to be learned from."""
        return self._groups.oldest(self.version)

    def settle(self) -> list[Trajectory]:
        """Have the pool hold all calls so far, of unfinished episodes, too.

        Returns:
            Episodes that are finished and may lack calls there.
        """
        if self._beside.started:
            self.recorded()
        return self._groups.unsure()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engines have the learners' weights meanwhile; what is being played goes on beside the caller's."""
        with self._changed:
            self._beside.wait(lambda: self._upkeep is None or not self._upkeep.pending())
        yield

    def close(self) -> None:
        """Play nothing any more."""
        self._beside.close()
        if self._upkeep is not None:
            self._upkeep.beside.close()
        if self._rewarding is not None:
            self._rewarding.close()

    def join(self) -> None:
        """Wait until nothing is played, when env runners are gone; gives up after some seconds."""
        self._beside.join()
        if self._upkeep is not None:  # it would bring back the engines that are ended next
            self._upkeep.beside.join()

    def _take(self, played: list[Trajectory], missing: int, iteration: int) -> dict[str, float]:
        """Wait for so many groups that are complete and rewarded, and add them to ``played``."""
        groups: list[Group] = []

        def there() -> bool:
            groups.extend(self._groups.take(missing, iteration))
            return bool(groups)

        with self._changed:
            if played:
                self._groups.admission.pass_over(missing)
                self._changed.notify_all()
            if not self._beside.wait(there):
                raise self._beside.reason()
        trajectories = [trajectory for group in groups for trajectory in group.trajectories()]
        self._check_age(trajectories)
        played.extend(trajectories)
        resampled = float(sum(group.resampled for group in groups))
        return {**self.episodes.reward.metrics(trajectories), "rollout/resampled_episodes": resampled}

    def _check_age(self, trajectories: Sequence[Trajectory]) -> None:
        oldest, bound = self.version, self._groups.admission.bound
        oldest = min((step.policy_version for t in trajectories for step in t.steps), default=oldest)
        if self.version - oldest > bound:
            raise TooOld(f"a step of version {oldest} at version {self.version}: the bound is {bound}")

    # --- threads -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        assert self._upkeep is not None
        if not self._beside.started:
            self._upkeep.offer(self.producer.export(), self.version, self.iteration)
            self.producer.workers().collector.exchanges.shared = True
            self._upkeep.start()
            self._beside.start(self._play)

    def _end(self) -> None:
        """End the threads, and give up what is being played."""
        self.close()
        self._beside.end()
        if self._upkeep is not None:  # it gives engines weights, which are another run's then
            self._upkeep.beside.end()

    def _make_upkeep(self, groups: Groups) -> Upkeep:
        def blamed() -> None:
            for group in groups.all():
                group.fruitless = 0

        return Upkeep(self.producer, self._changed, arrived=groups.admission.publish, blamed=blamed)

    def _play(self) -> None:
        """The thread *rollouts*: admit, hand out, fetch; ends with what the others raise."""
        assert self._upkeep is not None and self._rewarding is not None
        groups, upkeep, rewarding = self._groups, self._upkeep, self._rewarding
        collector = self.producer.workers().collector
        hand_out = HandOut(collector, groups, upkeep, rewarding.begin)
        try:
            while not self._beside.closing and not collector.closed:
                if error := rewarding.error or upkeep.beside.error:
                    raise error
                self._admit()
                hand_out.give()
                hand_out.fetch()
        finally:
            upkeep.beside.close()
            hand_out.drop()

    def _admit(self) -> None:
        version = self.producer.workers().version
        with self._changed:
            further = (self._horizon - self.iteration) * self.settings.tasks_per_iteration
            self._groups.admit(further, self.version if version is None else version)
