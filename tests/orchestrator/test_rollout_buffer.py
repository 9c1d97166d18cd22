"""Which weights sample which batch, whatever the timing; what waits, what is given up, and what errors do."""

import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import EpisodesFail
from rl_agents.orchestrator.rollout_batch import Experience, TaskPosition
from rl_agents.orchestrator.rollout_buffer import BatchBuffer, StaleBatch

ITERATIONS = 9


@dataclass
class Timed:
    """Engines and env runners as far as a buffer sees them: a batch tells which weights they had."""

    delay: Callable[[], float] = lambda: 0.0
    fails_at: int = -1
    samples: bool = True
    learned: int = 0
    engine: int = -1
    exports: int = 0
    played: list[tuple[int, int, int]] = field(default_factory=list)
    at_work: threading.Lock = field(default_factory=threading.Lock)

    def play(self, iteration: int, place: TaskPosition) -> Experience:
        assert self.at_work.acquire(blocking=False), "two batches at a time"
        version = self.engine
        time.sleep(self.delay())
        assert self.engine == version, "the weights were changed in the middle of a batch"
        self.at_work.release()
        if iteration == self.fails_at:
            raise EpisodesFail("the world fell over")
        step = Step([1], [2], [0.0], version, "stop", "", "", "")
        groups = 1 + iteration % 3  # as with dynamic sampling
        trajectories = [Trajectory(f"t{place.position + g}", g, 0, 0, [step]) for g in range(groups)]
        self.played.append((iteration, place.position, version))
        return Experience(trajectories, trajectories)

    def sync(self, version: int) -> None:
        self.push(self.learned, version)

    def export(self) -> Any:
        self.exports += 1
        return self.learned

    def push(self, weights: Any, version: int) -> None:
        assert weights == version, "weights that were exported later, or earlier"
        self.engine = version

    def recorded(self) -> bool:
        return True


def learn(buffer: BatchBuffer, producer: Timed, iterations: range, skip: tuple[int, ...] = ()) -> list[int]:
    """Learn as an algorithm does; return the version that sampled each batch."""
    versions = []
    for iteration in iterations:
        experience = buffer.next(iteration)
        assert buffer.next(iteration) is experience
        versions.append(experience.played[0].steps[0].policy_version)
        time.sleep(producer.delay())
        producer.learned += iteration not in skip
        buffer.publish(producer.learned)
    return versions


@pytest.mark.parametrize("lag", [0, 1, 2, 4])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_batch_is_sampled_by_the_weights_of_k_iterations_before(ahead: bool, lag: int) -> None:
    places = []
    for seed in range(4):
        rng = random.Random(seed)
        producer = Timed(lambda rng=rng: rng.choice([0.0, 0.001, 0.005]))  # type: ignore[misc]
        buffer = BatchBuffer(producer, lag, ITERATIONS, ahead=ahead)
        assert learn(buffer, producer, range(ITERATIONS)) == [max(0, i - lag) for i in range(ITERATIONS)]
        buffer.close()
        buffer.join()
        places.append(producer.played)
        assert producer.exports <= ITERATIONS, "weights are exported once, and not for batches that nobody plays"
    assert all(played == places[0] for played in places)
    assert [position for _, position, _ in places[0]] == [0, 1, 3, 6, 7, 9, 12, 13, 15]
    assert buffer.place.position == 18


@pytest.mark.parametrize("ahead", [False, True])
def test_lag_counts_iterations_also_those_that_learn_nothing(ahead: bool) -> None:
    producer = Timed()
    buffer = BatchBuffer(producer, 2, ITERATIONS, ahead=ahead)
    after = [0, 1, 1, 1, 2, 3, 4, 5, 6, 7]  # version after so many iterations
    assert learn(buffer, producer, range(ITERATIONS), skip=(1, 2)) == [after[max(0, i - 2)] for i in range(ITERATIONS)]
    assert buffer.in_flight() == []
    buffer.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_may_go_on_beyond_its_end(ahead: bool) -> None:
    producer = Timed()
    buffer = BatchBuffer(producer, 2, 3, ahead=ahead)
    assert learn(buffer, producer, range(3)) == [0, 0, 0]
    time.sleep(0.05)
    assert [number for number, *_ in producer.played] == [0, 1, 2], "nothing is played that nobody asks for"
    assert learn(buffer, producer, range(3, 7)) == [3, 3, 3, 4]
    buffer.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_an_error_is_raised_where_its_batch_is_asked_for(ahead: bool) -> None:
    producer = Timed(fails_at=0 if not ahead else 3)
    buffer = BatchBuffer(producer, 2, ITERATIONS, ahead=ahead)
    learn(buffer, producer, range(max(producer.fails_at, 0)))
    assert buffer.settle() == []
    for _ in range(2):
        with pytest.raises(EpisodesFail, match="the world fell over"):
            buffer.next(producer.fails_at)
    producer.fails_at = -1
    buffer.begin(3, producer.learned, TaskPosition(6))
    assert learn(buffer, producer, range(3, 6)) == [producer.learned - 3] * 3
    buffer.close()


