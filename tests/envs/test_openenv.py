"""OpenEnv's servers: the library's own against its own client, a misbehaving one, and runs while a server dies."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_models import save_chat_model
from processes import free_port

from rl_agents import errors
from rl_agents.cli import main
from rl_agents.envs.base import env_spec, named_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.openenv.env import read_form, schema_of, text_of
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, write_response
from rl_agents.tools.toolbox import ToolError

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
EXAMPLE = ROOT / "docs" / "examples" / "openenv"
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
INSTALLED = any(ROOT.glob(".venv-clients/lib/python*/site-packages/openenv/core"))
needs_library = pytest.mark.skipif(not INSTALLED, reason="no openenv in .venv-clients: make clients")

Start = Callable[..., tuple[str, subprocess.Popen[str]]]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts a server; the first argument of a command is the interpreter."""
    servers: list[subprocess.Popen[str]] = []

    def started(
        *command: object, port: int = 0, last: tuple[object, ...] = (), page: str = "schema"
    ) -> tuple[str, subprocess.Popen[str]]:
        url = f"http://127.0.0.1:{(port := port or free_port())}"
        words = [*map(str, command), str(port), *map(str, last)]
        servers.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        while servers[-1].poll() is None:
            try:
                httpx.get(f"{url}/{page}")
                return url, servers[-1]
            except httpx.HTTPError:
                threading.Event().wait(0.05)
        raise AssertionError(f"{words} ended with {servers[-1].returncode}")

    yield started
    for server in servers:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def stub(start: Start) -> str:
    return start(sys.executable, HERE / "openenv_stub.py")[0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(errors, "_reported", set())
    schema_of.cache_clear()
    envs: list[Any] = []

    def one(url: str, trick: str = "", **options: Any) -> Any:
        kwargs = {"kwargs": {"trick": trick}} if trick else {}
        envs.append(named_env("openenv", url=url, **kwargs, **options))
        return envs[-1]

    yield one
    for env in envs:
        env.close()


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


#: Kind of server -> (arguments of reset, actions as its client sends them) for each episode.
SCRIPTS: dict[str, list[Any]] = {
    "forms": [
        [{"seed": 2}, [{"way": "down", "steps": 1}, {"way": "up", "steps": 3}]],
        [{"seed": 1}, [{"way": "up", "steps": 1}]],
        [{"seed": 0}, [{"way": "up", "steps": 2}, {"way": "down", "steps": 1}, {"way": "down", "steps": 1}]],
    ],
    "tools": [
        [{"seed": 3}, [("add", {"number": 4}), ("add", {"number": -1}), ("add", {"number": 3})]],
        [{"seed": 0}, [("add", {"number": 9}), ("add", {"number": 9})]],
    ],
}


@pytest.fixture(scope="module")
def library(start: Start) -> str:
    return start(PYTHON, HERE / "openenv_server.py", "serve", page="tools/schema")[0]


@needs_library
def test_rewards_are_those_of_the_librarys_own_client(library: str, opened: Callable[..., Any]) -> None:
    def sent(kind: str, action: Any) -> Any:
        return action if kind == "forms" else {"type": "call_tool", "tool_name": action[0], "arguments": action[1]}

    scripts = {
        kind: [[reset, [sent(kind, action) for action in actions]] for reset, actions in episodes]
        for kind, episodes in SCRIPTS.items()
    }
    command = [PYTHON, HERE / "openenv_server.py", "play", library, json.dumps(scripts)]
    own = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for kind, episodes in SCRIPTS.items():
        env = opened(f"{library}/{kind}", prompt="" if kind == "forms" else "count to ten")
        for (reset, actions), (_, *told) in zip(episodes, own[kind], strict=True):
            observation, info = env.reset(options={"task_id": f"seed-{reset['seed']}"})
            assert [tool["function"]["name"] for tool in info["tools"]] == ["Move" if kind == "forms" else "add"]
            for action, (seen, reward, done) in zip(actions, told, strict=True):
                name, arguments = ("Move", action) if kind == "forms" else action
                observation, *outcome, _, info = env.step(write_response("so:", [call(name, **arguments)]))
                assert (outcome, info["valid"]) == ([reward, done], True)
                text = f"place: {seen['place']}" if kind == "forms" else tool_text(seen)
                assert text in observation


def tool_text(seen: dict[str, Any]) -> str:
    if seen["error"]:
        return f"error: {seen['error']['message']}"
    text: str = seen["result"]["content"][0]["text"]
    return text


@needs_library
def test_tasks_fields_and_sessions_of_a_server_of_the_library(library: str, opened: Callable[..., Any]) -> None:
    url = f"{library}/forms"
    env = opened(url, kwargs={"far": 1}, shown=["goal"])
    observation, info = env.reset(options={"task_id": "seed-1"})
    assert info["messages"] == [{"role": "user", "content": "2"}]
    for wrong, told in (
        ({"way": "left", "steps": 1}, "do not fit its schema at 'way': 'left' does not match"),
        ({"way": "up", "steps": 4}, "at 'steps': 4 is greater than the maximum of 3"),
        ({"way": "up"}, "'steps' is a required property"),
    ):
        observation, reward, done, _, info = env.step(write_response("", [call("Move", **wrong)]))
        assert told in observation and (reward, done, info["valid"]) == (0.0, False, False)
    moves = [call("Move", way="up", steps=steps) for steps in (1, 1, 1)]
    observation, reward, done, _, info = env.step(write_response("", moves))
    assert observation.count("<tool_response>") == 3 and "error: not run: the episode has ended" in observation
    assert (reward, done, info["success"]) == (0.75, True, True)
    assert info["metrics"] == {"turns": 4.0, "invalid_actions": 3.0}
    second = opened(url)
    second.reset(options={"task_id": "seed-1"})
    with pytest.raises(ConnectionError, match="max_concurrent_envs"):
        opened(url, wait_s=0).reset(options={"task_id": "seed-1"})
    second.close()
    opened(url).reset(options={"task_id": "seed-1"})


def test_a_response_is_the_value_of_the_only_field(stub: str, opened: Callable[..., Any]) -> None:
    env = opened(stub, shown=["text"], prompt="be long", success_return=1.0, max_turns=2)
    assert env.reset(options={"task_id": "seed-7"})[0] == "be long\n\ntalk about 7"
    observation, reward, *ended, info = env.step("<think>how long?</think> hello ")
    assert (observation, reward, ended, info["success"]) == ("5 characters", 0.5, [False, False], False)
    assert not env.step("<think>hm")[-1]["valid"]
    observation, reward, *ended, info = env.step("0123456789")
    assert (reward, ended, info["success"], info["valid"]) == (1.0, [False, True], True, True)


@pytest.mark.parametrize(
    ("trick", "error", "message"),
    [
        ("hang", RuntimeError, "step: no answer within 0.3 s (env.timeout_s)"),
        ("garbage", RuntimeError, "step: the answer is '[1]'"),
        ("no_reward", RuntimeError, "step: the answer is"),
        ("raise", RuntimeError, "step: no such file (EXECUTION_ERROR)"),
        ("full", ConnectionError, "reset: full: start it with a larger max_concurrent_envs"),
    ],
)
def test_failures_name_the_server(
    trick: str, error: type[Exception], message: str, stub: str, opened: Callable[..., Any]
) -> None:
    env = opened(stub, trick, wait_s=0, **({"timeout_s": 0.3} if trick == "hang" else {}))
    with pytest.raises(error) as failed:
        env.reset(options={"task_id": "seed-1"})
        env.step("hello")
    assert str(failed.value).startswith(f"OpenEnv server {stub}: ") and message in str(failed.value)
    again = opened(stub)
    again.reset(options={"task_id": "seed-1"})
    assert again.step("hello")[1] == 0.5


def test_what_the_server_refuses_is_told_with_its_fields(stub: str, opened: Callable[..., Any]) -> None:
    env = opened(stub, "refuse")
    env.reset(options={"task_id": "seed-1"})
    observation, reward, done, _, info = env.step("!")
    assert (observation, reward, done, info["valid"]) == ("said: too rude", 0.0, False, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": ""}, "environment openenv needs env.url"),
        ({"url": "127.0.0.1:1"}, "missing an 'http://' or 'https://' protocol"),
        ({"url": "http://127.0.0.1:1"}, "OpenEnv server http://127.0.0.1:1: /schema: [Errno 111] Connection refused"),
        ({"key_env": "NO_SUCH_KEY"}, "env.key_env=NO_SUCH_KEY: the environment variable is not set"),
        ({"key_env": "WRONG_KEY"}, "/schema: Client error '401"),
        ({"shown": ["txt"]}, "the first observation is empty: set env.prompt, or other env.shown"),
        ({"task": "1"}, "task '1': write it as seed-<number>"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    options: dict[str, Any], message: str, stub: str, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_KEY", "wrong")
    task = options.get("task", "seed-0")
    given = {"url": stub} | {key: value for key, value in options.items() if key != "task"}
    with pytest.raises(InputError) as error:
        task_ids("openenv", "train", given)
        opened(**given).reset(options={"task_id": task})
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_form_of_an_action() -> None:
    """Of several fields, a response fills the only required one; an action without fields is of a tool environment."""
    both = {"title": "Run It", "properties": {"code": {"type": "string"}, "limit": {}, "metadata": {}}}
    field, tool = read_form({**both, "required": ["code"]})
    assert tool is not None and (field, tool.name) == ("code", "Run_It")
    assert set(tool.parameters["properties"]) == {"code", "limit"} and read_form(both)[0] == ""
    for name in ("metadata", "tool_name"):
        assert read_form({"properties": {name: {}}}) == ("", None)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"a": 1, "b": None, "c": "x\ny"}, "a: 1\nc: x\ny"),
        ({"a": ["é"]}, '["é"]'),
        ({"tool_name": "t", "result": {"content": [{"type": "text", "text": "one"}, {"text": "two"}]}}, "one\ntwo"),
        ({"tool_name": "t", "result": 5}, "5"),
        ({"tool_name": "t", "result": None, "error": {"error_type": "timeout", "message": "too slow"}}, "!too slow"),
        ({"tool_name": "t", "result": {"content": [{"text": "bad"}], "is_error": True}}, "!bad"),
    ],
)
def test_observations_become_text(observation: dict[str, Any], text: str) -> None:
    try:
        found = text_of(observation, [])
    except ToolError as error:
        found = f"!{error}"
    assert found == text


