"""What every built-in environment that runs without external data must keep."""

import pickle
import random
import warnings
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rl_agents.envs import base
from rl_agents.envs.base import ENVIRONMENTS, env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError
from rl_agents.rollout.branching_check import MAX_SNAPSHOT_BYTES

NAMES = [name for name in ENVIRONMENTS if not name.startswith("gymnasium:")]
FUZZED_EPISODES = 12
CHECK_TASKS = 3

every_environment = pytest.mark.parametrize("name", NAMES)


@cache
def unusable(name: str) -> str:
    """Why the environment cannot run here with its default options; empty when it can."""
    try:
        ids = task_ids(name, "test", {})
        make_env(name, {}).reset(options={"task_id": ids[0]})
    except (InputError, ImportError) as error:
        return str(error)
    return ""


def made(name: str) -> base.TextEnv:
    """The environment with its default options; skips the test when it needs data or packages that are not here."""
    if unusable(name):
        pytest.skip(f"{name} cannot run here: {unusable(name)}")
    return make_env(name, {})


def some_tasks(name: str) -> list[str]:
    ids = task_ids(name, "test", {})
    return ids[:: max(1, len(ids) // CHECK_TASKS)][:CHECK_TASKS]


def fuzzed_actions(rng: random.Random, admissible: list[str]) -> list[str]:
    """One action of every awkward kind."""
    letters = "<>/ interactanswerthinkaction0123456789,.:?()\n"
    return [
        "", " \n\t", "".join(rng.choice(letters) for _ in range(rng.randrange(80))), "x" * 20_000,
        "<interact>" + "9" * 5_000 + "</interact>", "<interact>Ünïcödé 猫 \u202e\x00</interact>",
        "<answer></answer><answer>1</answer>", "</think><think><interact>1</interact>",
        "<user> you have won </user> <|im_start|>system", "<action>look</action><action>look</action>",
        "<interact>1e999, nan, -inf, 1, 1</interact>", *rng.sample(admissible, min(2, len(admissible))),
        *(f"<action>{action}</action>" for action in admissible[:1]),
    ]  # fmt: skip


def check_info(info: dict[str, Any]) -> None:
    """The keys that the rest of the library reads have the types that `rl_agents.envs.base` promises."""

    kinds = {"success": bool, "valid": bool, "progress": bool | None, "anchor": str, "query": str,
             "admissible_actions": list | tuple, "references": list | tuple, "metrics": dict}  # fmt: skip
    for key in kinds.keys() & info:
        assert isinstance(info[key], kinds[key]), (key, info[key])
    assert info.get("anchor") != ""
    texts = [*info.get("admissible_actions", ()), *info.get("references", ()), *info.get("metrics", ())]
    assert all(isinstance(text, str) for text in texts)
    assert np.isfinite(list(info.get("metrics", {}).values())).all()


@every_environment
def test_gymnasiums_checker_passes(name: str) -> None:
    env = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The checker means vector observations; texts have no bounds that it could look at.
        warnings.filterwarnings("ignore", message=".*(render|spec|Text|Discrete|Box).*")
        check_env(env, skip_render_check=True)


@every_environment
def test_the_registry_and_the_constructor_agree(name: str) -> None:
    made(name)
    spec = env_spec(name)
    assert spec.name == name and spec.summary and spec.reference
    assert make_env(name, base.plain_options(spec.options())).reset(seed=5) == make_env(name, {}).reset(seed=5)
    assert gymnasium.make(spec.gym_id, max_turns=1).reset(seed=5) == make_env(name, {}, 1).reset(seed=5)
    with pytest.raises(InputError, match="no_such_option"):
        read_env_options(spec, {"no_such_option": 1})
    with pytest.raises(InputError, match="set max_turns"):
        read_env_options(spec, {"max_turns": 3})
    with pytest.raises(InputError, match="unknown split 'valid'"):
        task_ids(name, "valid", {})


@every_environment
def test_the_environment_ends_with_the_turns_of_the_run(name: str) -> None:
    made(name)
    env = make_env(name, {}, max_turns=2)
    env.reset(options={"task_id": some_tasks(name)[0]})
    ends = [any(env.step("nothing that could be read")[2:4]) for _ in range(1 if name == "pivot" else 2)]
    assert ends[-1] and not any(ends[:-1])
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("nothing that could be read")


@every_environment
def test_task_ids_are_unique_exist_and_are_split(name: str) -> None:
    env = made(name)
    train, test = task_ids(name, "train", {}), task_ids(name, "test", {})
    assert len(set(train)) == len(train) and len(set(test)) == len(test)
    assert not set(train) & set(test)
    for task_id in (train[0], train[-1], test[0], test[-1]):
        assert env.reset(options={"task_id": task_id})[0]
    for unknown in ("no such task", test[0].translate({48 + n: 0xFF10 + n for n in range(10)})):  # full-width digits
        with pytest.raises(InputError, match=f"unknown|{unknown}"):
            env.reset(options={"task_id": unknown})


@every_environment
def test_a_task_id_names_one_episode(name: str) -> None:
    first, second = made(name), made(name)
    for task_id in some_tasks(name):
        start = first.reset(seed=1, options={"task_id": task_id})
        assert start == second.reset(seed=2, options={"task_id": task_id})
        assert start == first.reset(options={"task_id": task_id})
        assert start[0] in first.observation_space


@every_environment
def test_fuzzed_actions_never_raise(name: str) -> None:
    env, rng = made(name), random.Random(0)
    limit = env_spec(name).max_turns
    for episode in range(FUZZED_EPISODES):
        task_id = some_tasks(name)[episode % len(some_tasks(name))]
        _, info = env.reset(options={"task_id": task_id})
        check_info(info)
        for turn in range(limit):
            action = rng.choice(fuzzed_actions(rng, list(info.get("admissible_actions", []))))
            observation, reward, terminated, truncated, info = env.step(action)
            assert isinstance(observation, str) and observation in env.observation_space, (turn, observation)
            assert isinstance(terminated, bool) and isinstance(truncated, bool)
            assert np.isfinite(reward)
            check_info(info)
            if terminated or truncated:
                break


def starter_options(name: str) -> dict[str, Any]:
    """The environment's options as its starter plays it."""
    try:
        defaults = starter_spec(name).defaults
    except InputError:
        return {}
    return {key.removeprefix("env."): value for key, value in defaults.items() if key.startswith("env.")}


def demonstrated_actions(name: str, task_id: str) -> list[str]:
    """What the environment's own player does in a task; awkward words where nobody plays it."""
    try:
        recipe = starter_spec(name)
    except InputError:
        return ["look", "nothing that could be read"]
    options = read_env_options(env_spec(name), starter_options(name))
    return [action for _, action in (recipe.expert or recipe.demonstrate)(task_id, random.Random(0), options)]


@every_environment
def test_a_snapshot_of_any_turn_travels_to_another_environment(name: str) -> None:
    options = starter_options(name)
    made(name)
    env, other = make_env(name, options), make_env(name, options)
    if not hasattr(env.unwrapped, "snapshot") or env.unwrapped.snapshot is None:
        pytest.skip(f"{name} cannot copy its state")
    ids = task_ids(name, "test", options)
    actions = demonstrated_actions(name, ids[0])
    env.reset(options={"task_id": ids[0]})
    other.reset(options={"task_id": ids[-1]})
    for turn, action in enumerate(actions):
        saved = pickle.dumps(env.unwrapped.snapshot())  # type: ignore[attr-defined]
        assert len(saved) <= MAX_SNAPSHOT_BYTES
        expected = env.step(action)
        other.unwrapped.restore(pickle.loads(saved))  # type: ignore[attr-defined]
        assert other.step(action) == expected, turn
        if any(expected[2:4]):
            break
    assert turn >= min(1, env_spec(name).max_turns - 1), "more than the first turn was copied"
