"""Classes whose public methods are tools: actions in TRL's own rollout loop, by hand, and classes that do not fit."""

import asyncio
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, write_response

ROOT = Path(__file__).parents[2]
DIAL = ROOT / "docs" / "examples" / "class"
HERE = "class:envs.test_tool_class"


class Counter:
    """As a user of TRL writes it."""

    def reset(self, start: int = 0, **row: Any) -> str:
        self.n, self.row = start, row
        return f"Counter {self.n}; bring it to 5."

    def add(self, amount: int) -> str:
        """Add to the counter.

        Args:
            amount: How much.
        """
        if amount < 0:
            raise ValueError("negative amount")
        self.n += amount
        return f"counter is {self.n}"

    async def double(self) -> int:
        """Double the counter."""
        await asyncio.sleep(0)
        self.n *= 2
        return self.n

    async def get_reward(self) -> float | None:
        return None if self.n > 10 else float(self.n == 5)


def brief(completions: Any, **columns: Any) -> list[float]:
    return [-0.1 * sum(message["role"] == "tool" for message in said) for said in completions]


def told(prompts: Any, environments: Any, start: Any, log_metric: Any, **columns: Any) -> list[float | None]:
    log_metric("seen", len(environments))
    return [None if env.n == first else float("Play" in prompt[-1]["content"])
            for env, first, prompt in zip(environments, start, prompts, strict=True)]  # fmt: skip


REWARDS = {f"{HERE[6:]}:brief": 1, f"{HERE[6:]}:told": 1}
ROW = {"prompt": [{"role": "system", "content": "Count."}, {"role": "user", "content": "Play. "}], "start": 2}


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


#: Turns of calls; the last one has none.
SCRIPTS = {
    "right": [[call("add", amount=3)], []],
    "nothing": [[]],
    "negative": [[call("add", amount=-3)], [call("add", amount=3)], []],
    "wrong arguments": [[call("add", amt=3)], [call("add", amount="3")], [call("add")], []],
    "unknown tool": [[call("sub", amount=3), call("add", amount=3)], []],
    "several": [[call("add", amount=1), call("add", amount=2)], []],
    "a coroutine": [[call("add", amount=1)], [call("double")], []],
    "no reward of its own": [[call("add", amount=9)], []],
}


