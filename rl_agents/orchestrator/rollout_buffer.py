"""The source of an iteration's experience, and the weights that sample it (docs/explanation/staleness.md).

The learners' thread takes the experience of an iteration from a `RolloutBuffer`, and publishes its weights afterwards.
The buffer holds units, which `rl_agents.orchestrator.staleness_control.Admission` admits in order and releases when
they are complete. Each unit is rolled out in the caller's thread, or ahead of time in its own thread, then rewarded.

| mode | unit | admitted | sampled by |
|---|---|---|---|
| ``async_level=0`` | a batch | when it is asked for | the learners' weights |
| ``async_level=k`` | a batch | ``k`` iterations ahead | the weights of its admission, one batch after the other |
| ``stream=true`` | the group of a task | up to ``max_staleness`` | the newest weights that the engines have |

`BatchBuffer` is the first two, `rl_agents.orchestrator.streaming_rollouts.StreamBuffer` the last. A batch ``i`` is
sampled only by the weights of iteration ``max(first, i - k)``, where ``first`` is the iteration at which the run began
or was resumed. Its tasks and seeds depend only on the order of the batches, so that results do not depend on timing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.rollout_batch import Episodes, Experience, TaskPosition
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.staleness_control import Admission

#: Seconds after which a waiting thread checks again; interrupts arrive in between.
POLL_S = 0.5
#: Seconds for threads to notice that their env runners are gone.
CLOSE_S = 10.0


class Given:
    """Batches without sampling: demonstrations, or a pool's sessions, without engine and recorder."""

    samples = False

    def __init__(self, take: Callable[[int, int], Experience], items: Callable[[], Iterable[str]]) -> None:
        """
        Args:
            take: (iteration, position in the stream) -> the iteration's experience.
            items: return the names of what the stream is drawn from, in order.
        """
        self._take, self.items = take, items

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
        workers, learners: return the present ones; dead learners are replaced.
    """

    episodes: Episodes
    workers: Callable[[], RolloutWorkers]
    learners: Callable[[], AgentLearnerGroup]
    samples: bool = True

    def play(self, iteration: int, place: TaskPosition) -> Experience:
        """Return an iteration's experience; raises like `Episodes.play`.

        Args:
            place: position in the stream of tasks before it.
        """
        return self.episodes.play(self.workers().collector, iteration, place)

    def sync(self, version: int) -> None:
        """Let the learners' present weights sample the next batch (in the learners' thread)."""
        self.workers().sync(self.learners(), version)

    def export(self) -> Any:
        """Return the learners' present weights (in the learners' thread); raises `LearnerLost`."""
        return self.learners().export_weights()

    def push(self, weights: Any, version: int) -> None:
        """Let weights from `export` sample the next batch."""
        self.workers().push(weights, version)

    def recorded(self) -> bool:
        """Wait until all samples are in the pool; return False if some may be lost."""
        collector = self.workers().collector
        return collector.recording is None or collector.recorded()


Producer = Given | Sampled


@dataclass(eq=False)
class Unit:
    """The unit of rollouts: a batch, or a group.

    Attributes:
        version: of the weights that sample it, or that engines had at its admission.
        begun: its rollout is in progress or complete.
        error: raised by the rollout.
    """

    number: int
    version: int
    begun: bool = False
    error: BaseException | None = None


@dataclass(eq=False)
class Batch(Unit):
    """The experience of one iteration.

    Attributes:
        weights: to push before it, and their version; None: the learners' present ones, or they were pushed.
        admitted: number of completed iterations at its admission.
        experience, after: its result, and the position in the stream of tasks after it; None: not rolled out yet.
        recorded: all its samples are in the pool; None: not known yet.
    """

    weights: tuple[Any, int] | None = None
    admitted: int = 0
    experience: Experience | None = None
    after: TaskPosition | None = None
    recorded: bool | None = None


class StaleBatch(AssertionError):
    """A batch was sampled by other weights than required, which is a bug."""


class Closed(Exception):
    """A unit is no longer needed."""


U = TypeVar("U", bound=Unit)


class RolloutBuffer(Generic[U]):
    """The common part of both buffers: a table of units, and a thread for each.

    A subclass makes, rolls out and rewards its units, and collects them for an iteration.

    Attributes:
        iteration: number of iterations that were trained on.
        place: position in the stream of tasks after them.
        served: versions of the calls that a resumed run's pool serves again.
    """

    _make: Callable[[int], U]
    _roll_out: Callable[[U, threading.Event], None]
    _reward: Callable[[U, threading.Event], None]
    _collect: Callable[[int], Experience]
    _admission: Admission

    def __init__(self, producer: Producer, iterations: int, *, ahead: bool) -> None:
        """
        Args:
            iterations: of the run, which limit the units, unless the run is continued beyond.
            ahead: units have threads; otherwise `next` rolls them out.
        """
        self.producer, self.iterations, self._ahead = producer, iterations, ahead
        #: Guards the table of units; notified of changes.
        self._changed = threading.Condition()
        self._closed = threading.Event()
        #: Number of threads that need env runners or engines.
        self._busy = 0

    def _restart(self, iteration: int, version: int, place: TaskPosition) -> None:
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

    def next(self, iteration: int) -> Experience:
        """Return the experience of ``iteration``; the same one until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: see `Episodes.play`.
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        if self._experience is None:
            if iteration >= self._horizon:  # the run is continued beyond its end
                self._horizon = math.inf
            self._experience = self._collect(iteration)
        return self._experience

    def _trained(self, version: int, place: TaskPosition) -> None:
        """Note that the learners have trained on the experience of `next`; ``_changed`` is held."""
        for number in self._admission.learned():
            del self._table[number]
        self.version, self.iteration, self.place, self._experience = version, self.iteration + 1, place, None

    def close(self) -> None:
        """Stop rollouts; requests to judges end by themselves."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the end of rollouts after env runners are gone, at most `CLOSE_S`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, CLOSE_S)

    # --- units -------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Admit and begin as many units as there is room for and the run needs."""
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
        """Start a thread; ``work`` receives the stop event, and calls `_leave` when it no longer needs env runners."""
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
        """Wait until a condition holds; raise an error that makes it impossible."""
        with self._changed:
            while not until():
                if (error := failed()) is not None:
                    raise error
                self._changed.wait(POLL_S)


