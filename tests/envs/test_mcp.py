"""The environment mcp: the example of the docs, real servers, their deaths, and files that are wrong."""

import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from processes import children_running
from rollout.scripted import ScriptedEngine

from rl_agents.envs.base import make_env, named_env, task_ids

pytest.importorskip("mcp", reason="the MCP SDK is not installed")

from episodes import play_episodes

from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.mcp.env import McpEnv
from rl_agents.envs.starters import word_tokenizer
from rl_agents.errors import InputError
from rl_agents.rollout.agent_loop import Limits
from rl_agents.rollout.branching import takes_snapshots
from rl_agents.rollout.env_calls import EnvFailure, call_env, read_reset
from rl_agents.tools.calls import ToolCall, write_response

make = partial(named_env, "mcp")

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "mcp"
MISBEHAVING = ROOT / "tests" / "tools" / "mcp_server.py"
TASKS = str(EXAMPLE / "tasks.jsonl")


def servers_file(folder: Path, script: Path) -> str:
    path = folder / "servers.json"
    entry = {"command": sys.executable, "args": [str(script)]}
    path.write_text(json.dumps({"mcpServers": {"book": entry}}), encoding="utf-8")
    return str(path)


def running(script: Path) -> int:
    return len(children_running(str(script)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"servers": servers_file(tmp_path_factory.mktemp("book"), EXAMPLE / "server.py"), "tasks": TASKS}


@pytest.fixture(scope="module")
def env(files: dict[str, str]) -> Iterator[McpEnv]:
    """One for several tests: its server takes a second to start."""
    found = make(**files)
    yield found
    found.close()
    assert not running(EXAMPLE / "server.py")


def calls(*called: tuple[str, dict[str, Any]]) -> str:
    return write_response("", [ToolCall(name, arguments) for name, arguments in called])


def test_an_episode_by_hand(env: McpEnv) -> None:
    observation, info = env.reset(options={"task_id": "city/ada"})
    assert observation.endswith("Question: In which city does Ada live?") and '"name": "add"' in observation
    assert [tool["function"]["name"] for tool in info["tools"]] == ["city_of", "add"]
    assert json.loads(read_reset((observation, info)).chat)["messages"][1]["content"] == info["messages"][1]["content"]
    said = calls(("city_of", {"name": "Ada"}), ("add", {"a": 1, "b": 2}), ("city_of", {"name": "Xi"}))
    observation, reward, terminated, _, info = env.step(said)
    assert observation == (
        "<tool_response>\nRome\n</tool_response>\n<tool_response>\n3\n</tool_response>\n"
        "<tool_response>\nerror: Error executing tool city_of: nobody is called Xi; known: Ada, Ben, Cleo, Dan\n"
        "</tool_response>"
    )
    assert (reward, terminated, info["valid"], info["progress"]) == (0.0, False, True, True)
    anchor = info["anchor"]
    _, _, _, _, info = env.step(calls(("city_of", {"name": "Ada"})))
    assert info["progress"] is False and info["anchor"] == anchor
    _, reward, terminated, _, info = env.step("<think>Rome.</think><answer>the Rome!</answer>")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["metrics"] == {"turns": 3.0, "calls": 4.0, "failed_calls": 1.0, "em": 1.0, "f1": 1.0}


@pytest.mark.parametrize(
    ("action", "told", "progress"),
    [("hello", "found neither a tool call", None), (calls(("ad", {})), "there is no tool 'ad'", None),
     (calls(*[("add", {"a": 1, "b": 1})] * 5), "only the first 4 of 5 calls", True)],
)  # fmt: skip
def test_what_does_not_fit_is_told_and_not_valid(env: McpEnv, action: str, told: str, progress: bool | None) -> None:
    env.reset(options={"task_id": "city/ada"})
    observation, _, terminated, _, info = env.step(action)
    assert told in observation and not info["valid"] and not terminated and info["progress"] is progress


def test_the_checker_passes_and_an_unknown_tool_of_the_choice_is_named(env: McpEnv, files: dict[str, str]) -> None:
    check_env(env, skip_render_check=True)
    env.reset(options={"task_id": "city/ada"})
    chosen = make(**files, tools=["ad"])
    with pytest.raises(InputError, match=r"unknown tool in env.tools 'ad': did you mean 'add'"):
        chosen.reset()
    chosen.close()


def test_environments_of_a_process_share_servers_until_the_last_one_closes(files: dict[str, str], env: McpEnv) -> None:
    env.reset(options={"task_id": "city/ada"})
    other, own = make(**files), make(**files, share="environment", tools=["add"], reward="f1")
    for one in (other, own):
        one.reset(options={"task_id": "sum/17+25"})
    assert running(EXAMPLE / "server.py") == 2
    assert own.reset()[1]["tools"][0]["function"]["name"] == "add" and len(own.reset()[1]["tools"]) == 1
    other.close()
    own.close()
    assert running(EXAMPLE / "server.py") == 1
    assert "Rome" in env.step(calls(("city_of", {"name": "Ada"})))[0]
    own.reset(options={"task_id": "sum/17+25"})  # a closed environment may be used again
    own.close()


def test_a_dead_server_ends_the_episode_with_a_cause(tmp_path: Path) -> None:
    broken = make(servers=servers_file(tmp_path, MISBEHAVING), tasks=TASKS)
    try:
        broken.reset(options={"task_id": "city/ada"})
        recovered = calls(("die", {"marker": str(tmp_path / "died")}))
        assert "alive" in broken.step(recovered)[0]
        with pytest.raises(EnvFailure, match=r"env_error: McpServerError: MCP server 'book', asked for 'die': it died"):
            call_env(60.0, broken.step, calls(("die", {"marker": ""})))
    finally:
        broken.close()
    assert not running(MISBEHAVING)


def played(action: str, episodes: int, turns: int, env_timeout_s: float, **options: Any) -> list[Trajectory]:
    """Episodes in the real agent loop, which awaits the environment."""
    tokenizer = word_tokenizer(action.split(), [], 100_000)
    tokenizer.chat_template = "{% if tools %}<system> {{ tools | tojson }} {% endif %}" + str(tokenizer.chat_template)
    specs = [EpisodeSpec("city/ada", n, 0, seed=n) for n in range(episodes)]
    limits = Limits(turns, max_response_tokens=100, max_model_len=100_000, env_timeout_s=env_timeout_s)
    context, engine = make_context("append", tokenizer), ScriptedEngine(tokenizer, lambda prompt: action)
    found = play_episodes(specs, lambda: make_env("mcp", options, turns), engine, context, limits)
    return asyncio.run(found).trajectories


def test_episodes_wait_for_their_tools_side_by_side(tmp_path: Path) -> None:
    options = {"servers": servers_file(tmp_path, MISBEHAVING), "tasks": TASKS}
    holds = make(**options)
    holds.reset()
    found = played(calls(("wait", {"seconds": 1.0})), episodes=40, turns=3, env_timeout_s=60.0, **options)
    assert [t.end_cause for t in found] == ["max_turns"] * 40 and all(t.metrics["calls"] == 3.0 for t in found)
    assert 15 <= int(holds.step(calls(("most_waiting", {})))[0].split("\n")[1]) <= 40
    holds.close()
    assert not running(MISBEHAVING)


def test_a_step_that_is_cut_off_leaves_the_servers_to_the_others(tmp_path: Path) -> None:
    options = {"servers": servers_file(tmp_path, MISBEHAVING), "tasks": TASKS}
    holds = make(**options)
    holds.reset()
    found = played(calls(("wait", {"seconds": 30})), episodes=3, turns=1, env_timeout_s=0.5, **options)
    assert {t.end_cause for t in found} == {"env_timeout: step: no answer within 0.5 s"}
    assert running(MISBEHAVING) == 1
    assert "still here" in holds.step(calls(("echo", {"text": "still here"})))[0]
    holds.close()
    assert not running(MISBEHAVING)


def test_servers_that_do_not_start_are_told_to_all_who_wait_for_them(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("rl_agents.tools.mcp_client.CLOSE_TIMEOUT_S", 900.0)  # a loop that waits for itself would show
    options = {"servers": servers_file(tmp_path, tmp_path / "none.py"), "tasks": TASKS}
    with pytest.raises(InputError, match="MCP server 'book' cannot be used"):
        played(calls(("wait", {"seconds": 0})), episodes=5, turns=1, env_timeout_s=60.0, **options)
    for _ in range(2):
        with pytest.raises(InputError, match="MCP server 'book' cannot be used"):
            make(**options).reset()


def test_bad_options_and_states_that_cannot_be_copied(files: dict[str, str]) -> None:
    for options, problem in (
        ({}, "needs env.servers=FILE"),
        ({**files, "servers": "none.json"}, r"none\.json: cannot be read"),
        ({**files, "tasks": "none.jsonl"}, r"none\.jsonl: no such file"),
    ):
        with pytest.raises(InputError, match=problem):
            make(**options)
    assert not takes_snapshots(make(**files), "auto")


def test_files_of_tasks(tmp_path: Path) -> None:
    path, more = tmp_path / "tasks.jsonl", tmp_path / "more.jsonl"
    path.write_text('{"question": "Q?", "answer": "A"}\n')
    more.write_text('{"question": "R?", "answers": ["B", "C"], "id": "r"}\n')
    assert task_ids("mcp", "train", {"tasks": str(path)}) == task_ids("mcp", "test", {"tasks": str(path)}) == ["1"]
    both = {"tasks": str(path), "test_tasks": str(more)}
    assert (task_ids("mcp", "train", both), task_ids("mcp", "test", both)) == (["1"], ["r"])
    more.write_text('{"question": "R?", "answer": "B", "id": "1"}\n{"question": "S?"}\n')
    with pytest.raises(InputError, match=r"more\.jsonl, line 2: no 'answer'"):
        task_ids("mcp", "test", both)
    more.write_text('{"question": "R?", "answer": "B", "id": "1"}\n')
    with pytest.raises(InputError, match="the task id '1' occurs twice"):
        task_ids("mcp", "test", both)
    more.write_text("")
    with pytest.raises(InputError, match="no tasks in it"):
        task_ids("mcp", "test", both)
