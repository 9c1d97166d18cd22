"""CircuitDecoding: rules on hand-worked cases, and the episode."""

from functools import partial

import pytest
from environments import starts
from rollout.scripted import fires_at

from rl_agents.envs import base
from rl_agents.envs.base import named_env
from rl_agents.envs.circuit_decoding import env as prompts
from rl_agents.envs.circuit_decoding import tasks
from rl_agents.envs.circuit_decoding import tasks as rules
from rl_agents.errors import InputError

make = partial(named_env, "circuit_decoding")

TASK = "2-10/test/0000"
started = starts("circuit_decoding", TASK)


def solution(task_id: str = TASK) -> str:
    return ", ".join(str(position + 1) for position in tasks.find_task(task_id).hidden)


def evaluate(expression: str, bits: str) -> int:
    """An independent reading of an expression: Python's, whose words bind in the same order."""
    inputs = {f"x{position}": bit == "1" for position, bit in enumerate(bits)}
    return int(eval(expression.lower(), inputs))


def test_all_circuits_compute_the_table_that_they_are_listed_under() -> None:
    functions = rules.functions()
    assert len(functions) == 64 and sum(map(len, functions.values())) == 192
    assert "(x0 AND x1) OR x2" in functions["01010111"]
    assert "(NOT (x0 OR (NOT x1))) AND x2" in functions["00010000"]
    for table, circuits in functions.items():
        assert "0" in table and "1" in table
        for expression in circuits:
            assert [evaluate(expression, bits) for bits in rules.INPUTS] == [int(value) for value in table]
            assert all(expression.count(f"x{i}") == 1 for i in range(rules.NUM_INPUTS))


def test_rules_by_hand() -> None:
    tables = ["00000001", "00010111", "01111111"]  # and, majority-like, or: distinct at 001, 011, 111
    assert rules.output(tables[1], "011") == 1 and rules.output(tables[0], "011") == 0
    first = rules.consistent(tables, rules.consistent(tables, (0, 1, 2), "011", 1), "001", 1)
    after = (first, rules.consistent(tables, (0, 1, 2), "011", 0))
    assert after == ((2,), (0,)) and rules.total(after) == 2
    assert rules.best_input(tables, (1, 2)) == "001"
    decreases = [6, 0, 2, 0, 0, 0]
    progress = [amount > 0 for amount in decreases]
    assert fires_at(progress, base.env_spec("circuit_decoding").progress_window) == 6
    assert fires_at(progress, 3, "cumulative") == 5
    for content, chosen in ((" 3 7 ", (2, 6)), ("3,11", (2, -1)), ("0, 03", (-1, -1))):
        assert prompts.read_answer(content, tasks.find_task(TASK), "paper") == chosen


def test_bad_options_are_named() -> None:
    for options, message in (
        ({"circuits": 4, "candidates": 3}, "env.candidates=3: must be at least env.circuits=4"),
        ({"candidates": 65}, "env.candidates=65: must be at most 64"),
    ):
        with pytest.raises(InputError, match=message):
            make(**options)


def test_a_won_game() -> None:
    env, task = started(), tasks.find_task(TASK)
    table = task.tables[task.hidden[1]]
    observation, reward, terminated, truncated, info = env.step("<interact>B(1, 0, 1)</interact>")
    assert observation.startswith(f"The output of your latest query B(1, 0, 1): {table[0b101]}.")
    assert (reward, terminated, truncated, info["success"], info["progress"]) == (0.0, False, False, False, True)
    assert info["query"] == "B(1, 0, 1)"
    left = [str(i + 1) for i, candidate in enumerate(task.tables) if candidate[0b101] == table[0b101]]
    assert info["anchor"].endswith(f": A 1 2 3 4 5 6 7 8 9 10 | B {' '.join(left)}")
    assert info["metrics"] == {
        "turns": 1.0, "survivors": 10.0 + len(left), "wasted_queries": 0.0, "circuits_right": 0.0,
    }  # fmt: skip
    *_, info = env.step("<interact>B(1, 0, 1)</interact>")
    assert info["progress"] is False and info["metrics"]["wasted_queries"] == 1.0
    observation, reward, terminated, truncated, info = env.step(f"<answer>{solution()}</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["progress"] is True and info["metrics"]["circuits_right"] == 1.0


def test_rewards() -> None:
    first, second = solution().split(", ")
    half = f"<answer>{first}, {first}</answer>"
    assert started().step(half)[1] == 0.0
    assert started().step(half)[4]["metrics"]["circuits_right"] == 0.5
    assert started().step(f"<answer>{second}, {first}</answer>")[1] == 0.0
    for answer in (first, f"{first}, {second}, {first}"):
        assert started().step(f"<answer>{answer}</answer>")[1:3] == (0.0, True)
    task = tasks.find_task(TASK)
    words = " ".join(task.tables[position] for position in task.hidden)
    assert started(prompt="compact").step(f"<answer> {words} </answer>")[1] == 1.0
    assert started(prompt="compact").step(f"<answer>{solution()}</answer>")[1] == 0.0
    env = started(prompt="compact")
    assert env.step("<interact> A 000 </interact>")[0] == task.tables[task.hidden[0]][0]
