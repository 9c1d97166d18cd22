"""``run.py serve``: what a person gets wrong is one line and exit code 2, before Ray starts."""

import socket

import pytest
import torch  # noqa: F401  (the first command that imports it says so on standard output)
from processes import free_port
from scripted_model import write_model

from rl_agents.cli import main

CASES = [
    ([], "checkpoint is missing: name a run's folder, a checkpoint or a model folder"),
    (["--checkpoint", "nowhere"], "nowhere: no such folder"),
    (["--checkpoint", "."], "not the output folder of a run (no config.yaml)"),
    (["--checkpoint", ".", "--host", "0.0.0.0"], "host 0.0.0.0 can be reached from other machines: set a key with"),
    (["--checkpoint", ".", "--host", "300.1.2.3"], "cannot listen on 300.1.2.3 port"),
    (["--checkpoint", ".", "--api-key-env", "UNSET_KEY"], "environment variable UNSET_KEY is not set"),
    (["--checkpoint", ".", "--admin-key-env", "UNSET_KEY"], "admin_key_env without api_key_env"),
    (["--checkpoint", ".", "--set", "max_replica=2"], "unknown key 'max_replica': did you mean 'max_replicas'?"),
    (["--checkpoint", ".", "--set", "engine=torch", "--engine", "vllm"], "engine is given twice"),
    (["--checkpoint", ".", "--set", "min_replicas=3"], "max_replicas=1: must be at least min_replicas=3"),
    (["--checkpoint", ".", "--set", "target_ongoing_requests=65"], "must be at most max_ongoing_requests=64"),
    (["--checkpoint", ".", "--prot", "1"], "unknown flag '--prot': did you mean '--port'?"),
    (["--checkpoint", "model", "--set", "env.color=red"], "env.color"),
    (["--checkpoint", "model", "--set", "context=windw"], "context='windw': valid: append, window(n), summary(n)"),
]


@pytest.mark.parametrize(("argv", "words"), CASES, ids=[" ".join(argv) for argv, _ in CASES])
def test_mistakes_are_one_line(argv: list[str], words: str, tmp_path, monkeypatch, capsys) -> None:
    if "model" in argv:
        write_model(tmp_path / "model", ["hello"])
        capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    port = [] if "--prot" in argv else ["--port", str(free_port())]
    assert main(["serve", *argv, *port]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == "" and len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0]


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--checkpoint", ".", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in capsys.readouterr().err
    assert main(["serve", "--checkpoint", ".", "--port", "70000"]) == 2
