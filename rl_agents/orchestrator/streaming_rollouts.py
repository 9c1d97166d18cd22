"""A stream: env runners run without a pause, with the newest weights at hand, and learners take what is finished.

Four kinds of threads of the driver share one table of groups: the learners' takes ``tasks_per_iteration`` whole groups
for an iteration; *rollouts* admits groups (`rl_agents.orchestrator.staleness_control`), hands them to env runners and
fetches what is done; *upkeep* gives engines new weights in the midst of episodes and brings back what was lost
(`Upkeep`); *reward* asks judges about groups that are complete. What is taken depends on timing; how old it is does not
exceed ``max_staleness``, which is asserted on every batch.

After a checkpoint a stream continues with the groups that had been admitted and not trained on: they are run again
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

from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError, RolloutError
from rl_agents.orchestrator.collector import (
    COME_BACK_S,
    DIED,
    MAX_ROUNDS,
    RESTART_PATIENCE_S,
    Collector,
    Lost,
    failed_episode,
)
from rl_agents.orchestrator.rollout_batch import Experience, Place
from rl_agents.orchestrator.rollout_buffer import Sampled, WorkerThread
from rl_agents.orchestrator.staleness_control import Admission, TooOld
from rl_agents.rollout.agent_loop import Rollouts

#: Seconds between two looks at who is back.
LOOK_S = 0.5
#: Seconds without any env runner after which a run ends.
GONE_S = 6 * RESTART_PATIENCE_S
#: Seconds after which a group is rewarded again that met a user error.
AGAIN_S = 1.0
#: Longest wait for an answer before new groups are looked after, in seconds.
WAIT_S = 0.1


@dataclass
class Group:
    """The episodes of one task.

    Attributes:
        version: of the engines' weights at the admission.
        attempt: how often some of the episodes had to be asked for again.
        fruitless: how often in a row that brought nothing.
        resampled: episodes that were asked for again.
        batch: of `rl_agents.orchestrator.collector`, while an env runner runs the group; None: it waits for one.
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
        return [spec for spec in self.specs if spec not in self.done]

    def trajectories(self) -> list[Trajectory]:
        return [self.done[spec] for spec in self.specs]


