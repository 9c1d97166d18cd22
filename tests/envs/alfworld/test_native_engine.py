"""The native ALFWorld engine: game files, episodes, snapshots, errors. What it is held equal to: test_differential."""

import pickle
import random
from pathlib import Path

import pytest
from differential import malformed
from games import compiled, reference_games
from small_game import DOMAIN, GRAMMAR, PROBLEM, write_small_game

from rl_agents.envs.alfworld import official
from rl_agents.envs.alfworld.native import NOTHING_HAPPENS, NativeGame, State
from rl_agents.envs.alfworld.official import load_game
from rl_agents.errors import InputError


def played(game: NativeGame, *commands: str) -> tuple[State, list[str]]:
    """Play from the start; every command must do something."""
    state, texts = game.start(), []
    for command in commands:
        assert command in game.admissible(state)
        result = game.step(state, command)
        state = result.state
        texts.append(result.feedback)
    return state, texts


def test_texts_of_a_reference_game() -> None:
    (path,) = (path for path in reference_games() if "FloorPlan401" in str(path))
    game = compiled(path)
    assert game.intro(game.start()) == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a bathtubbasin 1, a cart 1, a garbagecan 1, a shelf 4, a shelf 3, a shelf 2, a shelf 1, and a sinkbasin 1.\n\n"
        "Your task is to: find two handtowel and put them in garbagecan."
    )
    assert game.admissible(game.start())[-3:] == ("help", "inventory", "look")
    assert len(game.admissible(game.start())) == 11
    state, texts = played(game, "look", "go to cart 1", "take plunger 2 from cart 1", "inventory", "look", "help")
    assert texts[:5] == [
        "You are in the middle of a room. Looking quickly around you, you see nothing.",
        "You arrive at cart 1. On the cart 1, you see a dishsponge 1, a plunger 2, a plunger 1, a soapbar 1, "
        "a soapbottle 2, and a spraybottle 1.",
        "You pick up the plunger 2 from the cart 1.",
        "You are carrying: a plunger 2.",
        "You are facing the cart 1. Next to it, you see nothing.",
    ]
    assert texts[5].startswith("Available commands:\n  look: ")
    assert "go to cart 1" not in game.admissible(state)
    assert "examine plunger 2" in game.admissible(state)
    assert "move plunger 2 to cart 1" in game.admissible(state)


def test_a_domain_of_another_kind(tmp_path: Path) -> None:
    game = compiled(write_small_game(tmp_path))
    assert game.intro(game.start()) == (
        "Rooms: a hall 1, a kitchen 2, and , a kitchen 1. \n\nYour task is to: paint everything"
    )
    state, texts = played(game, "take brush 2", "paint with brush 2 in hall 1", "admire")
    assert texts[0] == "You have brush 2 By the ladder, you see\tnothing.\n\tIt is not\nfinished."
    assert game.won(state)
    assert "redo" not in game.admissible(state), "it changes nothing"
    assert "rest" not in game.admissible(state)
    # Both switches happen at once, on what was lit before.
    dark = game.step(state, "switch").state
    assert dark != state
    assert "admire" not in game.admissible(dark)
    assert game.step(dark, "switch").state == state


def test_commands_must_be_exact_and_games_travel_as_their_file(tmp_path: Path) -> None:
    game = compiled(write_small_game(tmp_path))
    start = game.start()
    assert game.step(start, " look\n").feedback != NOTHING_HAPPENS
    rng = random.Random(0)
    commands = [malformed(rng, game.admissible(start), game.admissible(start)) for _ in range(500)]
    for command in [*commands, "Look", "take  brush 2", "take stone", "\ud800", "\0"]:
        result = game.step(start, command)
        if command.strip() not in game.admissible(start):
            assert (result.state, result.feedback, result.won) == (start, NOTHING_HAPPENS, False)
            assert result.state is start
    game = compiled(write_small_game(tmp_path))
    copy = pickle.loads(pickle.dumps(game))
    assert copy.admissible(copy.start()) == game.admissible(game.start())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"pddl_domain": "(define', "not JSON: Unterminated string starting at (column 17)"),
        (b'{"pddl_domain": "", "grammar": ""}', "key 'pddl_problem' is missing"),
        (b'{"pddl_domain": 3, "grammar": "", "pddl_problem": ""}', "key 'pddl_domain' must be text, not int"),
    ],
)
def test_files_that_are_no_games(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_game(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_missing_and_huge_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        compiled(tmp_path / "game.tw-pddl")
    with pytest.raises(InputError, match="cannot be read"):
        compiled(tmp_path)
    monkeypatch.setattr(official, "MAX_BYTES", 1_000)
    with pytest.raises(InputError, match="larger than 1000 bytes"):
        compiled(write_small_game(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pddl_domain": DOMAIN.replace("(lit ?r))\n    :effect", "(lid ?r))\n    :effect")},
            "pddl_domain: line 33: un",
        ),
        ({"pddl_problem": PROBLEM.replace("Stone hall_bar_0", "stones hall_bar_0")}, "pddl_problem: line 10: object"),
        ({"grammar": GRAMMAR.replace("action rest", "action rests")}, "grammar: action 'rest' of the domain has no"),
        ({"grammar": GRAMMAR.replace('"#moved#"', '"#move#"')}, "grammar: symbol '#move#' has no productions"),
    ],
)
def test_games_that_cannot_be_played(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write_small_game(tmp_path, **changes)
    with pytest.raises(InputError) as error:
        compiled(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)
