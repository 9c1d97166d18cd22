"""A server that says it is ready answers at once, and a model is served without its environment's module."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process import Server, problem
from scripted_model import write_model

from rl_agents.reporting.run_folder import RunFolder
from rl_agents.serving.source import find_checkpoint, served_settings
from rl_agents.trainer.model_note import MODEL_NOTE

MARKET = """
import gymnasium
from gymnasium.spaces import Text

class Market(gymnasium.Env):
    observation_space = action_space = Text(max_length=1000)
    def reset(self, *, seed=None, options=None):
        return "what's the price ?", {}
    def step(self, action):
        return "sold", 1.0, True, False, {}
"""
KEYS = {"env": "gymnasium:market:Market", "max_model_len": 64, "max_response_tokens": 8}


def forget(folder: Path) -> None:
    (folder / "market.py").unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    sys.modules.pop("market", None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "market.py").write_text(MARKET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the folder is added
    monkeypatch.delitem(sys.modules, "market", raising=False)
    return tmp_path


def test_ready_means_warm_and_the_example_is_a_first_observation(folder: Path) -> None:
    server = Server(write_model(folder / "model", ["hello"]), **KEYS)
    answered, generate = [], server.policy.generate

    async def counted(*args: Any) -> Any:
        answered.append(await generate(*args))
        return answered[-1]

    async def start() -> None:
        async with server.service.running():
            assert len(answered) == 1, "no request is taken before the engine has answered"

    server.policy.generate = counted  # type: ignore[method-assign]
    server.run(start())
    about = server.request("GET", "/agent/about").json()
    assert about["example"] == "what's the price ?" and about["sessions"] == 0
    server.close()


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_pages_curl_can_be_typed() -> None:
    page = (Path(served_settings.__code__.co_filename).parent / "static" / "app.js").read_text("utf-8")
    function = page[page.index("function example(") :].split("\n}\n")[0]
    said = 'console.log(example({ model: "m", example: "what\'s the price ?" }))'
    given = 'const element = () => ({ value: "" }), location = { origin: "http://localhost" };'
    typed = subprocess.run(["node", "-e", f"{given}{function}\n}}\n{said}"], capture_output=True, text=True, check=True)
    body = shlex.split(typed.stdout.replace("\\\n", " "))[-1]
    assert json.loads(body)["messages"] == [{"role": "user", "content": "what's the price ?"}]


@pytest.mark.parametrize("kind", ["run", "model"])
def test_chat_is_served_without_the_environments_module(folder: Path, kind: str, capsys) -> None:
    model = write_model(folder / "model", ["hello"])
    if kind == "run":
        RunFolder.create(folder / "run", served_settings(find_checkpoint(model), {**KEYS, "engine": "torch"}))
        (folder / "run" / "checkpoints" / "000001").mkdir(parents=True)
        shutil.copytree(model, folder / "run" / "checkpoints" / "000001" / "hf")
        shutil.copy(folder / "run" / "config.yaml", folder / "run" / "checkpoints" / "000001")
    own = {name: value for name, value in KEYS.items() if name != "env"}
    (model / MODEL_NOTE).write_text(json.dumps({"env": KEYS["env"], "settings": own}))
    place = folder / "run" / "checkpoints" / "000001" if kind == "run" else model
    forget(folder)
    server = Server(place)
    missing = f"gymnasium environment market:Market: there is no module market in {folder}"
    assert f"[rl_agents] no agent sessions, only the model: {missing}" in capsys.readouterr().err
    assert server.settings.max_model_len == 64 and server.chat().status_code == 200

    async def example() -> str:
        async with server.service.running():
            return str((await server.client.get("/agent/about")).json()["example"])

    assert server.run(example()) == "hello"
    status, _, message = problem(server.request("POST", "/agent/sessions", {}))
    assert status == 503 and "there is no module market" in message
    server.close()
