"""Where the experience of an iteration comes from, and which weights sampled it (docs/explanation/staleness.md).

The *producing* side rolls out batch after batch, one for each iteration. The *learning* side takes them in order and
publishes its weights after each. Batch ``i`` is sampled by the weights of iteration ``max(first, i - async_level)``
alone, where ``first`` is the iteration at which the run began or was resumed. Tasks and seeds are chosen on the
producing side, in the order of the batches: the results do not depend on timing.

`RolloutBuffer` holds whole batches, rolled out in the caller's thread or ahead in a separate thread.
`rl_agents.orchestrator.streaming_rollouts.Stream` holds groups instead.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.rollout_batch import Episodes, Experience, Place
from rl_agents.orchestrator.rollout_workers import RolloutWorkers

#: Seconds between two looks at whether the thread lives.
POLL_S = 0.5
#: Seconds that the thread may take to notice that its env runners are gone.
CLOSE_S = 10.0


class WorkerThread:
    """A thread of the driver next to the learners'. It keeps what it raised.

    Code that shares tables with it holds ``changed``, and notifies it after a change.

    Attributes:
        changed: guards what is shared with the thread.
        closing: the thread is to end; it looks itself.
        error: what it raised.
    """

    def __init__(self, name: str, changed: threading.Condition | None = None) -> None:
        """
        Args:
            changed: of another thread that shares the same tables.
        """
        self.changed = changed or threading.Condition()
        self.closing = False
        self.error: BaseException | None = None
        self._name = name
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._thread is not None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Start a thread that does ``work``, which looks at ``closing`` now and then."""

        def watched() -> None:
            try:
                work()
            except BaseException as error:
                self.error = error
            finally:
                with self.changed:
                    self.changed.notify_all()

        self._thread = threading.Thread(target=watched, name=self._name, daemon=True)
        self._thread.start()

    def wait(self, until: Callable[[], bool]) -> bool:
        """Wait, with ``changed``, until a condition holds or the thread has ended; return whether it holds."""
        while not (so := until()) and self.alive:
            self.changed.wait(POLL_S)
        return so or until()  # it may have become so just before the end

    def reason(self) -> BaseException:
        """Return why the thread has ended."""
        return self.error or RuntimeError(f"the thread of {self._name} has ended")

    def close(self) -> None:
        """Tell the thread to end; does not wait for it."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, when env runners are gone; gives up after some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def end(self) -> None:
        """Tell the thread to end, wait for as long as it takes, and forget it and its error."""
        self.close()
        while self.alive:
            assert self._thread is not None
            self._thread.join(POLL_S)  # in slices: an interrupt arrives in between
        self._thread, self.error, self.closing = None, None, False


class Given:
    """Batches without sampling: demonstrations, or a pool's sessions. There is no engine, and nothing to record."""

    samples = False

    def __init__(self, take: Callable[[int, int], Experience]) -> None:
        """
        Args:
            take: iteration and position in the stream -> what the iteration trains on.
        """
        self._take = take

    def play(self, iteration: int, place: Place) -> Experience:
        return self._take(iteration, place.position)

    def sync(self, version: int) -> None: ...

    def export(self) -> Any: ...

    def push(self, weights: Any, version: int) -> None: ...

    def recorded(self) -> bool:
        return True


@dataclass(frozen=True)
class Sampled:
    """Batches of episodes that env runners run.

    Attributes:
        workers, learners: those of the moment; learners that die are replaced by others.
    """

    episodes: Episodes
    workers: Callable[[], RolloutWorkers]
    learners: Callable[[], AgentLearnerGroup]
    samples: bool = True

    def play(self, iteration: int, place: Place) -> Experience:
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


#: Makes batches.
Producer = Given | Sampled


@dataclass(frozen=True)
class Batch:
    """What one iteration trains on.

    Attributes:
        version: of the weights that sampled it.
        after: the place of the stream of tasks behind it.
        judging: the thread that asks for its rewards; None: they are there.
        recorded: all that was sampled for it is in the pool; None: not asked yet.
    """

    experience: Experience
    version: int
    after: Place
    judging: WorkerThread | None = None
    recorded: bool | None = None


class StaleBatch(AssertionError):
    """A batch was not sampled by the weights that it had to be sampled by: an error of this program."""


