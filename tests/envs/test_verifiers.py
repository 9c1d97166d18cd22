"""Environments of the library verifiers: the library's own runner against ours, with the same scripted answers."""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model
from rollout.black_boxes import CONTEXT, LIMITS

from rl_agents.cli import main
from rl_agents.config import Settings
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import named_env, starter_defaults, starter_spec, task_ids
from rl_agents.envs.verifiers import VerifiersOptions
from rl_agents.errors import AgentFailed, InputError
from rl_agents.gateway.agent_interpreter import close_hosts
from rl_agents.inference.base import Completion
from rl_agents.rollout.blackbox import collect_blackbox, load_black_box
from rl_agents.tools.calls import ToolCall, write_response

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-verifiers" / "bin" / "python"
WORLDS = Path(__file__).with_name("verifiers_worlds.py")
needs_library = pytest.mark.skipif(
    not (ROOT / ".venv-verifiers" / ".ready").is_file(), reason="no .venv-verifiers: make verifiers"
)
V1_PYTHON = ROOT / ".venv-verifiers-v1" / "bin" / "python"
needs_v1 = pytest.mark.skipif(
    not (ROOT / ".venv-verifiers-v1" / ".ready").is_file(), reason="no .venv-verifiers-v1: make verifiers"
)
LONG = replace(LIMITS, max_model_len=4000, max_response_tokens=200)

#: (kind, row, scripts): an answer is a text, or calls.
CASES: list[tuple[str, int, list[list[Any]]]] = [
    ("single", 2, [["5"], ["five"], [" 5"]]),
    (
        "tool", 4,
        [
            [[["add", {"a": 4, "b": 3}]], "7"],
            [[["add", {"a": 4}], ["add", {"a": 1, "b": 99}]], [["take", {"a": 1}]], "no"],
            [[["add", {"a": 1, "b": 1}]], [["add", {"a": 1, "b": 1}]], [["add", {"a": 1, "b": 1}]]],
            ["7"],
        ],
    ),
    ("multi", 6, [["9"], ["1", "9"], ["1", "2", "3"]]),
    ("group", 1, [["4"], ["four"], ["no"]]),
]  # fmt: skip


#: The same for v1: a task set with a tool, and an environment with turns of its own.
V1_CASES: list[tuple[str, int, list[list[Any]]]] = [
    ("worlds", 2, [["five"], [[["add", {"a": 2, "b": 3}]], "5"]]),
    ("guess", 4, [["1", "7"], ["1", "2", "3"]]),
]


