"""The treasure game: who plays it wins it, and nothing else does."""

import random

import pytest

from benchmarks.treasure import ADVERSARIES, Treasure, named

GAMES = Treasure.task_ids("train")[:400] + Treasure.task_ids("test")


def play(task: str, answer) -> tuple[float, bool]:
    game = Treasure()
    shown, info = game.reset(options={"task_id": task})
    reward, ended = 0.0, False
    while not ended:
        shown, earned, ended, _, info = game.step(answer(game, shown))
        reward += earned
    return reward, info["success"]


def test_the_expert_wins_every_game() -> None:
    assert all(play(task, lambda game, shown: game.expert(shown, random)) == (1.0, True) for task in GAMES)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_who_does_not_play_earns_nothing(name) -> None:
    answer = ADVERSARIES[name]
    assert not any(play(task, lambda game, shown: answer(shown))[0] for task in GAMES)


def test_the_reader_is_strict() -> None:
    names = ["red", "blue", "green", "white"]
    right = {"red": "red", "Red.": "red", " red\n": "red", "red key": "red", "red, red": "red"}
    wrong = ["the red key", "red or blue", "", "redder", "It is red", "reds", "r e d", "pink"]
    assert {answer: named(answer, names) for answer in right} == right
    assert not any(named(answer, names) for answer in wrong)