def test_when_its_server_dies_an_episode_fails_with_the_servers_name(start: Start, opened: Callable[..., Any]) -> None:
    url, server = start(sys.executable, HERE / "openenv_stub.py")
    env = opened(url)
    env.reset(options={"task_id": "seed-1"})
    server.kill()
    server.wait()
    with pytest.raises(ConnectionError, match=f"OpenEnv server {url}: step: the connection is lost"):
        env.step("hi")


def test_a_run_goes_on_when_its_server_is_killed_and_started_again(
    tmp_path: Path, start: Start, opened: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    url, server = start(sys.executable, HERE / "openenv_stub.py", last=(9,))

    def supervise() -> None:
        assert server.wait() == 9
        start(sys.executable, HERE / "openenv_stub.py", port=int(url.rpartition(":")[2]))

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    few = ["iterations=2", "minibatches=1", "tasks_per_iteration=2", "group_size=2", "eval_episodes=2"]
    keys = [f"env.url={url}", "env.train_tasks=8", "env.test_tasks=2", "max_response_tokens=8", "num_env_runners=0"]
    model = str(save_chat_model(tmp_path / "model"))
    given = ["--env", "openenv", "--model", model, "--output", str(tmp_path / "run"), "--set", *few, *keys]
    assert main(["--algo", "grpo", "--local", *given]) == 0
    supervisor.join()
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert len(records) >= 2 and "waiting up to 60 s" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["iterations"] == 2


@needs_library
def test_the_player_of_the_page_plays_its_server(start: Start) -> None:
    url, _ = start(PYTHON, EXAMPLE / "server.py")
    keys = {"url": url, "player": f"{EXAMPLE / 'guess_player.py'}:guess", "train_tasks": 20, "test_tasks": 4}
    options = read_env_options(env_spec("openenv"), keys)
    dialogue = starter_spec("openenv", keys).demonstrate("seed-3", random.Random(0), options)
    assert 1 <= len(dialogue) <= 3 and all(guess.isdecimal() for _, guess in dialogue)
    assert all(" is too " in seen for seen, _ in dialogue[1:])