def text(calls: list[ToolCall]) -> str:
    return write_response("" if calls else "I am done.", calls)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    path.write_text(json.dumps(ROW), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The metrics of every script in TRL's own loop, played by another process (`envs.trl_rollout`)."""
    pytest.importorskip("trl")
    folder = tmp_path_factory.mktemp("stub")
    if not importlib.util.find_spec("datasets"):  # TRL needs it only for types
        (folder / "datasets.py").write_text(
            "class Dataset: pass\nIterableDataset = DatasetDict = IterableDatasetDict = Dataset"
        )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *map(str, (ROOT, ROOT / "tests"))])}
    ran = subprocess.run(
        [sys.executable, "-m", "envs.trl_rollout"], env=env, capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", SCRIPTS)
def test_rewards_are_those_of_trl(name: str, theirs: dict[str, dict[str, float]], tasks: str) -> None:
    env = make_env(f"{HERE}:Counter", {"tasks": tasks, "rewards": REWARDS})
    env.reset(options={"task_id": "line-1"})
    done, total, metrics = False, 0.0, {}
    for calls in SCRIPTS[name]:
        assert not done
        _, reward, done, _, info = env.step(text(calls))
        total, metrics = total + reward, info["metrics"]
    wanted = theirs[name]
    assert done and total == pytest.approx(wanted["reward"])
    parts = {name: metrics.get(name) for name in ("Counter", "brief", "told")}
    wanted_parts = {name: wanted[f"rewards/{name}"] for name in parts}
    assert parts == {name: None if math.isnan(v) else pytest.approx(v) for name, v in wanted_parts.items()}


def test_an_episode_by_hand(tasks: str) -> None:
    rewards = {f"{HERE[6:]}:brief": 0.5, f"{HERE[6:]}:told": 2}
    env = make_env(f"{HERE}:Counter", {"tasks": tasks, "rewards": rewards, "success_reward": 2.95}, max_turns=2)
    observation, info = env.reset(seed=0)
    assert [message["content"] for message in info["messages"]] == ["Count.", "Play. Counter 2; bring it to 5."]
    assert [tool["function"]["name"] for tool in info["tools"]] == ["add", "double"]
    assert '"amount": {"type": "integer", "description": "How much."}' in observation
    assert observation.endswith(info["messages"][1]["content"])
    observation, reward, *ended, info = env.step(text([call("add", amount="x"), call("sub"), call("add", amount=3)]))
    assert observation.count("error: ") == 2 and "there is no tool 'sub'; tools: add, double" in observation
    assert observation.endswith("<tool_response>\ncounter is 5\n</tool_response>")
    assert (reward, ended, info["valid"], info["success"]) == (0.0, [False, False], False, False)
    _, reward, *ended, info = env.step("<tool_call>{</tool_call>")
    assert reward == pytest.approx(1 - 0.5 * 0.4 + 2) and ended == [False, True]
    assert not info["valid"] and not info["success"]
    assert info["metrics"] == pytest.approx(
        {"turns": 2, "calls": 2, "failed_calls": 1, "Counter": 1, "brief": -0.4, "told": 1, "seen": 1}
    )


class NoReset:
    pass


class NoReward:
    def reset(self, **row: Any) -> None: ...


class NoTypes(Counter):
    def subtract(self, amount):  # type: ignore[no-untyped-def]
        """Subtract."""


class NoColumns(Counter):
    def reset(self, goal: int) -> None: ...  # type: ignore[override]


class Silent(Counter):
    max_turns, blocking = 3, "inline"

    def reset(self, **row: Any) -> None: ...  # type: ignore[override]


class Gym(gymnasium.Env[str, str]):
    action_space = gymnasium.spaces.Text(max_length=9)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("class:Counter", {}, "environment class:Counter: write <module>:<name>"),
        ("class:no_such_module:A", {}, "environment class:no_such_module:A: there is no module no_such_module"),
        (f"{HERE}:Countre", {}, "Countre: 'Countre': did you mean 'Counter'?"),
        (f"{HERE}:Gym", {}, "it is a gymnasium environment: use gymnasium:envs.test_tool_class:Gym"),
        (f"{HERE}:Counter", {}, "needs env.tasks=FILE"),
        (f"{HERE}:Counter", {"tasks": "TASKS", "kwargs": {"size": 3}}, "cannot be created: TypeError"),
        (f"{HERE}:Counter", {"tasks": "TASKS", "rewards": {f"{HERE[6:]}:breif": 1}}, "did you mean 'brief'?"),
        (f"{HERE}:NoReset", {"tasks": "TASKS"}, "NoReset has no method reset"),
        (f"{HERE}:NoReward", {"tasks": "TASKS"}, "NoReward has no method get_reward: write it, or set env.rewards"),
        (f"{HERE}:NoTypes", {"tasks": "TASKS"}, "the tool subtract (test_tool_class.py:"),
        (f"{HERE}:NoColumns", {"tasks": "TASKS"}, "missing a required argument: 'goal'"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(name: str, options: dict[str, Any], message: str, tasks: str) -> None:
    given = {key: tasks if value == "TASKS" else value for key, value in options.items()}
    with pytest.raises(InputError) as error:
        make_env(name, given).reset(seed=0)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_task_without_any_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"start": 1}')
    spec = env_spec(f"{HERE}:Silent")
    assert (spec.max_turns, spec.blocking) == (3, "inline")
    with pytest.raises(InputError, match="no prompt, and reset returned no text"):
        make_env(spec.name, {"tasks": str(tmp_path / "tasks.jsonl")}).reset(seed=0)


def test_the_example_has_a_warm_start_model() -> None:
    name, options = f"class:{DIAL / 'dial.py'}:Dial", {"tasks": str(DIAL / "dial.jsonl")}
    starter = starter_spec(name, options)
    assert starter.defaults["env.tasks"] == options["tasks"]
    read, rng, seen = read_env_options(env_spec(name), options), random.Random(0), set()
    tokenizer = starter.build_tokenizer()
    for task in task_ids(name, "test", options):
        for observation, action in starter.demonstrate(task, rng, read):
            assert tokenizer.unk_token_id not in tokenizer(f"{observation} {action}")["input_ids"]
            seen.add(action)
        assert json.loads(starter.opening(task, read))["tools"][0]["function"]["name"] == "turn"
    assert len(seen) == 3  # up, down and the end
