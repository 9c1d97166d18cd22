"""WebShop behind HTTP: what it answers, whom it lets in, and what environments notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import with_keywords

from rl_agents.envs.base import named_env
from rl_agents.envs.webshop import client, expert, service, tasks
from rl_agents.envs.webshop.client import RemoteShop, ServiceError
from rl_agents.envs.webshop.shop import LocalShop
from rl_agents.errors import InputError

make = partial(named_env, "webshop")
task_ids = with_keywords("webshop", tasks.task_ids)
play = with_keywords("webshop", expert.play)

pytestmark = pytest.mark.servers

TASK = "human/00002"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        LocalShop("small")
        yield


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(port: int, key: str = "", *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", service.__name__, "--catalogue", "small", "--port", str(port), *arguments]
    process = subprocess.Popen(command, env={**os.environ, client.KEY_VARIABLE: key}, cwd=ROOT)
    try:
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, "the service ended"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def port(cache: None) -> Iterator[int]:
    number = free_port()
    with served(number):
        yield number


def ask(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_remote_and_local_episodes_are_equal(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    assert task_ids("test", service_url=url) == task_ids("test", catalogue="small")
    remote, local = make(service_url=url), make(catalogue="small")
    for name in task_ids("test", catalogue="small")[:5]:
        dialogue, _ = play(name, catalogue="small")
        assert remote.reset(options={"task_id": name}) == local.reset(options={"task_id": name})
        for _, action in [("", "<action>junk[</action>"), *dialogue]:
            assert remote.step(action) == local.step(action)
    remote.close()


def test_health_and_refusals(port: int) -> None:
    assert ask(port, "/health") == (
        200,
        {"catalogue": "small", "products": 300, "goals": {"human": 600, "synthetic": 0}},
    )
    state = ask(port, "/reset", {"task_id": TASK})[1]["state"]
    step = {"task_id": TASK, "state": state, "command": "search[mug]"}
    assert ask(port, "/step", step)[0] == 200
    for path, body, reason in (
        ("/reset", {"task_id": "x"}, "unknown webshop task"),
        ("/reset", {"task_id": 5}, "task_id (str)"),
        ("/reset", [], "task_id (str)"),
        ("/reset", b"{", "not JSON"),
        ("/reset", b"\xff", "not UTF-8"),
        ("/reset", b'{"task_id": "a", "task_id": "b"}', "occurs twice"),
        ("/step", {**step, "state": {}}, "state must have"),
        ("/step", {**step, "state": {**state, "page": "item", "asin": "none"}}, "not in the store"),
        ("/step", {**step, "more": 1}, "exactly"),
        ("/tasks?split=dev&goals=human", None, "unknown split"),
        ("/tasks", None, "unknown split"),
    ):
        status, answer = ask(port, path, body)
        assert status == 400 and reason in answer["error"], (path, body, answer)
    assert ask(port, "/step", b"x" * (service.MAX_BODY + 1))[0] == 413
    assert ask(port, "/health")[0] == 200


def test_a_key_is_needed_where_others_can_reach_the_service() -> None:
    for host, key in (("0.0.0.0", ""), ("::", ""), ("10.0.0.1", "short"), ("example.org", "")):
        with pytest.raises(InputError, match=client.KEY_VARIABLE):
            service.check_host(host, key)
    for host, key in (("127.0.0.1", ""), ("::1", ""), ("localhost", ""), ("0.0.0.0", "a-key-of-20-characters")):
        service.check_host(host, key)
    command = [sys.executable, "-m", service.__name__, "--catalogue", "small", "--host", "0.0.0.0"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, client.KEY_VARIABLE: ""}
    )
    assert done.returncode == 2 and "other machines could reach this" in done.stderr


def test_only_callers_with_the_key_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    number, key = free_port(), "a-key-of-20-characters"
    with served(number, key):
        assert ask(number, "/health")[0] == 401
        assert ask(number, "/health", None, Authorization="Bearer wrong")[0] == 401
        assert ask(number, "/health", None, Authorization=f"Bearer {key}")[0] == 200
        shop = RemoteShop(f"http://127.0.0.1:{number}", 10)
        monkeypatch.setenv(client.KEY_VARIABLE, "wrong")
        with pytest.raises(InputError, match=f"{number}: the key of this service is needed"):
            shop.reset(TASK)
        monkeypatch.setenv(client.KEY_VARIABLE, key)
        assert shop.reset(TASK).page.kind == "search"


def test_sessions_survive_a_restart_and_name_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_failed_at", {})
    number = free_port()
    url = f"http://127.0.0.1:{number}"
    env = make(service_url=url, service_timeout_s=20)
    with served(number):
        env.reset(options={"task_id": TASK})
        assert env.step("<action>search[kettle]</action>")[4]["valid"]
    with served(number):
        assert env.step("<action>click[next >]</action>")[4]["valid"], "the session goes on with the new process"
        saved = env.snapshot()
    quick = make(service_url=url, service_timeout_s=0.6)
    quick.restore(saved)
    with pytest.raises(ServiceError, match=f"webshop service {url}: no answer within 0.6 s"):
        quick.step("<action>click[< prev]</action>")
    started = time.monotonic()
    with pytest.raises(ServiceError, match=url):
        env.step("<action>click[< prev]</action>")
    assert time.monotonic() - started < 10, "others do not wait for a service that was found dead"
    with served(number):
        assert env.step("<action>click[< prev]</action>")[4]["valid"]


def test_a_service_that_hangs_or_talks_nonsense_is_named() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceError, match=f"{url}: no answer within 0.5 s"):
            RemoteShop(url, 0.5).reset(TASK)
    with pytest.raises(ServiceError, match="cannot be read"):
        RemoteShop("http://127.0.0.1:1", 1)._turn({"instruction": "x"})
    with pytest.raises(ServiceError, match="no JSON object"):
        RemoteShop("http://127.0.0.1:1", 1)._object(b"<html>")


def test_rollouts_go_on_when_the_service_dies_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of the agent loop: ended with the cause while the service is away, played again when it is back."""
    from chat_tokenizers import qwen
    from rollout.scripted import ScriptedEngine

    from rl_agents.chat.context import make_context
    from rl_agents.data.trajectory import EpisodeSpec
    from rl_agents.rollout.agent_loop import Limits, collect_episodes
    from rl_agents.rollout.env_pool import EnvPool

    monkeypatch.setattr(client, "_failed_at", {})
    number, turns = free_port(), 0
    url = f"http://127.0.0.1:{number}"
    pool = EnvPool(lambda: make(service_url=url, service_timeout_s=0.5, max_turns=4))
    limits = Limits(max_turns=4, max_response_tokens=60, max_model_len=20_000)

    def played(script: Any) -> list[Any]:
        specs = [EpisodeSpec(TASK, group_id=0, member=n, seed=n) for n in range(8)]
        engine = ScriptedEngine(qwen(), script)
        rollouts = asyncio.run(collect_episodes(specs, pool, engine, make_context("append", qwen()), limits))
        assert not rollouts.unfinished and not rollouts.input_error
        return rollouts.trajectories

    with served(number) as process:

        def dies(text: str) -> str:
            nonlocal turns
            turns += 1
            if turns == 12:
                process.kill()
                process.wait()
            return "<action>search[kettle]</action>"

        before = played(dies)
    assert all(t.failed and t.end_cause.startswith(f"env_error: ServiceError: webshop service {url}") for t in before)
    assert any(t.steps for t in before)
    with served(number):
        after = played(lambda text: "<action>search[kettle]</action>")
    assert [t.end_cause for t in after] == ["max_turns"] * 8
