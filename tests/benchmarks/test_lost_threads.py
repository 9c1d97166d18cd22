"""The demonstrator that loses the thread: it wins early, or repeats one wrong guess up to the limit."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from rl_agents.envs import base
from rl_agents.envs.guess_numbers import GuessNumbersOptions


@pytest.fixture
def lost_threads() -> Iterator[ModuleType]:
    """Load the plugin; restore the registry afterwards, as other tests iterate over it."""
    before = dict(base.ENVIRONMENTS)
    from benchmarks import lost_threads

    yield lost_threads
    base.ENVIRONMENTS.clear()
    base.ENVIRONMENTS.update(before)


def guesses(dialogue: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [re.search(r"<(interact|answer)> (\d+) ", action).groups() for _, action in dialogue]  # type: ignore[union-attr,misc]


def test_who_keeps_the_thread_wins_and_who_loses_it_repeats_one_guess_to_the_limit(lost_threads: ModuleType) -> None:
    options, ends = GuessNumbersOptions(), set()
    for seed, task in enumerate(lost_threads.task_ids("train", options)[:200]):
        secret = task.rsplit("/", 1)[1]
        kept = lost_threads.demonstrate(task, random.Random(seed), options, habits=lost_threads.Habits(0.0))
        asked = any("\n" in observation for observation, _ in kept)
        assert asked or guesses(kept)[-1] == ("answer", secret)
        lost = lost_threads.demonstrate(task, random.Random(seed), options, habits=lost_threads.Habits(1.0))
        asked = any("\n" in observation for observation, _ in lost[1:])
        assert len({code for _, code in guesses(lost)}) == 1
        assert asked or [kind for kind, _ in guesses(lost)] == ["interact"] * 10
        ends.add(asked)
    assert ends == {False, True}, "T3's request for an answer is among what the starter reads"


def test_a_lost_guess_contradicts_what_is_known(lost_threads: ModuleType) -> None:
    options = GuessNumbersOptions(progress="consistent")
    env = lost_threads.make(options, 10)
    for seed, task in enumerate(lost_threads.task_ids("train", options)[:50]):
        env.reset(options={"task_id": task})
        for _, action in lost_threads.demonstrate(task, random.Random(seed), options, habits=lost_threads.Habits(1.0)):
            assert env.step(action)[4]["progress"] is False
