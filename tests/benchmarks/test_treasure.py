"""The treasure game: who plays it wins it, and nothing else does."""

from __future__ import annotations

import random

import pytest

from benchmarks.treasure import ADVERSARIES, COLORS, ROOMS, Treasure, named

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


def test_guessing_wins_one_game_of_64() -> None:
    dice = random.Random(0)
    won = sum(play(task, lambda game, shown: dice.choice(game.lists[game.turn]))[0] for task in GAMES * 4)
    assert won / (4 * len(GAMES)) == pytest.approx(1 / 64, abs=0.008)  # three standard errors


def test_no_sentence_holds_a_color_and_a_room() -> None:
    for task in GAMES[:50]:
        game = Treasure()
        shown, _ = game.reset(options={"task_id": task})
        for _ in range(3):
            for sentence in shown.replace("?", ".").split("."):
                words = set(sentence.lower().replace(",", "").split())
                assert not (words & set(COLORS) and words & set(ROOMS)), sentence
            shown, *_ = game.step(game.expert(shown, random))


def test_the_reader_is_strict() -> None:
    names = ["red", "blue", "green", "white"]
    right = {"red": "red", "Red.": "red", " red\n": "red", "red key": "red", "red, red": "red"}
    wrong = ["the red key", "red or blue", "", "redder", "It is red", "reds", "r e d", "pink"]
    assert {answer: named(answer, names) for answer in right} == right
    assert not any(named(answer, names) for answer in wrong)


def test_a_snapshot_goes_on_where_it_was_taken() -> None:
    game, other = Treasure(), Treasure()
    shown, _ = game.reset(options={"task_id": "5"})
    game.step(game.expert(shown, random))
    other.restore(game.snapshot())
    assert other.step(other.right[1])[0] == game.step(game.right[1])[0]
