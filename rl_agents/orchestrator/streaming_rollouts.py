"""Streaming rollouts: env runners sample without a pause, with the newest weights at hand.

The learners' thread takes ``tasks_per_iteration`` complete groups for an iteration. Each group that is admitted
(`rl_agents.orchestrator.staleness_control`) has a thread: it rolls the group out (`Collector.collect`), then asks for
its rewards. One more thread gives engines new weights in the middle of episodes. Which groups are taken depends on
timing; how old they are does not exceed ``max_staleness``, which is asserted on every batch.

After a checkpoint a stream continues with the groups that had been admitted and not trained on: they are rolled out
again with their old seeds, and the pool serves the calls that they had made. What was admitted later is forgotten.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.orchestrator.rollout_batch import Experience, Place
from rl_agents.orchestrator.rollout_buffer import CLOSE_S, POLL_S, Sampled, WorkerThread
from rl_agents.orchestrator.staleness_control import Admission, TooOld
from rl_agents.rollout.agent_loop import Rollouts

#: Seconds after which a group is rewarded again that met a user error.
AGAIN_S = 1.0


@dataclass
class Group:
    """The episodes of one task.

    Attributes:
        version: of the engines' weights at the admission.
        begun: it has a thread.
        episodes: all of them, once they are complete.
        resampled: episodes that were asked for again.
        sure: all its calls are in the pool, or will be there.
    """

    number: int
    version: int
    specs: Sequence[EpisodeSpec]
    begun: bool = False
    episodes: list[Trajectory] = field(default_factory=list)
    resampled: int = 0
    sure: bool = True


class Stream:
    """What `rl_agents.orchestrator.rollout_buffer.RolloutBuffer` does, without barriers.

    Attributes:
        iteration: batches that were trained on.
        version: of the learners' weights.
        place: where the stream of tasks is: all groups that were trained on, whatever their order.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Sampled, iterations: int) -> None:
        """
        Args:
            iterations: of the run; no more groups are admitted than they need, unless the run is continued beyond.
        """
        self.producer, self.episodes, self.settings = producer, producer.episodes, producer.episodes.settings
        self.iterations = iterations
        self._pusher = WorkerThread("weight sync")
        #: Guards the table of groups; notified when a group is complete.
        self._changed = self._pusher.changed
        self._closed = threading.Event()
        #: Threads that roll groups out.
        self._rolling = 0
        self.begin(0, 0, Place())

    # --- the learners' thread ----------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Continue after ``iteration`` completed ones; what is being rolled out is given up.

        Args:
            version: of the learners' weights.
            place: behind what was trained on.
            before: see `in_flight`; these groups are rolled out again.
        """
        self.close()
        with self._changed:
            while self._rolling:  # in slices: an interrupt arrives in between
                self._changed.wait(POLL_S)
        self._pusher.end()  # it gives engines weights, which are another run's then
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        waiting = list(zip(before[::3], before[1::3], before[2::3], strict=True))
        with self._changed:
            self._admission = Admission(self.settings.tasks_per_iteration, self.settings.max_staleness)
            self._admission.go_on(iteration, place.position, {number: admitted for number, admitted, _ in waiting})
            self._table = {number: self._make(number, sampling) for number, _, sampling in waiting}
            self._closed = threading.Event()
            #: User errors of judges, and first prompts that are too long, since a group was rolled out without one.
            self._refused = self._hopeless = 0
            self._error: BaseException | None = None
            #: Weights that the engines wait for, with their version and iteration.
            self._offered: tuple[Any, int, int] | None = None
        self._horizon: float = self.iterations
        self._experience: Experience | None = None
        self._push_s = 0.0

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` trains on; the same again until new weights are published.

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
        self._experience = experience
        return experience

    def publish(self, version: int) -> None:
        """The learners have trained on the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        assert self._experience is not None
        place = self.place.after(self._experience.played)
        weights = self.producer.export() if version != self.version else None
        with self._changed:
            for number in self._admission.learned():
                del self._table[number]
            self.place, self.version, self.iteration = place, version, self.iteration + 1
            self._experience = None
            if weights is None and self._offered is not None:
                weights = self._offered[0]
            self._offer(weights)

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        complete = self.producer.recorded()
        with self._changed:
            for group in self._table.values():
                group.sure = group.sure and complete
            return all(self._table[number].sure for number in self._admission.taken)

    def in_flight(self) -> list[int]:
        """Number, iteration and version of the admission of every group that is not trained on, one after the other.

        A checkpoint keeps them, next to the counters.
        """
        with self._changed:
            waiting = sorted({**self._admission.taken, **self._admission.waiting}.items())
            return [part for number, admitted in waiting for part in (number, admitted, self._table[number].version)]

    def oldest(self) -> int:
        """The oldest version that sampled what is to be trained on."""
        with self._changed:
            return min([self.version, *(group.version for group in self._table.values())])

    def settle(self) -> list[Trajectory]:
        """Have the pool hold all calls so far, those of unfinished episodes included.

        Returns:
            Episodes of complete groups that may lack calls there.
        """
        if self._pusher.started:
            self.recorded()
        with self._changed:
            return [episode for group in self._table.values() if not group.sure for episode in group.episodes]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engines have the learners' weights meanwhile; rollouts continue alongside the caller's."""
        with self._changed:
            self._pusher.wait(lambda: self._offered is None)
        yield

    def close(self) -> None:
        """Roll out nothing any more; judges that are being asked are left to end by themselves."""
        self._pusher.close()
        self._closed.set()

    def join(self) -> None:
        """Wait until nothing is rolled out, when env runners are gone; gives up after some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._rolling, CLOSE_S)
        self._pusher.join()

    def _take(self, played: list[Trajectory], missing: int, iteration: int) -> dict[str, float]:
        groups: list[Group] = []
        with self._changed:
            if played:
                self._admission.pass_over(missing)
                self._admit()
            while not groups:
                groups = [self._table[number] for number in self._admission.take(missing, iteration)]
                if not groups and (error := self._error or self._pusher.error) is not None:
                    raise error
                if not groups:
                    self._changed.wait(POLL_S)
        trajectories = [trajectory for group in groups for trajectory in group.episodes]
        self._check_age(trajectories)
        played.extend(trajectories)
        resampled = float(sum(group.resampled for group in groups))
        return {**self.episodes.reward.metrics(trajectories), "rollout/resampled_episodes": resampled}

    def _check_age(self, trajectories: Sequence[Trajectory]) -> None:
        oldest, bound = self.version, self._admission.bound
        oldest = min((step.policy_version for t in trajectories for step in t.steps), default=oldest)
        if self.version - oldest > bound:
            raise TooOld(f"a step of version {oldest} at version {self.version}: the bound is {bound}")

    # --- weights -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._pusher.started:
            self.producer.workers().collector.exchanges.shared = True
            self._offer(self.producer.export())
            self._pusher.start(self._push_all)

    def _offer(self, weights: Any) -> None:
        """Have the engines get ``weights``, the learners' present ones; None: they have them."""
        with self._changed:
            self._offered = (weights, self.version, self.iteration)
            self._changed.notify_all()

    def _push_all(self) -> None:
        """In the thread *weight sync*: push what is offered, and look who is back."""
        while not self._pusher.closing:
            if (offered := self._offered) is not None:
                self._push(*offered)
            self.producer.workers().collector.losses.look()
            with self._changed:
                if self._offered is None and not self._pusher.closing:
                    self._changed.wait(POLL_S)

    def _push(self, weights: Any, version: int, iteration: int) -> None:
        started = time.perf_counter()
        with self.producer.workers().collector.losses.lock:
            if weights is not None:
                self.producer.push(weights, version)
        with self._changed:
            self._push_s = time.perf_counter() - started
            self._admission.publish(iteration)
            if self._offered is not None and self._offered[1:] == (version, iteration):
                self._offered = None
            self._admit()
            self._changed.notify_all()

    # --- groups ------------------------------------------------------------------------------------------------

    def _make(self, number: int, version: int) -> Group:
        """Return a group with the task and the seeds that its number stands for.

        Args:
            version: of the engines' weights at its admission.
        """
        iteration, first = divmod(number, self.settings.tasks_per_iteration)
        specs = training_specs(
            self.episodes.tasks, iteration, 1, self.settings.group_size, self.settings.seed, position=number,
            first_group=first, left_out=self.place.bad.left_out,
        )  # fmt: skip
        return Group(number, version, [replace(spec, group_id=number) for spec in specs])

    def _admit(self) -> None:
        """Admit as many groups as there is room for, and as the run needs; ``_changed`` is the caller's."""
        version = self.producer.workers().version
        needed = (self._horizon - self.iteration) * self.settings.tasks_per_iteration
        while self._admission.room() and self._admission.useful() < needed:
            number = self._admission.admit()
            self._table[number] = self._make(number, self.version if version is None else version)
        for group in self._table.values():
            if not group.begun:
                group.begun, self._rolling = True, self._rolling + 1
                threading.Thread(target=self._run, args=(group, self._closed), name="rollouts", daemon=True).start()

    def _run(self, group: Group, closed: threading.Event) -> None:
        """In a thread of its own: roll a group out, then reward it."""
        try:
            try:
                self._roll_out(group, closed)
            finally:
                with self._changed:
                    self._rolling -= 1
                    self._changed.notify_all()
            self._reward(group, closed)
        except BaseException as error:
            with self._changed:
                if not closed.is_set():
                    self._error = error
                    self._changed.notify_all()

    def _roll_out(self, group: Group, closed: threading.Event) -> None:
        collected = self.producer.workers().collector.collect(group.specs, record=True, company=_Others(self, closed))
        for event in collected.events:
            print(f"[rl_agents] {event}; repeating its episodes", flush=True)
        with self._changed:
            group.episodes, group.resampled = collected.answers, collected.resampled
            if any(trajectory.steps for trajectory in group.episodes):
                self._hopeless = 0

    def _reward(self, group: Group, closed: threading.Event) -> None:
        """Reward until it works, so that no learner waits for a judge. A user error is the run's when B of them came.

        A judge that did not answer the first question may answer the next one, and a whole batch would have asked all.
        The judge's own bound (`judge_concurrency`) says how many questions it has at a time.
        """
        reward = self.episodes.reward
        while not closed.is_set():
            try:
                reward.apply(group.episodes)
            except InputError:
                with self._changed:
                    self._refused += 1
                    last = self._refused >= self._admission.batch
                if last or not reward.waits:
                    raise
                closed.wait(AGAIN_S)
            else:
                break
        with self._changed:
            if not closed.is_set():
                self._admission.finish(group.number)
                self._changed.notify_all()


@dataclass(frozen=True)
class _Others:
    """The other groups of a stream, for `rl_agents.orchestrator.collector.Collector.gather`."""

    stream: Stream
    over: threading.Event

    def closed(self) -> bool:
        return self.over.is_set()

    def completed(self) -> int:
        with self.stream._changed:
            alive = sum(not t.failed for group in self.stream._table.values() for t in group.episodes)
            return alive + self.stream._admission.iteration

    def tolerates(self, answers: Rollouts) -> bool:
        """Only this group's first prompt may be too long."""
        with self.stream._changed:
            self.stream._hopeless += 1
            return not answers.unfinished and self.stream._hopeless < self.stream._admission.batch
