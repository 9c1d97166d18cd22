"""`async_level=k` with a slow judge: the next batch is sampled meanwhile, with the results of one thread."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from orchestrator.threads import TASKS, World, eventually

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.selection import Selected
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.rollout_batch import Episodes
from rl_agents.orchestrator.rollout_buffer import BatchBuffer, Sampled

ITERATIONS = 6


class Judge:
    """A reward whose verdicts depend on the task; some questions fail."""

    waits = True

    def __init__(self, seconds: Callable[[], float] = lambda: 0.0, refuses: int = -1) -> None:
        self.seconds, self.refuses, self.calls, self.most = seconds, refuses, 0, 0
        #: Number of a question -> what its answer waits for.
        self.held: dict[int, threading.Event] = {}
        self.busy: set[int] = set()
        self.lock = threading.Lock()

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        with self.lock:
            number, self.calls = self.calls, self.calls + 1
            self.busy.add(number)
            self.most = max(self.most, len(self.busy))
        time.sleep(self.seconds())
        if number in self.held:
            self.held[number].wait(60)
        self.busy.discard(number)
        if number == self.refuses:
            raise InputError("the judge answered none of 8 questions: HTTP 500")
        for trajectory in trajectories:
            if trajectory.seed % 3 == 0:
                trajectory.failed, trajectory.end_cause = True, "judge_error: no verdict"
            trajectory.steps[-1].reward = float(trajectory.seed % 7)
        return self.metrics(trajectories)

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {"reward/judged": float(len(trajectories))}


class Run:
    """Env runners in threads, real exchanges, a judge, and a learner that takes a while."""

    def __init__(self, ahead: bool, lag: int, reward: Any, algo: str = "grpo", select: Any = None) -> None:
        self.world, self.reward, self.learned = World(), reward, 0
        #: Whether a judge was busy when an env runner was asked for something.
        self.beside = 0
        #: Version -> set when env runners begin to sample with it.
        self.pushed: dict[int, threading.Event] = {}
        recipe = ALGORITHMS[algo] if select is None else replace(ALGORITHMS[algo], select=select)
        keys = {"algo": algo, "tasks_per_iteration": 4, "group_size": 2, "seed": 3}
        episodes = Episodes(Settings.from_dict(keys), recipe, reward, TASKS)
        collector = Collector(self.world, None, 20.0)  # type: ignore[arg-type]
        workers = SimpleNamespace(collector=collector, push=self.push, sync=lambda learners, v: self.push(v, v))
        learners = SimpleNamespace(export_weights=lambda: self.learned)
        sampled = Sampled(episodes, lambda: workers, lambda: learners)  # type: ignore[arg-type,return-value]
        self.buffer = BatchBuffer(sampled, lag, ITERATIONS, ahead=ahead)

    def push(self, weights: int, version: int) -> None:
        assert weights == version
        self.world.version = version
        self.beside += bool(self.reward.busy)
        if version in self.pushed:
            self.pushed[version].set()

    def batches(self) -> Iterator[Any]:
        for iteration in range(ITERATIONS):
            experience = self.buffer.next(iteration)
            yield (
                [
                    (t.task_id, t.seed, t.failed, t.steps[-1].policy_version, t.episode_return)
                    for t in experience.played
                ],
                [t.seed for t in experience.chosen],
                experience.metrics["rollout/return_mean"],
            )
            time.sleep(0.02)
            self.learned += 1
            self.buffer.publish(self.learned)

    def stop(self) -> None:
        self.buffer.close()
        self.buffer.join()
        self.world.stop()


@pytest.mark.parametrize(("lag", "algo"), [(1, "grpo"), (3, "vspo")])
def test_the_next_batch_is_played_while_judges_are_asked_and_nothing_depends_on_when_they_answer(lag, algo) -> None:
    quick = Run(False, lag, Judge(), algo)
    expected = list(quick.batches())
    assert any(failed for played, *_ in expected for _, _, failed, *_ in played)
    for seed in range(2):
        rng = random.Random(seed)
        run = Run(True, lag, Judge(lambda rng=rng: rng.uniform(0.05, 0.3)), algo)  # type: ignore[misc]
        # Verdict n is not given before version n is sampled with: they overlap however slow the machine is.
        run.reward.held = run.pushed = {number: threading.Event() for number in range(1, ITERATIONS - lag)}
        assert list(run.batches()) == expected and run.buffer.place == quick.buffer.place
        assert run.beside > 0 and run.reward.calls == ITERATIONS, "batches were begun while a judge was busy"
        run.stop()
    quick.stop()


def test_metrics_of_rounds_of_different_sizes_count_every_episode_once() -> None:
    sizes = iter((4, 2))

    def more(played: list[Trajectory], missing: int) -> int:
        first = len(played)
        played += [Trajectory("t", number, 0, number) for number in range(first, first + next(sizes))]
        return 1

    def six(trajectories: Sequence[Trajectory], settings: Any, generator: Any) -> Selected:
        return Selected(np.ones(len(trajectories), dtype=bool), 6 - len(trajectories))

    recipe = replace(ALGORITHMS["grpo"], select=six)
    metrics = Episodes(Settings.from_dict({}), recipe, Judge(), TASKS).choose(0, more).metrics
    assert metrics["reward/judged"] == 6 and metrics["rollout/generation_batches"] == 2
    assert metrics["rollout/resampled_episodes"] == 2


def test_a_method_that_may_want_further_rounds_waits_for_the_judge() -> None:
    """Where its next batch begins is known only when it has said how many it wants."""

    def all_of_them(trajectories: Any, settings: Any, generator: Any) -> Selected:
        return Selected(np.ones(len(trajectories), dtype=bool))

    run = Run(True, 1, Judge(lambda: 0.05), select=all_of_them)
    assert len(list(run.batches())) == ITERATIONS and run.beside == 0
    run.stop()
    recipes, keys = ALGORITHMS, Settings.from_dict({"algo": "dapo", "dynamic_sampling": True})
    assert not recipes["dapo"].one_round(keys) and not recipes["gigpo"].one_round(keys)
    assert recipes["dapo"].one_round(Settings.from_dict({"algo": "dapo", "dynamic_sampling": False}))
    assert recipes["vspo"].one_round(keys) and recipes["pivotrl"].one_round(keys)


def test_a_checkpoint_waits_for_no_judge_and_what_one_raises_is_its_own_batchs() -> None:
    release = threading.Event()
    run = Run(True, 2, Judge(refuses=1))
    run.reward.held = {1: release, 2: release}
    assert run.buffer.next(0)
    run.learned += 1
    run.buffer.publish(1)
    run.buffer.settle()
    assert eventually(lambda: bool(run.reward.busy)), "batches 1 and 2 are played, not judged"
    release.set()
    for _ in range(2):
        with pytest.raises(InputError, match="the judge answered none of 8 questions"):
            run.buffer.next(1)
    run.stop()