def test_a_pause_waits_for_the_batch_and_the_next_one_has_its_own_weights() -> None:
    producer = Timed(lambda: 0.02)
    buffer = BatchBuffer(producer, 2, ITERATIONS, ahead=True)
    for iteration in range(4):
        assert learn(buffer, producer, range(iteration, iteration + 1)) == [max(0, iteration - 2)]
        with buffer.paused():
            assert not producer.at_work.locked()
            producer.engine = 99  # an evaluation
            time.sleep(0.03)
            assert not producer.at_work.locked()
    assert learn(buffer, producer, range(4, ITERATIONS)) == [2, 3, 4, 5, 6]
    buffer.close()


def test_settling_completes_what_older_weights_sample_and_no_more() -> None:
    producer = Timed(lambda: 0.03)
    buffer = BatchBuffer(producer, 2, ITERATIONS, ahead=True)
    assert buffer.settle() == [] and buffer.in_flight() == []
    learn(buffer, producer, range(3))
    buffer.settle()
    assert [number for number, *_ in producer.played] == [0, 1, 2, 3, 4], "batch 5 is by the weights of a checkpoint"
    assert buffer.in_flight() == [1, 2] and buffer.oldest() == 1
    buffer.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_resumed_run_has_what_was_in_flight_served(ahead: bool) -> None:
    """The pool answers with the old versions' calls; what is new is sampled as it would have been."""
    producer = Timed()
    producer.learned = 5
    served = {5: 3, 6: 4}
    play = producer.play

    def serving(iteration: int, place: TaskPosition) -> Experience:
        experience = play(iteration, place)
        for trajectory in experience.played:
            trajectory.steps[0].policy_version = served.get(iteration, trajectory.steps[0].policy_version)
        return experience

    producer.play = serving  # type: ignore[method-assign]
    buffer = BatchBuffer(producer, 2, 12, ahead=ahead)
    buffer.begin(5, 5, TaskPosition(9), before=[3, 4])
    assert buffer.oldest() == 3 and buffer.in_flight() == [3, 4]
    buffer.served = {3, 4}
    assert learn(buffer, producer, range(5, 10)) == [3, 4, 5, 6, 7]
    assert buffer.place.position == 9 + 3 + 1 + 2 + 3 + 1
    buffer.begin(5, producer.learned, TaskPosition(9))
    with pytest.raises(StaleBatch, match="batch 5 was sampled by versions"):
        buffer.next(5)
    buffer.close()


def test_a_wait_ends_with_a_signal_and_closing_gives_the_batch_up() -> None:
    release = threading.Event()
    producer = Timed()
    buffer = BatchBuffer(producer, 1, ITERATIONS, ahead=True)

    def interrupts() -> float:
        _raise_in_main()  # which waits for this batch
        return float(not release.wait(60))

    producer.delay = interrupts
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with pytest.raises(KeyboardInterrupt):
        buffer.next(0)
    signal.signal(signal.SIGINT, before)
    buffer.close()
    assert buffer._busy, "closing does not wait for the batch"
    release.set()
    buffer.join()
    assert not buffer._busy


def _raise_in_main() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_checkpoint_after_a_batch_that_failed_names_the_weights_that_sampled_it() -> None:
    """So that a resumed run is served its calls, and samples no more than what is missing by other weights."""
    producer = Timed(fails_at=3)
    buffer = BatchBuffer(producer, 2, ITERATIONS, ahead=True)
    learn(buffer, producer, range(3))
    with pytest.raises(EpisodesFail):
        buffer.next(3)
    assert buffer.settle() == []
    assert buffer.in_flight() == [1, 2] and buffer.oldest() == 1
    buffer.close()