@pytest.fixture(autouse=True, scope="module")
def hosts() -> Iterator[None]:
    """One process of each interpreter for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(ROOT / ".uv" / "bin"), prepend=":")  # v1 needs uv
        yield
    close_hosts()


def options(kind: str = "single", **more: Any) -> dict[str, Any]:
    return {"id": str(WORLDS), "agent_python": str(PYTHON), "args": {"kind": kind}, **more}


def text(answer: Any) -> str:
    return answer if isinstance(answer, str) else write_response("", [ToolCall(name, given) for name, given in answer])


def v1_options(kind: str, **more: Any) -> dict[str, Any]:
    file = WORLDS.with_name(f"verifiers_v1_{kind}.py")
    return {"id": str(file), "agent_python": str(V1_PYTHON), "limit": 6, **more}


def outcome(keys: dict[str, Any], row: int, script: list[Any]) -> list[Any]:
    """Reward and metrics of an episode whose answers the test gives."""
    env = named_env("verifiers", **keys)
    observation, _ = env.reset(options={"task_id": f"train/{row}"})
    assert f"{row} + 3?" in observation
    for number, answer in enumerate(script, 1):
        observation, reward, terminated, truncated, info = env.step(text(answer))
        assert (terminated, truncated) == (number == len(script), False)
    assert info["success"] == (reward > 0)
    return [reward, info["metrics"]]


@needs_library
def test_rewards_and_metrics_are_those_of_the_librarys_own_runner() -> None:
    ran = subprocess.run([PYTHON, WORLDS, json.dumps(CASES)], check=True, capture_output=True, text=True)
    for (kind, row, scripts), own in zip(CASES, json.loads(ran.stdout), strict=True):
        ours = (
            in_groups(row, scripts) if kind == "group" else [outcome(options(kind), row, script) for script in scripts]
        )
        assert ours == own, kind
        assert len({reward for reward, _ in own}) > 1


@needs_v1
def test_rewards_and_metrics_of_v1_are_those_of_the_librarys_own_runner() -> None:
    command = [V1_PYTHON, WORLDS.with_name("verifiers_v1_worlds.py"), json.dumps(V1_CASES)]
    environment = {**os.environ, "PYTHONPATH": str(WORLDS.parent)}
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    for (kind, row, scripts), own in zip(V1_CASES, json.loads(ran.stdout), strict=True):
        assert [outcome(v1_options(kind), row, script) for script in scripts] == own
        assert len({reward for reward, _ in own}) > 1


def black_box(**more: Any) -> Any:
    found = load_black_box(Settings.from_dict({"env": "verifiers", **{f"env.{k}": v for k, v in more.items()}}))
    assert found is not None
    return found


class Members:
    """An engine whose answers the seeds of the requests choose."""

    def __init__(self, words: dict[int, str]) -> None:
        self.words, self.tokenizer = words, CONTEXT.template.tokenizer

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        await asyncio.sleep(0)
        said = self.tokenizer.encode(self.words[sampling.seed], add_special_tokens=False)
        ids = [*said, sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 3, "stop")


def in_groups(row: int, scripts: list[list[Any]], **more: Any) -> list[list[Any]]:
    """Two groups through a gateway, with fewer places than sessions."""
    words = [script[0] for script in scripts]
    specs = [EpisodeSpec(f"train/{row}", group, n, seed=10 * group + n) for group in (1, 2) for n in range(len(words))]
    engine = Members({step_seed(spec.seed, 0): words[spec.member] for spec in specs})
    box = black_box(**options("group", **{"agent_concurrency": len(words) + 1, **more}))
    played = asyncio.run(collect_blackbox(specs, box, engine, CONTEXT.template, LONG)).trajectories
    assert {t.end_cause for t in played} == {"terminated"}, [t.end_cause for t in played]
    first, second = ([[t.episode_return, t.metrics] for t in played if t.group_id == group] for group in (1, 2))
    assert first == second
    return first


@needs_library
def test_tasks_are_rows_and_no_training_row_is_a_test() -> None:
    assert task_ids("verifiers", "test", options()) == ["test/0", "test/1", "test/2"]
    assert task_ids("verifiers", "train", options()) == [f"train/{row}" for row in range(2, 12)]
    multi = [task_ids("verifiers", split, options("multi")) for split in ("train", "test")]
    assert sorted([*multi[0], *multi[1]]) == sorted(f"train/{row}" for row in range(12)) and len(multi[1]) == 1
    env = named_env("verifiers", **options("multi", reasoning="as_sent"))
    _, info = env.reset(options={"task_id": "train/3"})
    assert info["messages"][0] == {"role": "system", "content": "Guess."}
    env.close()


@needs_library
def test_an_exception_of_the_environment_names_the_users_file() -> None:
    env = named_env("verifiers", **options("multi"))
    env.reset(options={"task_id": "train/3"})
    with pytest.raises(AgentFailed, match=r"KeyError: 'no such key' \(verifiers_worlds.py:\d+\)"):
        env.step("crash")
    with pytest.raises(InputError, match=r"env.id=\S+: OSError: its data are not here \(verifiers_worlds.py:\d+\)"):
        task_ids("verifiers", "train", options(args={"fail": True}))


@needs_library
def test_a_group_that_does_not_fit_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"env.agent_concurrency must be at least group_size=2"):
        in_groups(1, [["4"], ["5"]], agent_concurrency=1)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, "environment verifiers needs env.id=NAME or env.id=FILE.py"),
        ({"id": "gsm8k"}, "environment verifiers needs env.agent_python=PYTHON, one that has verifiers"),
        ({"id": "gsm8k", "agent_python": "/nowhere/python"}, "env.agent_python=/nowhere/python: there is no"),
        ({"id": "gsm8k", "agent_python": "/bin/false"}, "env.agent_python=/bin/false: it is no Python"),
        ({"id": str(WORLDS)[:-4] + ".py", "agent_python": "sh"}, "no such file; did you mean 'verifiers_worlds.py'?"),
        ({"id": "gsm8k", "agent_python": sys.executable}, "-m pip install verifiers"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_line(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as refused:
        task_ids("verifiers", "train", keys)
    assert line in str(refused.value) and "\n" not in str(refused.value)


@needs_library
def test_an_unknown_environment_is_refused_with_what_to_install() -> None:
    with pytest.raises(InputError, match=r"no module gsm9k: install .* \(prime env install o/gsm9k, or"):
        task_ids("verifiers", "train", options(id="o/gsm9k"))


@needs_library
def test_the_readmes_line_trains_and_reports_the_named_rewards(tmp_path: Path) -> None:
    model, example = str(save_chat_model(tmp_path / "model")), ROOT / "docs" / "examples" / "verifiers" / "sums.py"
    few = ["iterations=1", "minibatches=1", "tasks_per_iteration=2", "group_size=2", "eval_episodes=2"]
    keys = [f"env.id={example}", f"env.agent_python={PYTHON}", "max_response_tokens=8"]
    given = ["--env", "verifiers", "--model", model, "--output", str(tmp_path / "run"), "--set", *few, *keys]
    assert main(["--algo", "grpo", "--local", *given]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    reported = set().union(*records)
    assert any(name.endswith("/right") for name in reported) and any(name.endswith("/short") for name in reported)


@needs_library
def test_the_warm_start_model_imitates_the_player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    example = ROOT / "docs" / "examples" / "verifiers"
    keys = {
        "id": str(example / "sums.py"),
        "agent_python": str(PYTHON),
        "player": f"{example / 'sums_player.py'}:guess",
    }
    starter = starter_spec("verifiers", keys)
    ((observation, action),) = starter.demonstrate("train/7", random.Random(0), VerifiersOptions(**keys))
    assert observation == "1 + 4 =" and action.isdecimal()
    assert starter.defaults["env.id"] == keys["id"] == starter_defaults("verifiers", keys)["env.id"]