class Stream:
    """What `rl_agents.orchestrator.rollout_buffer.RolloutBuffer` does, without barriers.

    Attributes:
        iteration: batches that were trained on.
        version: of the learners' weights.
        place: where the stream of tasks stands: all groups that were trained on, whatever their order.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Sampled, iterations: int) -> None:
        """
        Args:
            iterations: of the run; no more groups are admitted than they need, unless somebody continues.
        """
        self.producer, self.episodes, self.settings = producer, producer.episodes, producer.episodes.settings
        self.iterations = iterations
        self._thread = WorkerThread("rollouts")
        #: Guards the table of groups; notified when a group is ready.
        self._changed = self._thread.changed
        self._upkeep: Upkeep | None = None
        self._closed = threading.Event()
        self.begin(0, 0, Place())

    # --- the learners' thread ----------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Go on after ``iteration`` completed ones; what is being run is given up.

        Args:
            version: of the learners' weights.
            place: behind what was trained on.
            before: see `in_flight`; these groups are run again.
        """
        self._end()
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        waiting = list(zip(before[::3], before[1::3], before[2::3], strict=True))
        with self._changed:
            self._admission = Admission(self.settings.tasks_per_iteration, self.settings.max_staleness)
            self._admission.go_on(iteration, place.position, {number: admitted for number, admitted, _ in waiting})
            self._table = {number: self._make(number, sampling) for number, _, sampling in waiting}
            self._closed = threading.Event()
            #: User errors of judges, and first prompts that are too long, while nothing else was heard.
            self._refused = self._hopeless = 0
            self._error: BaseException | None = None
        self._horizon: float = self.iterations
        self._experience: Experience | None = None
        self._upkeep = Upkeep(self.producer, self._changed, arrived=self._admission.publish, blamed=self._forgive)

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
        if self._upkeep is not None:
            experience.metrics["timing_s/sync"] = self._upkeep.push_s
        self._experience = experience
        return experience

    def publish(self, version: int) -> None:
        """The learners have trained on the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        assert self._experience is not None and self._upkeep is not None
        place = self.place.after(self._experience.played)
        weights = self.producer.export() if version != self.version else None
        with self._changed:
            for number in self._admission.learned():
                del self._table[number]
            self.place, self.version, self.iteration = place, version, self.iteration + 1
            self._experience = None
            self._upkeep.offer(weights, version, self.iteration)

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        complete = self.producer.recorded()
        with self._changed:
            for group in self._table.values():
                group.sure = group.sure and complete
            return all(self._table[number].sure for number in self._admission.taken)

    def in_flight(self) -> list[int]:
        """Number, iteration and version of the admission of every group that is not trained on, one after the other.

        They are what a checkpoint keeps of a stream, alongside its counters.
        """
        with self._changed:
            waiting = sorted({**self._admission.taken, **self._admission.waiting}.items())
            return [part for number, admitted in waiting for part in (number, admitted, self._table[number].version)]

    def oldest(self) -> int:
        """The oldest version that sampled what is to be trained on."""
        return min([self.version, *(group.version for group in self._groups())])

    def settle(self) -> list[Trajectory]:
        """Have the pool hold all calls so far, of unfinished episodes, too.

        Returns:
            Episodes that are finished and may lack calls there.
        """
        if self._thread.started:
            self.recorded()
        with self._changed:
            unsure = [group for group in self._table.values() if not group.sure]
            return [trajectory for group in unsure for trajectory in group.done.values()]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engines have the learners' weights meanwhile; what is being run continues alongside the caller's."""
        with self._changed:
            self._thread.wait(lambda: self._upkeep is None or not self._upkeep.pending())
        yield

    def close(self) -> None:
        """Run nothing any more; questions to judges that are under way are left to end by themselves."""
        self._thread.close()
        self._closed.set()
        if self._upkeep is not None:
            self._upkeep.thread.close()

    def join(self) -> None:
        """Wait until nothing is run, when env runners are gone; gives up after some seconds."""
        self._thread.join()
        if self._upkeep is not None:  # it would bring back the engines that are ended next
            self._upkeep.thread.join()

    def _take(self, played: list[Trajectory], missing: int, iteration: int) -> dict[str, float]:
        groups: list[Group] = []

        def there() -> bool:
            groups.extend(self._table[number] for number in self._admission.take(missing, iteration))
            return bool(groups)

        with self._changed:
            if played:
                self._admission.pass_over(missing)
                self._changed.notify_all()
            if not self._thread.wait(there):
                raise self._thread.reason()
        trajectories = [trajectory for group in groups for trajectory in group.trajectories()]
        self._check_age(trajectories)
        played.extend(trajectories)
        resampled = float(sum(group.resampled for group in groups))
        return {**self.episodes.reward.metrics(trajectories), "rollout/resampled_episodes": resampled}

    def _check_age(self, trajectories: Sequence[Trajectory]) -> None:
        oldest, bound = self.version, self._admission.bound
        oldest = min((step.policy_version for t in trajectories for step in t.steps), default=oldest)
        if self.version - oldest > bound:
            raise TooOld(f"a step of version {oldest} at version {self.version}: the bound is {bound}")

    # --- the thread *rollouts* ---------------------------------------------------------------------------------

    def _start(self) -> None:
        assert self._upkeep is not None
        if not self._thread.started:
            self._upkeep.offer(self.producer.export(), self.version, self.iteration)
            self.producer.workers().collector.exchanges.shared = True
            self._upkeep.start()
            self._thread.start(self._play)

    def _end(self) -> None:
        self.close()
        self._thread.end()
        if self._upkeep is not None:  # it gives engines weights, which are another run's then
            self._upkeep.thread.end()

    def _play(self) -> None:
        assert self._upkeep is not None
        collector = self.producer.workers().collector
        try:
            while not self._thread.closing and not collector.closed:
                if error := self._error or self._upkeep.thread.error:
                    raise error
                self._admit()
                self._hand_out(collector)
                self._fetch(collector)
        finally:
            self._upkeep.thread.close()
            collector.exchanges.drop([group.batch for group in self._groups() if group.batch is not None])

    def _groups(self) -> list[Group]:
        """All that are admitted and not trained on, in the order of their admission where none was run again."""
        with self._changed:
            return list(self._table.values())

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
        """Admit as many groups as there is room for, and as the run needs."""
        version = self.producer.workers().version
        with self._changed:
            needed = (self._horizon - self.iteration) * self.settings.tasks_per_iteration
            while self._admission.room() and self._admission.useful() < needed:
                number = self._admission.admit()
                self._table[number] = self._make(number, self.version if version is None else version)

    def _hand_out(self, collector: Collector) -> None:
        """Give groups that wait to the least busy env runners; those that lost one wait until it is known why."""
        assert self._upkeep is not None
        restoring = self._upkeep.restoring()
        for group in self._groups():
            if group.batch is not None or not group.missing() or (restoring and group.attempt):
                continue
            self._bury(collector, group)
            left, loads = group.missing(), collector.exchanges.loads()
            if not loads or not left:
                continue
            first = collector.first_attempt()
            options = {"temperature": None, "attempt": None if first is None else first + group.attempt}
            least_busy = min(loads, key=lambda runner: loads[runner])
            group.batch = collector.exchanges.submit(least_busy, "sample", left, options)

    def _bury(self, collector: Collector, group: Group) -> None:
        """Give up the episodes of a task in which env runners die; raises `EpisodesFail` when there is nothing else."""
        left = [spec for spec in group.missing() if collector.losses.deadly(spec)]
        if not left:
            return
        group.done.update({spec: failed_episode(spec, DIED) for spec in left})
        if not group.missing():
            self._complete(group)
        alive = sum(not t.failed for each in self._groups() for t in list(each.done.values()))
        collector.losses.check_deaths(alive + self._admission.iteration)

    def _fetch(self, collector: Collector) -> None:
        batches = {group.batch: group for group in self._groups() if group.batch is not None}
        if not batches:
            with self._changed:
                self._changed.wait(WAIT_S)
            return
        for number, answer in collector.exchanges.fetch(list(batches), WAIT_S).items():
            self._answered(batches[number], answer)

    def _answered(self, group: Group, answer: Rollouts | Lost) -> None:
        """Keep what came of a group; have the rest run again."""
        group.batch = None
        before = len(group.done)
        if isinstance(answer, Lost):
            events = [answer.event]
            group.sure = False
        else:
            if answer.input_error:
                self._refuse(answer)
            events = list(dict.fromkeys(answer.engine_errors))
            group.done.update(answer.by_job())
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
        assert self._upkeep is not None
        left = len(group.missing())
        group.attempt += 1
        group.resampled += left
        group.fruitless = group.fruitless + 1 if fruitless else 0
        if group.fruitless >= MAX_ROUNDS:
            raise RolloutError(f"{left} episodes missing after {MAX_ROUNDS} rounds; last losses: {event}")
        self._upkeep.strike()

    def _forgive(self) -> None:
        """It is known who is to blame for what was lost: no group's own doing."""
        for group in self._groups():
            group.fruitless = 0

    def _refuse(self, answer: Rollouts) -> None:
        """Raise a user error, unless only this group's first prompt is too long."""
        self._hopeless += 1
        if answer.unfinished or self._hopeless >= self._admission.batch:
            raise InputError(answer.input_error)

    # --- rewards -----------------------------------------------------------------------------------------------

    def _complete(self, group: Group) -> None:
        """Reward a group whose episodes are all there, so that no learner waits for a judge.

        A reward that asks somebody has a thread for each group under way; the judge's own bound (`judge_concurrency`)
        says how many questions it has at a time. Any other is worked out at once.
        """
        if self.episodes.reward.waits:
            threading.Thread(target=self._reward, args=(group, self._closed), name="reward", daemon=True).start()
        else:
            self._reward(group, self._closed)

    def _reward(self, group: Group, closed: threading.Event) -> None:
        """Reward until it works. A user error is the run's when B of them came.

        A judge that did not answer the first question may answer the next one, and a whole batch would have asked all.
        """
        reward = self.episodes.reward
        try:
            while not closed.is_set():
                try:
                    reward.apply(group.trajectories())
                except InputError:
                    with self._changed:
                        self._refused += not closed.is_set()
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
        except BaseException as error:
            with self._changed:
                if not closed.is_set():
                    self._error = error


