import math
import random

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_agents import errors
from rl_agents.envs.base import env_spec, make_env, read_env_options, task_ids
from rl_agents.envs.gymnasium_adapter import MethodPlayer, TextAdapter, adapter_spec, options_of, task_seed
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure, read_step


class Door(gymnasium.Env):
    """Text in, text out."""

    observation_space = action_space = spaces.Text(max_length=100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.code, self.options = int(self.np_random.integers(10)), options
        return "A door with a code.", {}

    def step(self, action):
        opened = action.strip() == str(self.code)
        return ("open" if opened else "closed"), float(opened), opened, False, {"success": opened}


class Corridor(gymnasium.Env):
    """Discrete actions with names, numbered from 5, and noise after the start."""

    observation_space, action_space = spaces.Discrete(10), spaces.Discrete(3, start=5)
    names = ("go left", "go right", "wait")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(1000))
        return self.place, {"admissible_actions": list(self.names)}

    def step(self, action):
        assert self.action_space.contains(action)
        noise = int(self.np_random.integers(1000))
        return noise, float(action), False, False, {"admissible_actions": ["go left"], "anchor": f"did {action}"}


class Sketch(gymnasium.Env):
    """Draws itself."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def __init__(self, render_mode=None, mark="S"):
        self.render_mode, self.mark = render_mode, mark

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 0.0, True, False, {}

    def render(self):
        return f"\n\x1b[41m{self.mark}\x1b[0mFG\n"


@pytest.fixture(autouse=True)
def registered():
    entries = {"test/Door-v0": Door, "test/Corridor-v3": Corridor, "test/Sketch-v0": Sketch}
    for gym_id, entry in entries.items():
        gymnasium.register(gym_id, entry_point=entry, max_episode_steps=7)
    yield
    for gym_id in entries:
        del gymnasium.registry[gym_id]


def start(name, task="seed-3", seed=0, **options):
    env = make_env(f"gymnasium:{name}", options)
    return env, *env.reset(seed=seed, options={"task_id": task})


def test_text_and_pictures_in_text_pass_through():
    env, observation, info = start("test/Door-v0")
    assert observation == "A door with a code." and info["valid"] and info["anchor"] == observation
    assert env.inner.unwrapped.options is None
    assert env.step("no idea")[:4] == ("closed", 0.0, False, False)
    observation, reward, terminated, _, info = env.step(f" {env.inner.unwrapped.code}")
    assert (observation, reward, terminated, info["success"]) == ("open", 1.0, True, True)
    env, observation, _ = start("test/Sketch-v0", kwargs={"mark": "X"})
    assert observation == "Observation: 0\n[X]FG\nAnswer with a number from 0 to 1."
    assert env.step("1")[0] == "Observation: 1\n[X]FG"


def test_named_actions():
    env, observation, info = start("test/Corridor-v3")
    assert observation.endswith("Answer with one of: go left, go right, wait.")
    assert info["admissible_actions"] == ["go left", "go right", "wait"]
    for text, number in (("Go Right", 6), ("I think.\nAction: wait", 7), ("<action>go left</action>", 5), ("7", 7)):
        env.reset(seed=0, options={"task_id": "seed-3"})
        _, reward, _, _, info = env.step(text)
        assert (reward, info["valid"], info["anchor"]) == (number, True, f"did {number}")
    assert info["admissible_actions"] == ["go left"]


@pytest.mark.parametrize("text", ["", "fly", "³", "8", "9" * 5000, "\n \n", "\x00"])
def test_an_action_that_cannot_be_read_changes_nothing(text):
    env, first, _ = start("test/Corridor-v3")
    observation, reward, terminated, truncated, info = env.step(text)
    assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, False)
    assert "is not an action. Answer with one of: go left" in observation and len(observation) < 300
    assert first.splitlines()[0] in observation and info["anchor"] == first.splitlines()[0]
    assert env.step("go left")[4]["valid"]


def test_tasks_are_start_states_and_seeds_are_noise():
    def play(task, seed):
        env, observation, _ = start("test/Corridor-v3", task, seed)
        return observation, env.step("wait")[0]

    assert play("seed-3", 1) == play("seed-3", 1)
    (first, noise), (same, other_noise) = play("seed-3", 1), play("seed-3", 2)
    assert first == same and noise != other_noise
    assert play("seed-4", 1)[0] != first
    env = make_env("gymnasium:test/Corridor-v3", {})
    assert env.reset(seed=3)[0] == first


def test_task_sets():
    options = {"train_tasks": 3, "test_tasks": 2}
    assert task_ids("gymnasium:test/Door-v0", "train", options) == ["seed-0", "seed-1", "seed-2"]
    assert task_ids("gymnasium:test/Door-v0", "test", options) == ["seed-1000000", "seed-1000001"]
    assert len(task_ids("gymnasium:test/Door-v0", "train", {})) == 1000
    with pytest.raises(InputError, match="train_tasks=-1"):
        task_ids("gymnasium:test/Door-v0", "train", {"train_tasks": -1})
    with pytest.raises(InputError, match="seed-<number>"):
        task_seed("seed-³")


def test_what_can_be_played():
    spec = adapter_spec("gymnasium:test/Door-v0")
    assert (spec.gym_id, spec.max_turns, spec.name) == ("test/Door-v0", 7, "gymnasium:test/Door-v0")
    assert env_spec("gymnasium:Taxi-v3").max_turns == 200
    with pytest.raises(InputError, match=r"did you mean 'env\.train_tasks'"):
        read_env_options(spec, {"train_task": 5})
    for name, message in (
        ("Taxi-v33", "did you mean 'Taxi-v3'"),
        ("", "unknown gymnasium environment ''"),
        ("no_such_module:Door-v0", "there is no module no_such_module in"),
    ):
        with pytest.raises(InputError, match=message):
            adapter_spec(f"gymnasium:{name}")
    with pytest.raises(InputError, match=r"actions are Box\(.*not Text or Discrete"):
        make_env("gymnasium:Pendulum-v1", {})
    with pytest.raises(InputError, match=r"FrozenLake-v1 cannot be created: .*nonsense"):
        make_env("gymnasium:FrozenLake-v1", {"kwargs": {"nonsense": 1}})


class Wrong(gymnasium.Env):
    observation_space, action_space = spaces.Text(9), spaces.Text(9)
    answer = None

    def reset(self, *, seed=None, options=None):
        return self.answer


def test_what_reset_does_wrong_is_named_with_the_users_class_and_line() -> None:
    env = Wrong()
    for env.answer in ("ab", np.zeros(2), ("hi", None)):
        with pytest.raises(InputError, match=r"Wrong\.reset \(.*test_gymnasium_adapter\.py:\d+\) returned "):
            TextAdapter(env, options_of("Wrong-v0")()).reset()


class Told(gymnasium.Env):
    observation_space, action_space = spaces.Text(9), spaces.Text(9)
    answer = None

    def step(self, action):
        return self.answer

    def demonstrate(self, observation, random):
        return "a"

    def reset(self, *, seed=None, options=None):
        return "hi", {}


def test_what_step_returns_is_read_as_it_is_or_refused(monkeypatch, capsys) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    env = TextAdapter(Told(), options_of("Told-v0")())
    one = np.array([0.5]), np.array(True), None, {"success": np.array([1.0]), "admissible_actions": None}
    env.inner.answer = ("on", *one)
    reply = read_step(env.step("a"))
    assert (reply.reward, reply.terminated, reply.truncated, reply.success) == (0.5, True, False, True)
    monkeypatch.setattr("rl_agents.envs.gymnasium_adapter.make", lambda options, turns: env)
    play = MethodPlayer(adapter_spec("gymnasium:test/Door-v0"), "demonstrate")
    for answer, problem in (
        (("on", "0.5", False, False, {}), "reward is str '0.5'"),
        (("on", None, False, False, {}), "reward is NoneType"),
        (("on", 0, "no", False, {}), "terminated is str 'no'"),
        ((None, 0, False, False, {}), "observation is NoneType"),
        (("on", 0, False, False, None), "info is NoneType"),
        (("on", 0, False, {}), "tuple of 4"),
    ):
        env.inner.answer = answer
        with pytest.raises(EnvFailure, match=problem):
            read_step(env.step("a"))
        with pytest.raises(InputError, match=r"Told\.step \(.*test_gymnasium_adapter\.py:\d+\) returned "):
            play("seed-0", random.Random(0), None)
    numbers = {"a": torch.tensor(1.0), "b": np.float32(2.0), "c": np.array([3]), "d": math.inf, "e": None, "f": "4"}
    flags = {"success": torch.tensor(True), "valid": np.bool_(False), "progress": torch.tensor(True)}
    env.inner.answer = ("on", torch.tensor(0.5), torch.tensor(True), False, {"metrics": numbers, **flags})
    capsys.readouterr()
    replies = [read_step(env.step("a"), env=env) for _ in range(2)]
    assert replies[0] == replies[1] and replies[0].metrics == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert (replies[0].reward, replies[0].success, replies[0].valid, replies[0].progress) == (0.5, True, False, True)
    inf, text = capsys.readouterr().err.splitlines()
    assert "(test_gymnasium_adapter.py:" in inf and "'d' is float inf, not a finite number" in inf
    assert "metric 'f' is str '4'" in text
    env.inner.answer = ("on", 0, False, False, {"success": 0.3})
    with pytest.raises(EnvFailure, match=r"info\['success'\] is float 0\.3"):
        read_step(env.step("a"))


def test_states_that_differ_in_the_middle_of_an_array_are_two() -> None:
    keys = set()
    for middle in (0.0, 1.0, 1.0 + 1e-12):
        env, array = Wrong(), np.zeros((40, 40))
        array[20, 20] = middle
        env.answer = array, {}
        keys.add(TextAdapter(env, options_of("Wrong-v0")()).reset()[1]["anchor"])
    assert len(keys) == 3 and not any("..." in key for key in keys)
