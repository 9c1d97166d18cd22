"""The calls of tau-bench's airline agent: who reads the dialogue is right, and nothing else earns a reward."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import airline
from rl_agents.envs.pivot.tasks import split_by_trace
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier
from rl_agents.traces.store import read_turns
from rl_agents.traces.turns import Turn

SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")
HISTORY = SHARED / "tau_bench/historical_trajectories/gpt-4o-airline.json"
VERIFIER = make_verifier(VerifierOptions())


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[Turn]:
    if not HISTORY.is_file():
        pytest.skip(f"no {HISTORY} (set RL_AGENTS_SHARED_DATA)")
    folder: Path = tmp_path_factory.mktemp("airline") / "turns"
    airline.write(HISTORY, folder)
    return read_turns(folder / airline.TURNS)


def calls(turns: list[Turn]) -> Iterator[str]:
    """Every demonstrated call, the most frequent first."""
    yield from (text for text, _ in Counter(turn.text for turn in turns).most_common())


#: Players that do not read which call is due, by their answer.
ADVERSARIES: dict[str, Callable[[Turn, list[Turn]], str]] = {
    "copies the dialogue": lambda turn, _: "\n".join(message["content"] for message in turn.messages),
    "always makes the most frequent call": lambda _, turns: next(calls(turns)),
    "makes all calls": lambda _, turns: "\n".join(calls(turns)),
    "names a tool without arguments": lambda turn, _: (
        f'<tool_call>{{"name": "{turn.calls[0].name}", "arguments": {{}}}}</tool_call>'
    ),
    "says something": lambda *_: "Let me look that up for you.",
}


def test_the_agents_calls_are_right(turns: list[Turn]) -> None:
    assert len(turns) > 80 and all(assess(VERIFIER, turn, turn.text).score == 1.0 for turn in turns)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_who_does_not_read_earns_next_to_nothing(turns: list[Turn], name: str) -> None:
    earned = sum(assess(VERIFIER, turn, ADVERSARIES[name](turn, turns)).score for turn in turns)
    assert earned <= 0.08 * len(turns)


def test_no_task_of_the_test_turns_occurs_in_training(turns: list[Turn]) -> None:
    tasks = {turn.turn_id: turn.trace_id for turn in turns}
    train, test = ({tasks[turn] for turn in ids} for ids in split_by_trace(turns, airline.TEST_SHARE))
    assert not train & test and len(test) >= 5