class RolloutBuffer:
    """Whole batches, in order.

    In the caller's thread: with ``async_level=0`` a batch is sampled when it is asked for, else as early as its weights
    exist. ``ahead``: batch ``i`` is rolled out as soon as the weights of iteration ``i - lag`` are published, in a
    thread that alone samples, counts tasks and gives engines weights; the learners' thread exports them. Where a judge
    is asked, each batch has a thread for that, and the next batch is rolled out meanwhile. What a thread raises is
    raised by `next` when its batch is asked for, not before.

    Attributes:
        iteration: batches that were trained on.
        version: of the learners' weights.
        place: in the stream of tasks, behind what was trained on.
        lag: ``async_level``.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Producer, lag: int, iterations: int, *, ahead: bool = False) -> None:
        """
        Args:
            iterations: of the run; later batches are rolled out only when they are asked for.
        """
        self.producer, self.lag, self.iterations, self._ahead = producer, lag, iterations, ahead
        self._thread = WorkerThread("rollouts")
        self._changed = self._thread.changed
        self._held = self._busy = False
        self.begin(0, 0, Place())

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Continue after ``iteration`` completed ones; batches in flight are forgotten.

        The one under way is completed first, so that the pool has it.

        Args:
            version: of the learners' weights.
            place: behind what was trained on.
            before: see `in_flight`. The pool serves the batches that were in flight again; what it does not hold is
                sampled by the present weights.
        """
        self._thread.end()
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        self._before = {iteration + further: older for further, older in enumerate(before)}
        self._restart(iteration, place)
        self._horizon: float = self.iterations

    def _restart(self, iteration: int, place: Place) -> None:
        """Let batch ``iteration`` be the next one, by the present weights."""
        self._thread.end()
        self._first = self._number = iteration
        self._playing = place
        self._batches: dict[int, Batch] = {}
        #: Weights and version by the iteration that made them, while batches ahead wait for them.
        self._weights: dict[int, tuple[Any, int]] = {}

    # --- the learning side -------------------------------------------------------------------------------------

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` trains on; the same again until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: as `Episodes.play` does.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        started = time.perf_counter()
        if iteration >= self._horizon:  # the run is continued beyond its end: nothing was rolled out ahead
            self._restart(iteration, self.place)
            self._horizon = math.inf
        (self._await if self._ahead else self._play_until)(iteration)
        experience = self._batches[iteration].experience
        if self.lag:
            experience.metrics["timing_s/wait_rollout"] = time.perf_counter() - started
        return experience

    def publish(self, version: int) -> None:
        """The learners have trained on the batch that `next` returned; their weights are now called ``version``.

        Raises:
            LearnerLost: they cannot be exported.
        """
        with self._changed:
            known = {older: weights for weights, older in self._weights.values()}
            self.place = self._batches.pop(self.iteration).after
            self._before.pop(self.iteration, None)
            self.iteration, self.version = self.iteration + 1, version
        if self._ahead and self.iteration + self.lag < self._horizon:
            self._offer(known[version] if version in known else self.producer.export())

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        known = self._batches[self.iteration].recorded
        return self.producer.recorded() if known is None else known

    def in_flight(self) -> list[int]:
        """The versions that sampled the batches ahead, the next iteration's first.

        Empty where all are the present weights': a resumed run samples these batches with the same ones.
        """
        versions = [self._version_of(self.iteration + further) for further in range(self.lag)]
        return versions if any(version != self.version for version in versions) else []

    def _version_of(self, number: int) -> int:
        """The version that sampled a batch, or that will.

        A batch that has failed, and is not there, had its weights all the same.
        """
        if number in self._batches:
            return self._batches[number].version
        _, offered = self._weights.get(self._generation(number), (None, self.version))
        return self._before.get(number, offered)

    def oldest(self) -> int:
        """The oldest version that sampled what is to be trained on."""
        return min([self.version, *self._before.values(), *self.in_flight()])

    def settle(self) -> list[Trajectory]:
        """Wait until all that older weights than the present ones have to sample is complete.

        Returns:
            Its episodes that may lack calls in the pool.
        """
        if not self._ahead:
            return []
        end = min(self.iteration + self.lag, self._horizon)
        with self._changed:
            self._thread.wait(lambda: not self._thread.started or self._number >= end)
            waiting = [batch for number, batch in self._batches.items() if number < end and not batch.recorded]
        return [trajectory for batch in waiting for trajectory in batch.experience.played]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Env runners and engines are the caller's meanwhile; the next batch is sampled by its own weights again.

        The batch under way is waited for.
        """
        try:
            with self._changed:
                self._held = True
                self._thread.wait(lambda: not self._busy)
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def close(self) -> None:
        """Roll out nothing any more; the batch under way is of no use."""
        self._thread.close()

    def join(self) -> None:
        """Wait until nothing is rolled out, when env runners are gone; gives up after some seconds."""
        self._thread.join()

    def _await(self, iteration: int) -> None:
        if not self._thread.started:
            self._offer(self.producer.export())
            self._thread.start(self._work)
        with self._changed:
            if not self._thread.wait(lambda: iteration in self._batches):
                raise self._thread.reason()
            batch = self._batches[iteration]
            if batch.judging is not None and not batch.judging.wait(lambda: batch.experience.unjudged is None):
                raise batch.judging.reason()

    def _offer(self, weights: Any) -> None:
        with self._changed:
            self._weights[self.iteration] = (weights, self.version)
            self._changed.notify_all()

    # --- the producing side ------------------------------------------------------------------------------------

    def _play_until(self, iteration: int) -> None:
        """Roll out, in the caller's thread, all batches that the present weights sample, up to this one at least."""
        while self._number < max(iteration + 1, min(self.iteration + self.lag + 1, self._horizon)):
            started = time.perf_counter()
            self.producer.sync(self.version)
            self._keep(self._played(self.version, started))

    def _work(self) -> None:
        try:
            while (due := self._due()) is not None:
                weights, version = due
                started = time.perf_counter()
                self.producer.push(weights, version)
                batch = self._played(version, started)
                judging = self._judging(batch.experience)
                batch = replace(batch, judging=judging, recorded=self.producer.recorded())
                with self._changed:
                    self._keep(batch)
                    self._changed.notify_all()
        finally:
            self._busy = False

    def _due(self) -> tuple[Any, int] | None:
        """Wait until the next batch may begin; return its weights, None at the end."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._thread.closing:
                generation = self._generation(self._number)
                for older in [made for made in self._weights if made < generation]:
                    del self._weights[older]
                if not self._held and self._number < self._horizon and generation in self._weights:
                    self._busy = True
                    return self._weights[generation]
                self._changed.wait(POLL_S)
        return None

    def _generation(self, number: int) -> int:
        return max(self._first, number - self.lag)

    def _played(self, version: int, started: float) -> Batch:
        """Roll out the next batch with the weights that the engines have."""
        number, synced = self._number, time.perf_counter() - started
        experience = self.producer.play(number, self._playing)
        after = self._playing.after(experience.played)  # does not depend on a judge
        if not self._ahead:
            experience.judge()
        if self.producer.samples:
            experience.metrics["timing_s/sync"] = synced
        experience.metrics["timing_s/rollout"] = time.perf_counter() - started
        oldest = self._oldest(experience, version)
        if self.lag:
            first = 0 if oldest < version else self._first  # the pool has served what was in flight
            experience.metrics["rollout/async_level"] = float(number - max(first, number - self.lag))
        return Batch(experience, oldest, after)

    def _judging(self, experience: Experience) -> WorkerThread | None:
        """Begin to ask for the rewards of a batch; a batch that is given up leaves its thread to end by itself."""
        if experience.unjudged is None:
            return None
        judging = WorkerThread("reward", self._changed)
        judging.start(experience.judge)
        return judging

    def _keep(self, batch: Batch) -> None:
        self._batches[self._number], self._playing = batch, batch.after
        self._number += 1

    def _oldest(self, experience: Experience, version: int) -> int:
        """Check that ``version`` sampled all that the pool has not served; return the oldest version of the batch."""
        if not self.producer.samples:
            return version
        sampled = {v for t in experience.played for step in t.steps for v in _versions(step)}
        if not sampled <= {version, *self.served}:
            found = f"batch {self._number} was sampled by versions {sorted(sampled)}"
            raise StaleBatch(f"{found} instead of {version}")
        return min(sampled, default=version)


def _versions(step: Step) -> tuple[int, ...]:
    return tuple(version for version, _ in step.version_spans) or (step.policy_version,)
