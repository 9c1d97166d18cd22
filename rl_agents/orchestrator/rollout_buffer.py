"""Where the experience of an iteration comes from, and which weights sampled it (docs/explanation/staleness.md).

The learners' thread takes the experience of an iteration from a `RolloutBuffer` and publishes its weights after each.
The buffer holds units, which `rl_agents.orchestrator.staleness_control.Admission` admits in order and hands out when
they are complete. Each unit is rolled out in the caller's thread, or ahead in a thread of its own, then rewarded.

| mode | unit | admitted | sampled by |
|---|---|---|---|
| ``async_level=0`` | a batch | when it is asked for | the learners' weights |
| ``async_level=k`` | a batch | ``k`` iterations ahead | the weights of its admission, one batch after the other |
| ``stream=true`` | the group of a task | up to ``max_staleness`` | the newest weights that the engines have |

`BatchBuffer` is the first two, `rl_agents.orchestrator.streaming_rollouts.StreamBuffer` the last. A batch ``i`` is
sampled by the weights of iteration ``max(first, i - k)`` alone, where ``first`` is the iteration at which the run began
or was resumed. Its tasks and seeds depend on the order of the batches only: the results do not depend on timing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.rollout_batch import Episodes, Experience, TaskPosition
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.staleness_control import Admission

#: Seconds after which a waiting thread looks again; interrupts arrive in between.
POLL_S = 0.5
#: Seconds that threads may take to notice that their env runners are gone.
CLOSE_S = 10.0


class Given:
    """Batches without sampling: demonstrations, or a pool's sessions. There is no engine, and nothing to record."""

    samples = False

    def __init__(self, take: Callable[[int, int], Experience]) -> None:
        """
        Args:
            take: iteration and position in the stream -> what the iteration trains on.
        """
        self._take = take

    def play(self, iteration: int, place: TaskPosition) -> Experience:
        return self._take(iteration, place.position)

    def sync(self, version: int) -> None: ...

    def export(self) -> Any: ...

    def push(self, weights: Any, version: int) -> None: ...

    def recorded(self) -> bool:
        return True


@dataclass(frozen=True)
class Sampled:
    """Batches of episodes that env runners sample.

    Attributes:
        workers, learners: those of the moment; learners that die are replaced by others.
    """

    episodes: Episodes
    workers: Callable[[], RolloutWorkers]
    learners: Callable[[], AgentLearnerGroup]
    samples: bool = True

    def play(self, iteration: int, place: TaskPosition) -> Experience:
        """Return what an iteration trains on; raises as `Episodes.play` does.

        Args:
            place: of the stream of tasks before it.
        """
        return self.episodes.play(self.workers().collector, iteration, place)

    def sync(self, version: int) -> None:
        """Have the next batch sampled by the learners' weights as they are (in the learners' thread)."""
        self.workers().sync(self.learners(), version)

    def export(self) -> Any:
        """Return the learners' weights as they are (in the learners' thread); raises `LearnerLost`."""
        return self.learners().export_weights()

    def push(self, weights: Any, version: int) -> None:
        """Have the next batch sampled by weights that `export` returned."""
        self.workers().push(weights, version)

    def recorded(self) -> bool:
        """Wait until all that was sampled is in the pool; False where some of it may be lost."""
        collector = self.workers().collector
        return collector.recording is None or collector.recorded()


Producer = Given | Sampled


@dataclass(eq=False)
class Unit:
    """What is rolled out by itself: a batch, or a group.

    Attributes:
        version: of the weights that sample it, or that engines had when it was admitted.
        begun: it is being rolled out, or complete.
        error: what that raised.
    """

    number: int
    version: int
    begun: bool = False
    error: BaseException | None = None


@dataclass(eq=False)
class Batch(Unit):
    """What one iteration trains on.

    Attributes:
        weights: to be pushed before it, and their version; None: the learners' present ones, or they were pushed.
        admitted: iterations that were completed at its admission.
        experience, after: its result, and the place of the stream of tasks behind it; None: not rolled out yet.
        recorded: all that was sampled for it is in the pool; None: not asked yet.
    """

    weights: tuple[Any, int] | None = None
    admitted: int = 0
    experience: Experience | None = None
    after: TaskPosition | None = None
    recorded: bool | None = None