class Upkeep:
    """One thread for weights and losses.

    Attributes:
        thread: what it raises is in its ``error``.
        push_s: seconds that the last weights took to reach the engines.
    """

    def __init__(
        self, producer: Sampled, changed: threading.Condition, *, arrived: Callable[[int], None],
        blamed: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        Args:
            changed: guards what the stream's threads share.
            arrived: called with the iterations whose weights the engines have; ``changed`` is held.
            blamed: called when a task is known to have ended a runner's process.
        """
        self.thread, self.push_s = WorkerThread("upkeep", changed), 0.0
        self._producer, self._changed, self._arrived, self._blamed = producer, changed, arrived, blamed
        #: Weights that the engines wait for, with their version and iteration.
        self._offered: tuple[Any, int, int] | None = None
        self._struck = False
        #: When those who are lost are not waited for any more; None: nobody is.
        self._until: float | None = None
        self._alone_since: float | None = None
        self._looked = 0.0

    def start(self) -> None:
        """Begin; what was offered is pushed first."""
        self.thread.start(self._work)

    def offer(self, weights: Any, version: int, iteration: int) -> None:
        """Have the engines get ``weights``; None: those offered before are these, or they have them.

        Args:
            iteration: whose weights they are.
        """
        with self._changed:
            if weights is None and self._offered is not None:
                weights = self._offered[0]
            self._offered = (weights, version, iteration)
            self._changed.notify_all()

    def pending(self) -> bool:
        return self._offered is not None

    def strike(self) -> None:
        """Something was lost: look after all."""
        with self._changed:
            self._struck = True
            self._changed.notify_all()

    def restoring(self) -> bool:
        """Whether what was lost should not be run again yet: engines come back, or it is not known who is blamed."""
        with self._changed:
            return self._struck or self._until is not None

    def _work(self) -> None:
        while not self.thread.closing:
            self._restore_engines()
            self._push()
            self._welcome()
            with self._changed:
                if not (self._struck or self._offered or self.thread.closing):
                    self._changed.wait(LOOK_S)

    def _restore_engines(self) -> None:
        with self._changed:
            if not self._struck:
                return
            self._until, self._struck = time.monotonic() + COME_BACK_S, False
        self._producer.workers().collector.losses.restore_engines()

    def _push(self) -> None:
        with self._changed:
            offered = self._offered
        if offered is None:
            return
        weights, version, iteration = offered
        started = time.perf_counter()
        if weights is not None:
            self._producer.push(weights, version)
        with self._changed:
            self.push_s = time.perf_counter() - started
            self._arrived(iteration)
            if self._offered is offered:
                self._offered = None
            self._changed.notify_all()

    def _welcome(self) -> None:
        """Take in who is back, and let the others continue after a while."""
        losses, now = self._producer.workers().collector.losses, time.monotonic()
        if losses.runners.absent() and now - self._looked >= LOOK_S:
            self._looked = now
            if losses.welcome(0.0):
                self._blamed()
        late = self._until is not None and now >= self._until
        for event in losses.overdue(COME_BACK_S) if late else []:
            print(f"[rl_agents] {event}", flush=True)
        with self._changed:
            if late or not losses.awaited():
                self._until = None
        self._check_alone(losses.runners.absent(), now, alone=not losses.runners.ids())

    def _check_alone(self, absent: list[int], now: float, *, alone: bool) -> None:
        """Give up when nobody has been there for long; raises `RolloutError`."""
        self._alone_since = (self._alone_since or now) if alone else None
        if self._alone_since is not None and now - self._alone_since >= GONE_S:
            names = ", ".join(map(str, absent))
            raise RolloutError(f"no env runner is alive: {names} did not come back within {GONE_S:.0f} s")
