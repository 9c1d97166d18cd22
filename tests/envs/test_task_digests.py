"""Tasks of the built-in environments do not change: their ids, what agents read first, and the expert's episodes.

``python tests/envs/test_task_digests.py`` records them again.
"""

import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_agents.envs import task_sets
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.circuit_decoding import tasks as circuits
from rl_agents.envs.preference_estimation import tasks as preferences
from rl_agents.envs.webshop import tasks as shopping
from rl_agents.errors import InputError

FILE = Path(__file__).with_name("task_digests.json")
COMPACT = {"prompt": "compact"}
#: Environment and keys: the defaults, those of warm-start models, and the other settings of T3's table 2.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("guess_numbers", {}), ("guess_numbers", COMPACT),
    ("circuit_decoding", {}), ("circuit_decoding", COMPACT),
    *(("circuit_decoding", {"candidates": count}) for count in (15, 20, 25, 30)),
    *(("circuit_decoding", {"circuits": count}) for count in (3, 4)),
    ("situation_puzzles", {}), ("situation_puzzles", {"puzzles": "small"} | COMPACT),
    ("preference_estimation", {}), *(("preference_estimation", {"movies": count}) for count in (5, 15, 20, 30)),
    *(("preference_estimation", {"sampling": sampling}) for sampling in ("min-max", "max")),
    ("preference_estimation", {"attributes": 3, "levels": 6, "sampling": "balanced"} | COMPACT),
    ("movie_recommendation", {}), ("movie_recommendation", {"size": "small"} | COMPACT),
    ("long_form_qa", {}), ("long_form_qa", COMPACT),
    ("multihop_qa", {}), ("multihop_qa", {"questions": "small"} | COMPACT),
    ("paper_search", {}), ("paper_search", {"papers": "small", "results": 4, "max_calls": 3} | COMPACT),
    *(("webshop", {"prompt": prompt}) for prompt in ("3spo", "steppo")),
    ("webshop", {"catalogue": "small"} | COMPACT),
    *(("alfworld", {"prompt": prompt}) for prompt in ("3spo", "steppo", "compact")),
    ("alfworld", {"size": "full", "test": "unseen"}), ("pivot", {}),
]  # fmt: skip
BEGUN, PLAYED = 20, 3


def case_name(name: str, options: dict[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


def spread(ids: list[str], count: int) -> list[str]:
    return ids[:: max(1, len(ids) // count)][:count]


def digest(name: str, options: dict[str, Any]) -> str:
    ids = {split: task_ids(name, split, options) for split in ("train", "test")}
    env, found = make_env(name, options), hashlib.sha256(repr(ids).encode())
    for task in (*spread(ids["train"], BEGUN), *spread(ids["test"], BEGUN)):
        found.update(repr(env.reset(options={"task_id": task})).encode())
    if expert := starter_spec(name, options).expert:
        chosen = read_env_options(env_spec(name), options)
        for task in spread(ids["test"], PLAYED):
            found.update(repr(expert(task, random.Random(0), chosen)).encode())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_tasks(name: str, options: dict[str, Any]) -> None:
    assert digest(name, options) == json.loads(FILE.read_text(encoding="utf-8"))[case_name(name, options)]


def circuit(name: str) -> Any:
    return circuits.find_task(name).content


def preference(name: str) -> Any:
    return preferences.find_task(name).content


def request(name: str) -> Any:
    goal = shopping.find_goal(shopping.local_store("small"), name)
    return goal.instruction, goal.price_upper


@pytest.mark.parametrize(
    ("name", "options", "content", "trained"),
    [
        ("circuit_decoding", {"circuits": 2, "candidates": 2}, circuit, 932),
        ("preference_estimation", {"attributes": 3, "levels": 5, "movies": 2, "sampling": "max"}, preference, 696),
        ("webshop", {"catalogue": "small"}, request, 465),
    ],
)
def test_no_training_task_of_a_small_setting_is_a_test_task(
    name: str, options: dict[str, Any], content: Callable[[str], Any], trained: int
) -> None:
    train, test = ([content(one) for one in task_ids(name, part, options)] for part in ("train", "test"))
    assert len(train) == trained and not set(train) & set(test)


def test_a_setting_with_fewer_tasks_than_the_test_set_has_is_refused() -> None:
    with pytest.raises(InputError, match="all 2 training tasks of this size are test tasks, too"):
        task_sets.without_tests(["a", "b"], ["c"], lambda name: "the same task")


if __name__ == "__main__":
    recorded = {case_name(name, options): digest(name, options) for name, options in CASES}
    FILE.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"{len(recorded)} settings", file=sys.stderr)