class StaleBatch(AssertionError):
    """A batch was not sampled by the weights that it had to be sampled by: an error of this program."""


class Closed(Exception):
    """A unit is not wanted any more."""


U = TypeVar("U", bound=Unit)


class RolloutBuffer(Generic[U]):
    """What both kinds of buffers share: the learners' side, and a thread for each unit.

    Attributes:
        iteration: iterations whose experience was trained on.
        place: in the stream of tasks, behind what was trained on.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Producer, iterations: int, *, ahead: bool) -> None:
        """
        Args:
            iterations: of the run; no more units are admitted than they need, unless the run is continued beyond.
            ahead: units have threads; otherwise they are rolled out when `next` is called.
        """
        self.producer, self.iterations, self._ahead = producer, iterations, ahead
        #: Guards the table of units; notified when one has changed.
        self._changed = threading.Condition()
        self._closed = threading.Event()
        #: Threads that need env runners or engines.
        self._busy = 0
        self.begin(0, 0, TaskPosition())

    def begin(self, iteration: int, version: int, place: TaskPosition, before: Sequence[int] = ()) -> None:
        """Continue after ``iteration`` completed ones; what is in flight is given up.

        Args:
            before: see `in_flight`. The pool serves what was in flight again; what it does not hold is sampled by the
                present weights.
        """
        self.close()
        with self._changed:
            while self._busy:
                self._changed.wait(POLL_S)
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        self._closed = threading.Event()
        self._horizon: float = self.iterations
        self._experience: Experience | None = None
        self._table: dict[int, U] = {}
        self._admission = self._reset(before)

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` trains on; the same again until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: as `Episodes.play` does.
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        if self._experience is None:
            if iteration >= self._horizon:  # the run is continued beyond its end
                self._horizon = math.inf
            self._experience = self._collect(iteration)
        return self._experience

    def publish(self, version: int) -> None:
        """The learners have trained on the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        self._export(version)
        with self._changed:
            self.place = self._place_behind()
            for number in self._admission.learned():
                del self._table[number]
            self.version, self.iteration, self._experience = version, self.iteration + 1, None
            self._published()

    def close(self) -> None:
        """Roll out nothing any more; judges that are being asked are left to end by themselves."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until nothing is rolled out, when env runners are gone; gives up after some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, CLOSE_S)

    # --- what the kinds differ in ------------------------------------------------------------------------------

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        raise NotImplementedError

    def in_flight(self) -> list[int]:
        """What a checkpoint keeps of units that are not trained on, next to the counters."""
        raise NotImplementedError

    def oldest(self) -> int:
        """The oldest version that sampled what is to be trained on."""
        raise NotImplementedError

    def settle(self) -> list[Trajectory]:
        """Before a checkpoint: complete what a resumed run could not sample again.

        Returns:
            Episodes that may lack calls in the pool.
        """
        raise NotImplementedError

    def paused(self) -> AbstractContextManager[None]:
        """The engines have the learners' weights meanwhile, and the caller may use them."""
        raise NotImplementedError

    def _reset(self, before: Sequence[int]) -> Admission:
        raise NotImplementedError

    def _make(self, number: int) -> U:
        raise NotImplementedError

    def _collect(self, iteration: int) -> Experience:
        raise NotImplementedError

    def _place_behind(self) -> TaskPosition:
        raise NotImplementedError

    def _export(self, version: int) -> None:
        """Export the learners' weights, which are called ``version``, where rollouts will need them."""
        raise NotImplementedError

    def _published(self) -> None:
        """Use the weights that were exported; ``_changed`` is held."""
        raise NotImplementedError

    def _roll_out(self, unit: U, closed: threading.Event) -> None:
        raise NotImplementedError

    def _reward(self, unit: U, closed: threading.Event) -> None:
        raise NotImplementedError

    # --- units -------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Admit as many units as there is room for, and as the run needs, and begin them."""
        with self._changed:
            needed = (self._horizon - self.iteration) * self._admission.batch
            while self._admission.room() and self._admission.useful() < needed:
                unit = self._make(self._admission.admitted)
                self._table[self._admission.admit()] = unit
                if not self._ahead:
                    self._run_here(unit)
            for unit in self._table.values():
                if not unit.begun:
                    unit.begun = True
                    self._spawn(partial(self._run, unit))

    def _spawn(self, work: Callable[[threading.Event], None]) -> None:
        """Start a thread; ``work`` gets the sign to end, and calls `_leave` when it no longer needs env runners."""
        self._busy += 1
        threading.Thread(target=work, args=(self._closed,), name="rollouts", daemon=True).start()

    def _leave(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()

    def _run(self, unit: U, closed: threading.Event) -> None:
        """Roll a unit out, and reward it."""
        try:
            try:
                self._roll_out(unit, closed)
            finally:
                self._leave()
            self._reward(unit, closed)
            with self._changed:
                if not closed.is_set():
                    self._admission.finish(unit.number)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                unit.error = error
                self._changed.notify_all()

    def _run_here(self, unit: U) -> None:
        unit.begun = True
        try:
            self._roll_out(unit, self._closed)
            self._reward(unit, self._closed)
        except BaseException:
            del self._table[unit.number]
            self._admission.withdraw()
            raise
        self._admission.finish(unit.number)

    def _wait(self, until: Callable[[], Any], failed: Callable[[], BaseException | None]) -> None:
        """Wait until a condition holds; raise what makes that impossible."""
        with self._changed:
            while not until():
                if (error := failed()) is not None:
                    raise error
                self._changed.wait(POLL_S)


class BatchBuffer(RolloutBuffer[Batch]):
    """Whole batches, one after the other.

    In the caller's thread batches are sampled as early as their weights exist. ``ahead``: batch ``i`` is rolled out as
    soon as the weights of iteration ``i - async_level`` are published and the batch before it is complete. While a
    judge is asked about it, the next one is rolled out. What its thread raises is raised by `next` when the batch is
    asked for, not before.

    Attributes:
        async_level: iterations that batches are ahead of the learners.
    """

    def __init__(self, producer: Producer, async_level: int, iterations: int, *, ahead: bool = False) -> None:
        self.async_level = async_level
        super().__init__(producer, iterations, ahead=ahead)

    def _reset(self, before: Sequence[int]) -> Admission:
        self._before = {self.iteration + further: older for further, older in enumerate(before)}
        #: The batch that is rolled out next, and the place before it.
        self._turn, self._playing = self.iteration, self.place
        self._held = self._rolling = False
        #: The learners' weights, and their version, once they were exported.
        self._exported: tuple[Any, int] | None = None
        admission = Admission(1, self.async_level, fifo=True)
        admission.go_on(self.iteration, self.iteration, {})
        return admission

    def _make(self, number: int) -> Batch:
        version = self._before.get(number, self.version)
        return Batch(number, version, weights=self._exported, admitted=self.iteration)

    def _export(self, version: int) -> None:
        new = self._exported is None or self._exported[1] != version
        if self._ahead and new and self._admission.admitted < self._horizon:
            self._exported = self.producer.export(), version

    def _collect(self, iteration: int) -> Experience:
        started = time.perf_counter()
        self._export(self.version)
        self._admit()
        self._wait(lambda: self._admission.take(1, iteration), lambda: self._error(iteration))
        experience = self._table[iteration].experience
        assert experience is not None
        if self.async_level:
            experience.metrics["timing_s/wait_rollout"] = time.perf_counter() - started
        return experience

    def _error(self, number: int) -> BaseException | None:
        """Why batch ``number`` is never complete."""
        units = [unit for unit in self._table.values() if unit.number <= number]
        return next((unit.error for unit in units if unit.error is not None), None)

    def _place_behind(self) -> TaskPosition:
        after = self._table[self.iteration].after
        assert after is not None
        return after

    def _published(self) -> None:
        self._before.pop(self.iteration - 1, None)
        self._admission.publish(self.iteration)
        if self._ahead:
            self._admit()

    def recorded(self) -> bool:
        known = self._table[self.iteration].recorded
        return self.producer.recorded() if known is None else known

    def in_flight(self) -> list[int]:
        """The versions that sample the next ``async_level`` batches, in order.

        Empty where all are the present weights': a resumed run samples these batches with the same ones.
        """
        numbers = range(self.iteration, self.iteration + self.async_level)
        versions = [self._table[n].version if n in self._table else self._before.get(n, self.version) for n in numbers]
        return versions if any(version != self.version for version in versions) else []

    def oldest(self) -> int:
        return min([self.version, *self._before.values(), *self.in_flight()])

    def settle(self) -> list[Trajectory]:
        """Wait until all that older weights than the present ones have to sample is complete, or has failed."""
        if not self._ahead or not self._table:
            return []
        end = min(self.iteration + self.async_level, self._horizon)
        with self._changed:
            while self._turn < end and self._table[self._turn].error is None and not self._closed.is_set():
                self._changed.wait(POLL_S)
            waiting = [unit for unit in self._table.values() if unit.number < end and not unit.recorded]
        return [trajectory for unit in waiting if unit.experience for trajectory in unit.experience.played]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `RolloutBuffer.paused`; the batch under way is waited for, and the next one begins afterwards."""
        try:
            with self._changed:
                self._held = True
                self._changed.wait_for(lambda: not self._rolling)
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def _roll_out(self, unit: Batch, closed: threading.Event) -> None:
        with self._changed:
            while self._turn != unit.number or self._held:
                if closed.is_set():
                    raise Closed
                self._changed.wait(POLL_S)
            self._rolling = True
        try:
            self._sample(unit, closed)
        finally:
            with self._changed:
                self._rolling = False
                self._changed.notify_all()

    def _sample(self, unit: Batch, closed: threading.Event) -> None:
        started, version = time.perf_counter(), self.version if unit.weights is None else unit.weights[1]
        if unit.weights is None:
            self.producer.sync(version)
        else:
            self.producer.push(*unit.weights)
            unit.weights = None  # they are large
        synced = time.perf_counter() - started
        experience = self.producer.play(unit.number, self._playing)
        after = self._playing.after(experience.played)  # does not depend on a judge
        if not self._ahead:
            experience.judge()
        if self.producer.samples:
            experience.metrics["timing_s/sync"] = synced
        experience.metrics["timing_s/rollout"] = time.perf_counter() - started
        oldest = self._oldest(unit, experience, version)
        if self.async_level:
            behind = unit.number - unit.admitted if oldest == version else min(unit.number, self.async_level)
            experience.metrics["rollout/async_level"] = float(behind)
        recorded = self.producer.recorded() if self._ahead else None
        with self._changed:
            if closed.is_set():
                raise Closed
            unit.version, unit.experience, unit.after, unit.recorded = oldest, experience, after, recorded
            self._turn, self._playing = unit.number + 1, after

    def _oldest(self, unit: Batch, experience: Experience, version: int) -> int:
        """Check that ``version`` sampled all that the pool has not served; return the oldest version of the batch."""
        if not self.producer.samples:
            return version
        sampled = {v for t in experience.played for step in t.steps for v in _versions(step)}
        if not sampled <= {version, *self.served}:
            found = f"batch {unit.number} was sampled by versions {sorted(sampled)}"
            raise StaleBatch(f"{found} instead of {version}")
        return min(sampled, default=version)

    def _reward(self, unit: Batch, closed: threading.Event) -> None:
        assert unit.experience is not None
        unit.experience.judge()


def _versions(step: Step) -> tuple[int, ...]:
    return tuple(version for version, _ in step.version_spans) or (step.policy_version,)
