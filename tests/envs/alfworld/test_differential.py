"""A slice of the comparison of the two ALFWorld engines; `benchmarks.alfworld_engines` runs it at length."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from differential import Comparison, RealEngine, compare_game, real_engine, textworld_python
from games import REAL_TRIAL_SOLUTION, compiled, real_trial, reference_games
from small_game import write_small_game


@pytest.fixture(scope="module")
def engine() -> Iterator[RealEngine]:
    python = textworld_python()
    if python is None:
        pytest.skip("no TextWorld here: name an interpreter that has it in RL_AGENTS_TEXTWORLD_PYTHON")
    with real_engine(python) as engine:
        yield engine


def differences(comparison: Comparison) -> str:
    return json.dumps(comparison.examples, indent=1)


def wins_at_the_end(engine: RealEngine, path: Path, commands: Sequence[str]) -> bool:
    """Play on both engines, which must agree; whether the last command, and no other, wins on both."""
    native = compiled(path)
    real, state = engine.load(path), native.start()
    assert native.intro(state) == real["feedback"]
    for command in commands:
        assert not real["won"] and not native.won(state)
        assert native.admissible(state) == tuple(real["admissible"])
        real, result = engine.step(command), native.step(state, command)
        assert result.feedback == real["feedback"]
        state = result.state
    return bool(real["won"] and real["done"] and real["reward"] == 1 and native.won(state))


@pytest.mark.parametrize("number", range(6))
def test_one_game_of_each_family(engine: RealEngine, number: int) -> None:
    game = reference_games()[number]
    result = compare_game(engine, game, game.parent.name, steps=15, seed=f"family-{number}")
    assert not result.mismatches, differences(result)
    assert result.accepted > 7
    assert sum(result.steps.values()) == len(result.real_steps) == 15


def test_the_real_trial_is_won_on_both(engine: RealEngine, tmp_path: Path) -> None:
    assert wins_at_the_end(engine, real_trial(tmp_path), REAL_TRIAL_SOLUTION)


def test_a_domain_of_another_kind(engine: RealEngine, tmp_path: Path) -> None:
    path = write_small_game(tmp_path)
    assert wins_at_the_end(engine, path, ["switch", "switch", "take brush 2", "paint with brush 2 in hall 1", "admire"])
    for number in range(2):
        result = compare_game(engine, path, "small", steps=60, seed=f"small-{number}")
        assert not result.mismatches, differences(result)
        assert set(result.steps) >= {"random", "malformed"}


def test_the_comparison_finds_a_difference(engine: RealEngine, tmp_path: Path) -> None:
    """A grammar with a text that the two engines are known to write differently: an effect whose condition is false."""
    small = json.loads(write_small_game(tmp_path).read_text())
    seen = small["grammar"].replace('feedback :: "Click."', 'feedback :: "Lit: [{r.name | lit(r:room)}]."')
    path = write_small_game(tmp_path, grammar=seen)
    result = compare_game(engine, path, "small", steps=60, seed="difference")
    assert set(result.mismatches) == {"feedback"}
    assert all(example["after"][-1].strip() == "switch" for example in result.examples)
