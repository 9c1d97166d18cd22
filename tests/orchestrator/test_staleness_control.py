"""Admission: the bound, under any timing of episodes, learners and engines."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.orchestrator.staleness_control import Admission, TooOld, slack_and_window


@pytest.mark.parametrize(
    ("batch", "staleness", "expected"),
    [(8, 1, (1, 1)), (16, 2, (2, 1)), (8, 3, (2, 7)), (16, 4, (3, 17)), (1, 1, (1, 1)), (1, 4, (3, 1))],
)
def test_a_bound_is_used_up(batch: int, staleness: int, expected: tuple[int, int]) -> None:
    assert slack_and_window(batch, staleness) == expected
    assert Admission(batch, staleness).bound <= staleness


def test_a_slow_group_lets_a_few_pass_and_is_then_waited_for() -> None:
    admission = Admission(4, 3)  # S = 2, W = 3
    while admission.room():
        admission.admit()
    assert list(admission.waiting) == list(range(12))
    for number in range(1, 12):
        admission.finish(number)
    assert admission.take(3, 0) == [] and admission.take(2, 0) == [1, 2]
    assert admission.take(1, 0) == [], "3 is not behind 0 by less than the window"
    admission.finish(0)
    assert admission.take(2, 0) == [0, 3] and not admission.room()
    admission.publish(1)
    assert [admission.admit() for _ in range(4)] == [12, 13, 14, 15] and not admission.room()


def test_a_group_that_is_too_old_is_an_error() -> None:
    admission = Admission(1, 1)
    admission.finish(admission.admit())
    with pytest.raises(TooOld, match="group 0 was admitted at iteration 1, trained on at 3: the bound is 1"):
        admission.take(1, 2)


class Schedule:
    """A run with random times: when groups finish, when weights reach the engines, which groups are passed over."""

    def __init__(self, batch: int, staleness: int, seed: int, passing: float) -> None:
        self.draw, self.passing = random.Random(seed), passing
        self.admission = Admission(batch, staleness)
        self.playing: list[int] = []
        self.published = self.learning = 0
        self.learned: list[int] = []
        self.missing, self.ages = batch, [0]

    def go(self, iterations: int) -> None:
        while self.learning < iterations:
            moves = [self.admit] * self.admission.room() + [self.finish] * bool(self.playing)
            moves += [self.push] * (self.published < self.learning) + [self.take]
            if self.draw.choice(moves)() is False and moves == [self.take]:
                raise AssertionError("nothing can go on")

    def admit(self) -> None:
        self.playing.append(self.admission.admit())

    def finish(self) -> None:
        # Some groups are always last, as long as there are others.
        quick = [number for number in self.playing if number % 7] or self.playing
        number = self.draw.choice(quick)
        self.playing.remove(number)
        self.admission.finish(number)

    def push(self) -> None:
        self.published = self.draw.randint(self.published + 1, self.learning)
        self.admission.publish(self.published)

    def take(self) -> bool:
        """Take what is missing of a batch; learn from it when it is whole."""
        before = dict(self.admission.waiting)
        groups = self.admission.take(self.missing, self.learning)
        if not groups:
            return False
        self.learned += groups
        self.ages += [self.learning - before[number] for number in groups]
        self.missing = sum(self.draw.random() < self.passing for _ in groups)
        self.admission.pass_over(self.missing)
        if not self.missing:
            self.admission.learned()
            self.learning, self.missing = self.learning + 1, self.admission.batch
        return True


@settings(max_examples=200, deadline=None)
@given(
    batch=st.integers(1, 12), staleness=st.integers(1, 6), seed=st.integers(0, 2**32), passing=st.sampled_from([0, 0.4])
)
def test_the_bound_holds_whatever_the_timing(batch: int, staleness: int, seed: int, passing: float) -> None:
    schedule = Schedule(batch, staleness, seed, passing)
    schedule.go(12)
    admission, learned = schedule.admission, schedule.learned
    assert max(schedule.ages) <= admission.bound <= staleness
    assert len(set(learned)) == len(learned), "none twice"
    left = {*admission.waiting}
    assert {*learned} | left == set(range(admission.admitted)) and not left & {*learned}, "none lost"
    assert all(abs(place - number) < admission.window for place, number in enumerate(learned)), "none starves"
    assert admission.admitted - admission.gone <= (admission.slack + 1) * batch


@settings(max_examples=50, deadline=None)
@given(batch=st.integers(1, 8), staleness=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_a_stream_goes_on_after_a_checkpoint(batch: int, staleness: int, seed: int) -> None:
    first = Schedule(batch, staleness, seed, 0.0)
    first.go(5)
    second = Schedule(batch, staleness, seed + 1, 0.0)
    second.admission.resume(5, len(first.learned), first.admission.waiting)
    second.playing, second.published, second.learning = list(second.admission.waiting), 5, 5
    second.go(12)
    learned = first.learned + second.learned
    assert len(set(learned)) == len(learned) == 12 * batch and max(second.ages) <= second.admission.bound
