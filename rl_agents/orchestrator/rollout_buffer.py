"""Where the experience of an iteration comes from, and which weights sampled it (docs/explanation/staleness.md).

Two sides: the *producing* one plays batch after batch, one for each iteration; the *learning* one takes them in order
and publishes its weights after each. Batch ``i`` is sampled wholly by the weights of iteration ``max(first, i - lag)``,
where ``first`` is the iteration at which the run began or went on. What is played, and with which seeds, is decided on
the producing side alone, in the order of the batches: the results do not depend on timing.

`Pipeline` does both in the caller's thread, `rl_agents.orchestrator.async_rollouts.Ahead` plays in a thread of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.rollout_batch import Episodes, Experience, Place
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.worker_thread import Beside


class Producer(Protocol):
    """Makes batches; ``samples`` where engines do."""

    @property
    def samples(self) -> bool: ...

    def play(self, iteration: int, place: Place) -> Experience:
        """Return what an iteration learns from; ``place`` is that of the stream before it."""
        ...

    def sync(self, version: int) -> None:
        """Have the next batch sampled by the learners' weights as they are (in the learners' thread)."""
        ...

    def export(self) -> Any:
        """Return the learners' weights as they are (in the learners' thread)."""
        ...

    def push(self, weights: Any, version: int) -> None:
        """Have the next batch sampled by weights that `export` returned."""
        ...

    def recorded(self) -> bool:
        """Wait until all that was sampled is in the pool; False where some of it may be lost."""
        ...


@dataclass(frozen=True)
class Given:
    """Batches that nobody samples: demonstrations, or a pool's sessions."""

    take: Callable[[int, int], Experience]
    samples: bool = False

    def play(self, iteration: int, place: Place) -> Experience:
        return self.take(iteration, place.position)

    def sync(self, version: int) -> None:
        """There is no engine."""

    def export(self) -> Any:
        """There is no engine."""

    def push(self, weights: Any, version: int) -> None:
        """There is no engine."""

    def recorded(self) -> bool:
        """There is nothing to record."""
        return True


@dataclass(frozen=True)
class Sampled:
    """Batches of episodes that env runners play.

    Attributes:
        workers, learners: those of the moment; learners that die are replaced by others.
    """

    episodes: Episodes
    workers: Callable[[], RolloutWorkers]
    learners: Callable[[], AgentLearnerGroup]
    samples: bool = True

    def play(self, iteration: int, place: Place) -> Experience:
        """See `Producer.play`; raises as `Episodes.play` does."""
        return self.episodes.play(self.workers().collector, iteration, place)

    def sync(self, version: int) -> None:
        self.workers().sync(self.learners(), version)

    def export(self) -> Any:
        """See `Producer.export`; raises `LearnerLost`."""
        return self.learners().export_weights()

    def push(self, weights: Any, version: int) -> None:
        self.workers().push(weights, version)

    def recorded(self) -> bool:
        collector = self.workers().collector
        return collector.recording is None or collector.recorded()


@dataclass(frozen=True)
class Batch:
    """What one iteration learns from.

    Attributes:
        version: of the weights that sampled it.
        after: the place of the stream of tasks behind it.
        judging: the thread in which its rewards are asked for; None: they are there.
        recorded: all that was sampled for it is in the pool; None: nobody has asked yet.
    """

    experience: Experience
    version: int
    after: Place
    judging: Beside | None = None
    recorded: bool | None = None


class StaleBatch(AssertionError):
    """A batch was not sampled by the weights that it had to be sampled by: an error of this program."""