class BatchBuffer(RolloutBuffer[Batch]):
    """Whole batches, one after the other.

    In the caller's thread batches are sampled as soon as their weights exist. ``ahead``: batch ``i`` is rolled out as
    soon as the weights of iteration ``i - async_level`` are published and the batch before it is complete. While a
    judge scores it, the next one is rolled out. `next` raises the exceptions of the thread of its batch.

    Attributes:
        async_level: number of iterations that batches are ahead of the learners.
    """

    def __init__(self, producer: Producer, async_level: int, iterations: int, *, ahead: bool = False) -> None:
        self.async_level = async_level
        super().__init__(producer, iterations, ahead=ahead)
        self.begin(0, 0, TaskPosition())

    def begin(self, iteration: int, version: int, place: TaskPosition, before: Sequence[Any] = ()) -> None:
        """Continue after ``iteration`` completed iterations; cancel units in flight.

        Args:
            before: see `in_flight`. The pool serves recorded calls of units in flight again. The present weights sample
                the other calls.
        """
        self._restart(iteration, version, place)
        self._before = {iteration + further: older for further, older in enumerate(before)}
        #: The next batch to roll out, and the position before it.
        self._turn, self._playing = iteration, place
        self._held = self._rolling = False
        #: The learners' weights and their version, once exported.
        self._exported: tuple[Any, int] | None = None
        self._admission = Admission(1, self.async_level, fifo=True)
        self._admission.resume(iteration, iteration, {})

    def _make(self, number: int) -> Batch:
        version = self._before.get(number, self.version)
        return Batch(number, version, weights=self._exported, admitted=self.iteration)

    def _export(self, version: int) -> None:
        """Export the learners' weights of ``version`` if rollouts will need them."""
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
        """Return the error that keeps batch ``number`` from completion, or None."""
        units = [unit for unit in self._table.values() if unit.number <= number]
        return next((unit.error for unit in units if unit.error is not None), None)

    def publish(self, version: int) -> None:
        """Note that the learners have trained on the experience of `next`; their weights are now ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        self._export(version)
        with self._changed:
            after = self._table[self.iteration].after
            assert after is not None
            self._trained(version, after)
            self._before.pop(self.iteration - 1, None)
            self._admission.publish(self.iteration)
            if self._ahead:
                self._admit()

    def recorded(self) -> bool:
        """Return whether the pool has all samples of the experience of `next`."""
        known = self._table[self.iteration].recorded
        return self.producer.recorded() if known is None else known

    def in_flight(self) -> list[int]:
        """Return the versions that sample the next ``async_level`` batches, in order.

        Empty if all are the present version, with which a resumed run samples these batches, too.
        """
        numbers = range(self.iteration, self.iteration + self.async_level)
        versions = [self._table[n].version if n in self._table else self._before.get(n, self.version) for n in numbers]
        return versions if any(version != self.version for version in versions) else []

    def oldest(self) -> int:
        """Return the oldest version of samples that will be trained on."""
        return min([self.version, *self._before.values(), *self.in_flight()])

    def settle(self) -> list[Trajectory]:
        """Before a checkpoint, wait until all batches of older weights, which a resumed run could not sample again, are
        complete or have failed; return episodes that may lack calls in the pool."""
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
        """Within this context the engines have the learners' weights, and the caller may use them.

        Waits for the present batch, and begins the next one afterwards.
        """
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
            unit.weights = None  # free the memory
        synced = time.perf_counter() - started
        experience = self.producer.play(unit.number, self._playing)
        after = self._playing.after(experience.played)  # independent of judges
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
        """Check that ``version`` sampled all steps that the pool did not serve; return the batch's oldest version."""
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
