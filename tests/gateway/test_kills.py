"""kill -9 of a real gateway process: no answer that was sampled is lost, and no question has two."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from chat_models import save_chat_model
from gateway.killed_server import INSTANTS, opened
from processes import free_port

from rl_agents.data.tasks import step_seed
from rl_agents.store.reader import PoolReader

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("killed_server.py")
FIRST = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_chat_model(tmp_path_factory.mktemp("model") / "chat")


@contextmanager
def process(*command):
    """A process whose first line of output is yielded with it."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as running:
        try:
            yield running
        finally:
            running.kill()


def ask(url, key, body, retry=0):
    headers = {"Authorization": f"Bearer {key}", "x-stainless-retry-count": str(retry)}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    return response


def message_of(response):
    return response.json()["choices"][0]["message"]


def streamed(lines):
    """The text of a stream's chunks, as far as they came."""
    found = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in found)


def broken_stream(url, key, body):
    """Lines of a stream whose server dies."""
    lines = []
    headers = {"Authorization": f"Bearer {key}", "x-stainless-retry-count": "0"}
    with suppress(httpx.HTTPError), httpx.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers,
                                                 timeout=60) as response:  # fmt: skip
        for line in response.iter_lines():
            lines.append(line)
    return lines


def at_gateway(model, pool, work):
    """What ``work`` returns at a gateway in this process."""

    async def serve():
        async with opened(str(model), str(pool)) as (url, key):
            return await asyncio.to_thread(work, url, key)

    return asyncio.run(serve())


@pytest.fixture(scope="module")
def undisturbed(model, tmp_path_factory):
    """The answers of two turns without a kill."""
    pool = tmp_path_factory.mktemp("pool") / "pool.sqlite"

    def talk(url, key):
        first = message_of(ask(url, key, FIRST))
        return [first["content"], message_of(ask(url, key, turn(first)))["content"]]

    return at_gateway(model, pool, talk), calls_of(pool)


def turn(first):
    return {"model": "m", "messages": [*FIRST["messages"], first, {"role": "user", "content": "go on"}]}


def calls_of(pool):
    with PoolReader(pool) as reader:
        return [(c.id, c.prompt_ids, c.response_ids) for c in reader.calls()]


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_killed_gateway_loses_no_answer_and_gives_none_twice(instant, model, tmp_path, undisturbed):
    pool, (texts, calls) = tmp_path / "pool.sqlite", undisturbed
    body = {**FIRST, "stream": True} if instant == "during the stream" else FIRST
    with process(sys.executable, str(SERVER), str(model), str(pool), instant) as running:
        url, _, key = running.stdout.readline().strip().partition(" ")
        seen = broken_stream(url, key, body)
        assert running.wait(120) == -signal.SIGKILL
    with PoolReader(pool) as reader:
        states = [exchange.state for exchange in reader.exchanges("s")]
        assert states == (["started", "finished"] if instant == "after commit" else ["started"])

    def go_on(url, new_key):
        assert new_key == ""  # the session continues under its old key
        again = ask(url, key, body, retry=1)
        if instant == "during the stream":
            text = streamed(again.text.splitlines())
            assert streamed(seen) and text.startswith(streamed(seen))
            first = {"role": "assistant", "content": text}
        else:
            assert streamed(seen) == ""
            first = message_of(again)
        return [first["content"], message_of(ask(url, key, turn(first)))["content"]]

    assert at_gateway(model, pool, go_on) == texts
    assert calls_of(pool) == calls and calls[0][0] == step_seed(7, 0)


def test_the_command_serves_outsiders_and_ends_cleanly(model, tmp_path, monkeypatch):
    pool, key = tmp_path / "pool.sqlite", "an-admin-key-of-the-test"
    port = free_port()
    command = [
        sys.executable, "run.py", "gateway", "--model", str(model), "--pool", str(pool), "--port", str(port),
        "--admin-key-env", "GATEWAY_KEY", "--engine", "torch", "--set", "max_model_len=2000", "max_response_tokens=8",
    ]  # fmt: skip
    monkeypatch.setenv("GATEWAY_KEY", key)
    with process(*command) as running:
        lines = iter(running.stdout.readline, "")
        assert any(line.startswith(f"gateway of chat at http://127.0.0.1:{port}/v1") for line in lines)
        url, admin = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {key}"}
        opened = [httpx.post(f"{url}/rl/sessions", json={"task_id": "t"}, headers=admin).json() for _ in range(2)]
        answer = ask(url, opened[0]["key"], {**FIRST, "temperature": 0}).json()
        own = {"Authorization": f"Bearer {opened[0]['key']}"}
        reward = {"value": 0.5, "call": answer["id"]}
        assert httpx.post(f"{url}/rl/reward", json=reward, headers=own).status_code == 200
        assert httpx.post(f"{url}/rl/end", json={}, headers=own).json()["steps"] == 1
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 130
        assert f"stopping; 1 open sessions, with their rewards, resume with {pool}\n" in lines
    with PoolReader(pool) as reader:
        (trajectory,) = reader.trajectories()
        assert trajectory.success and trajectory.episode_return == 0.5 and trajectory.end_cause == "terminated"
        assert len(reader.openings()) == 2 and reader.exchanges()[0].overridden == {"temperature": 0}


def test_bad_command_lines_are_one_line(tmp_path, monkeypatch, capsys):
    from rl_agents.cli import main

    monkeypatch.setenv("SHORT_KEY", "short")
    pool = ["--pool", str(tmp_path / "pool.sqlite")]
    for argv, said in (
        ([], "gateway needs either --model DIR or --checkpoint DIR"),
        (["--model", "x"], "gateway needs --pool FILE"),
        (["--model", "x", *pool, "--admin-key-env", "SHORT_KEY"], "SHORT_KEY has 5 characters"),
        (["--model", str(tmp_path / "none"), *pool, "--port", "0"], "--port 0"),
        (["--model", str(tmp_path), *pool, "--max-calls", "-1"], "--max-calls -1"),
    ):
        assert main(["gateway", *argv]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