class Pipeline:
    """Plays in the caller's thread: with ``lag=0`` when a batch is asked for, else as early as its weights are there.

    Attributes:
        iteration: batches that were learned from.
        version: of the learners' weights.
        place: where the stream of tasks stands behind what was learned from.
        lag: k.
        served: versions of the calls that a resumed run's pool serves again.
    """

    def __init__(self, producer: Producer, lag: int, iterations: int) -> None:
        """
        Args:
            iterations: of the run; batches beyond them are played only when they are asked for.
        """
        self.producer, self.lag, self.iterations = producer, lag, iterations
        self.begin(0, 0, Place())

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """Go on after ``iteration`` completed ones; batches in flight are forgotten.

        Args:
            version: of the learners' weights.
            place: behind what was learned from.
            before: see `in_flight`. The pool serves the batches that were in flight again; what it does not hold is
                sampled by the present weights.
        """
        self.iteration, self.version, self.place = iteration, version, place
        self.served: Collection[int] = ()
        self._before = {iteration + ahead: older for ahead, older in enumerate(before)}
        self._restart(iteration, place)
        self._horizon: float = self.iterations

    def _restart(self, iteration: int, place: Place) -> None:
        """Let batch ``iteration`` be the next one to play, by the present weights."""
        self._first = self._number = iteration
        self._playing = place
        self._batches: dict[int, Batch] = {}

    # --- the learning side -------------------------------------------------------------------------------------

    def next(self, iteration: int) -> Experience:
        """Return what ``iteration`` learns from; the same again until new weights are published.

        Raises:
            InputError, EpisodesFail, SelectionError, RolloutError: as `Episodes.play` does.
        """
        assert iteration == self.iteration, f"{iteration} iterations are done, {self.iteration} were published"
        started = time.perf_counter()
        if iteration >= self._horizon:  # somebody goes on beyond the run's end: nothing was played ahead
            self._restart(iteration, self.place)
            self._horizon = math.inf
        self._await(iteration)
        experience = self._batches[iteration].experience
        if self.lag:
            experience.metrics["timing_s/wait_rollout"] = time.perf_counter() - started
        return experience

    def publish(self, version: int) -> None:
        """The learners have learned from the batch that `next` returned; their weights are now called ``version``."""
        self.place = self._batches.pop(self.iteration).after
        self._before.pop(self.iteration, None)
        self.iteration, self.version = self.iteration + 1, version

    def recorded(self) -> bool:
        """Whether the pool has all that was sampled for the batch that `next` returned."""
        known = self._batches[self.iteration].recorded
        return self.producer.recorded() if known is None else known

    def in_flight(self) -> list[int]:
        """The versions that sampled what was played ahead, the next iteration's first.

        Those of the present weights are left out: a resumed run samples their batches with the same ones.
        """
        versions = [self._version_of(self.iteration + ahead) for ahead in range(self.lag)]
        return versions if any(version != self.version for version in versions) else []

    def _version_of(self, number: int) -> int:
        """The version that sampled a batch, or that will."""
        batch = self._batches.get(number)
        return self._before.get(number, self.version) if batch is None else batch.version

    def oldest(self) -> int:
        """The oldest version that sampled what is to be learned from."""
        return min([self.version, *self._before.values(), *self.in_flight()])

    def settle(self) -> list[Trajectory]:
        """Wait until all that older weights than the present ones have to sample is complete.

        Returns:
            Its episodes that may lack calls in the pool.
        """
        return []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Env runners and engines are the caller's meanwhile; the next batch is sampled by its own weights again."""
        yield

    def close(self) -> None:
        """Play nothing any more; what is being played is of no use."""

    def join(self) -> None:
        """Wait until nothing is played, when env runners are gone."""

    # --- the producing side ------------------------------------------------------------------------------------

    def _await(self, iteration: int) -> None:
        """Play until the batch is there: all batches that the present weights sample."""
        while self._number < max(iteration + 1, min(self.iteration + self.lag + 1, self._horizon)):
            started, number = time.perf_counter(), self._number
            self.producer.sync(self.version)
            self._keep(number, self._played(number, self.version, started))

    def _generation(self, number: int) -> int:
        """The iteration whose weights sample batch ``number``."""
        return max(self._first, number - self.lag)

    def _played(self, number: int, version: int, started: float) -> Batch:
        """Play the next batch by the weights that the engines have."""
        synced = time.perf_counter() - started
        experience = self.producer.play(number, self._playing)
        after = self._playing.after(experience.played)  # whatever a judge says of them
        self._judge(experience)
        if self.producer.samples:
            experience.metrics["timing_s/sync"] = synced
        experience.metrics["timing_s/rollout"] = time.perf_counter() - started
        oldest = self._oldest(number, experience, version)
        if self.lag:
            first = 0 if oldest < version else self._first  # the pool has served what was in flight
            experience.metrics["rollout/lag"] = float(number - max(first, number - self.lag))
        return Batch(experience, oldest, after)

    def _judge(self, experience: Experience) -> None:
        """Ask for the rewards that were not given."""
        experience.judge()

    def _keep(self, number: int, batch: Batch) -> None:
        self._batches[number], self._playing = batch, batch.after
        self._number = number + 1

    def _oldest(self, number: int, experience: Experience, version: int) -> int:
        """Make sure that ``version`` sampled the batch, all but what the pool has served, and return the oldest one."""
        if not self.producer.samples:
            return version
        sampled = {v for t in experience.played for step in t.steps for v in _versions(step)}
        if not sampled <= {version, *self.served}:
            raise StaleBatch(f"batch {number} was sampled by versions {sorted(sampled)} instead of {version}")
        return min(sampled, default=version)


def _versions(step: Step) -> tuple[int, ...]:
    """Of all tokens of a step."""
    return tuple(version for version, _ in step.version_spans) or (step.policy_version,)
