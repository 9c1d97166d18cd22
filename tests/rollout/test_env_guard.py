"""What an environment does to its process stays with its episode."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import forked

from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import MAX_HANGS, CallNote, EnvGuard, TaskWatch, ThreadHost


def called(guard: EnvGuard, call: Callable[..., Any], *args: Any) -> Any:
    return asyncio.run(guard.call(call, *args))


def draw() -> tuple[float, int, float]:
    return random.random(), int(np.random.randint(1000)), float(np.random.normal())


def draws(*seeds: int) -> dict[int, list[tuple[float, int, float]]]:
    """Three draws of every episode, interleaved."""
    guards = [EnvGuard("t", seed, 1.0) for seed in seeds]
    shown: dict[int, list[tuple[float, int, float]]] = {seed: [] for seed in seeds}
    for _ in range(3):
        for guard in guards:
            shown[guard.generators.seed].append(called(guard, draw))
    return shown


def test_what_an_episode_draws_depends_on_its_seed_alone() -> None:
    alone = {seed: draws(seed)[seed] for seed in (1, 2)}
    assert draws(1, 2) == draws(2, 1) == alone
    assert alone[1] != alone[2] and len(set(alone[1])) == 3
    guard = EnvGuard("t", 1, 1.0)
    first = called(guard, draw)
    assert called(guard, draw) != first
    guard.generators.reset()
    assert called(guard, draw) == first


def test_a_seed_that_the_environment_sets_is_kept_between_its_calls() -> None:
    def reset() -> None:
        random.seed(5)
        np.random.seed(5)

    guards = EnvGuard("t", 1, 1.0), EnvGuard("t", 2, 1.0)
    drawn = [[called(guard, call) for guard in guards] for call in (reset, draw, draw)]
    assert all(first == second for first, second in drawn)


def test_the_process_keeps_its_own_generators() -> None:
    def outside(*between: EnvGuard) -> list[float]:
        random.seed(3)
        np.random.seed(3)
        first = random.random() + np.random.random()
        for guard in between:
            called(guard, draw)
        return [first, random.random(), np.random.random()]

    assert outside(EnvGuard("t", 1, 1.0)) == outside()


def test_the_runner_keeps_its_working_directory(tmp_path) -> None:
    class Mover:
        def __init__(self) -> None:
            os.chdir(tmp_path)

    here, guard = os.getcwd(), EnvGuard("t", 1, 1.0)
    called(guard, os.chdir, tmp_path)
    assert os.getcwd() == here
    asyncio.run(EnvPool(Mover).take())  # type: ignore[arg-type]
    assert os.getcwd() == here


def test_a_task_that_hangs_is_tried_anew_only_by_a_batch_of_its_own() -> None:
    def reset() -> None:
        time.sleep(60)

    watch = TaskWatch()
    for _ in range(20):
        with pytest.raises(EnvFailure, match=r"env_timeout: reset: no answer within 0\.2 s"):
            called(EnvGuard("bad", 1, 0.2, watch), reset)
    assert called(EnvGuard("good", 1, 0.2, watch), len, "abc") == 3
    with watch.batch(["bad"]):
        assert called(EnvGuard("bad", 1, 0.2, watch), len, "abc") == 3
    watch = TaskWatch()
    with watch.batch(["a", "b"]):
        for task in ("a", "b"):
            watch.hung(task, f"{task} hangs", reset=True)
        with watch.batch(["b"]):
            watch.check("b")
            with pytest.raises(EnvFailure, match="a hangs"):
                watch.check("a")
        with pytest.raises(EnvFailure, match="a hangs"):
            watch.check("a")
    with watch.batch(["c"]):
        watch.check("a")


def test_a_step_may_hang_a_few_times_and_when_nothing_ever_answers_none() -> None:
    watch, calls = TaskWatch(), []

    def step() -> None:
        calls.append(1)
        time.sleep(60)

    called(EnvGuard("good", 1, 0.1, watch), len, "abc")
    for _ in range(10):
        with pytest.raises(EnvFailure):
            called(EnvGuard("bad", 1, 0.1, watch), step)
    assert len(calls) == MAX_HANGS
    watch, calls = TaskWatch(), []

    def reset() -> None:
        calls.append(1)
        time.sleep(60)

    for number in range(50):
        with pytest.raises(EnvFailure, match="env_timeout"):
            called(EnvGuard(f"task-{number}", 1, 0.1, watch), reset)
    assert len(calls) == 3


def test_a_note_outlives_a_process_that_ends_in_a_call(tmp_path) -> None:
    def die(dies: bool) -> None:
        watch = TaskWatch(note=CallNote(tmp_path / "note"))
        called(EnvGuard("good", 1, 1.0, watch), len, "abc")
        if dies:
            called(EnvGuard("deadly", 1, 1.0, watch), os._exit, 3)
        os._exit(4)

    for dies, left, status in ((True, "deadly", 3), (False, "", 4)):
        assert forked(lambda dies=dies: die(dies)) == status
        note = CallNote(tmp_path / "note")
        assert note.left == left
        note.close()
        assert not (tmp_path / "note").exists()


def unclear(path: Path) -> TaskWatch:
    path.write_bytes(b"a\nb\0")
    return TaskWatch(note=CallNote(path))


def test_calls_are_made_one_at_a_time_until_the_first_batches_have_ended(tmp_path) -> None:
    """The batches of a stream overlap, so that one is always in progress."""
    watch = unclear(tmp_path / "note")

    def alone() -> bool:
        return isinstance(watch.turn(), asyncio.Lock)

    with watch.batch(["c"]), ExitStack() as late:
        with watch.batch(["a"]):
            with watch.batch(["b"]):
                assert alone()
            late.enter_context(watch.batch(["d"]))
        assert alone(), "the first batch of all is in progress"
        late.close()
        assert alone()
    assert not alone()
    watch = unclear(tmp_path / "note")
    before = ExitStack()
    before.enter_context(watch.batch(["a"]))
    for _ in range(3):
        after = ExitStack()
        after.enter_context(watch.batch(["b"]))
        before.close()
        before = after
    assert not alone(), "some batch was in progress all the time"
    before.close()


def test_an_episode_that_waits_behind_a_hang_is_not_called(tmp_path) -> None:
    watch, calls = unclear(tmp_path / "note"), []

    def reset() -> None:
        calls.append(1)
        time.sleep(60)

    async def play() -> list[Any]:
        hosts = [ThreadHost() for _ in range(5)]
        guards = [EnvGuard("a", seed, 0.2, watch, host) for seed, host in enumerate(hosts)]
        with watch.batch(["a"]):
            return await asyncio.gather(*(guard.call(reset) for guard in guards), return_exceptions=True)

    answers = asyncio.run(play())
    assert len(calls) == 1 and {str(answer).partition(" (")[0] for answer in answers} == {
        str(answers[0]).partition(" (")[0]
    }
    assert all(isinstance(answer, EnvFailure) for answer in answers)
