"""The world of long steps and its credit measurements."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from benchmarks.credit_reach import doors, true_advantages
from benchmarks.long_thoughts import DOORS, ROOMS, SIGNS, Rooms, right_door
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory


def test_every_door_is_right_somewhere_in_each_room() -> None:
    for room in ROOMS:
        assert sorted(right_door(room, sign) for sign in SIGNS) == sorted(DOORS)


@pytest.mark.parametrize("wrong", range(len(ROOMS) + 1))
def test_the_reward_is_the_share_of_right_doors_and_comes_last(wrong: int) -> None:
    env, rewards = Rooms(), []
    env.reset(seed=7)
    for number, place in enumerate(env.places()):
        door = right_door(*place)
        other = next(d for d in DOORS if d != door)
        shown, reward, ended, _, info = env.step(f"<think> it is {other} </think> {other if number < wrong else door}")
        rewards.append(reward)
        assert ended == (number == len(ROOMS) - 1) == (shown == "")
    assert rewards == pytest.approx([0, 0, (len(ROOMS) - wrong) / len(ROOMS)])
    assert info["success"] == (wrong == 0) and info["metrics"][f"right_{ROOMS[0]}"] == float(wrong == 0)


def test_a_word_that_is_no_door_is_wrong() -> None:
    env = Rooms()
    env.reset(seed=0)
    assert env.step("<think> red")[4]["valid"] is False


def test_the_player_thinks_for_long_and_is_often_right() -> None:
    env, random, right = Rooms(), Random(0), 0
    for seed in range(100):
        shown, _ = env.reset(seed=seed)
        action = env.demonstrate(shown, random)
        assert 48 <= len(action.split()) <= 64
        env.step(action)
        right += env.chosen[0] == right_door(*env.places()[0])
    assert 45 <= right <= 75


def test_doors_are_read_at_the_last_token_of_a_step() -> None:
    """Three steps of two tokens: after the first come four sampled tokens, after the second two."""
    steps, ids = [], list[int]()
    for number in range(3):
        ids = [*ids, 1]
        steps.append(Step(ids, [2, 3], [-1.0, -1.0], 0, "stop", "", "", "", reward=float(number == 2)))
        ids = [*ids, 2, 3]
    metrics = {f"right_{room}": float(room == "hall") for room in ROOMS}
    trajectory = Trajectory("0", 0, 0, 0, steps, terminated=True, metrics=metrics)
    rows = build_samples([trajectory], "merged")
    rows[0].advantages = np.arange(len(rows[0]), dtype=np.float32)
    seen = doors(rows, [trajectory])
    assert (seen.credit.tolist(), seen.after.tolist()) == ([[2, 5, 8]], [[4, 2, 0]])
    assert seen.right.tolist() == [[1, 0, 0]]


def test_true_advantages_by_hand() -> None:
    """Half of the doors are right: a right one adds (1 - 1/2) / 3 to the expected return."""
    right = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert true_advantages(right) * 6 == pytest.approx(np.array([[1, -1, 0], [-1, 1, 0]]))
