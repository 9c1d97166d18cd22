"""``ray job submit -- python run.py ...`` against a cluster of its own on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray  # starts processes of its own, unlike a unit test

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
START_S = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A head node with its own ports, token and folder; yields the environment for its clients."""
    folder = tmp_path_factory.mktemp("ray")
    token = folder / "token"
    token.write_text("0123456789abcdef" * 4)
    dashboard = free_port()
    env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    env.pop("RAY_ADDRESS", None)
    command = [
        str(RAY), "start", "--head", "--block", f"--port={free_port()}", f"--dashboard-port={dashboard}",
        f"--dashboard-agent-listen-port={free_port()}",
        "--num-cpus=4", f"--temp-dir={short_temporary_folder()}", "--disable-usage-stats",
    ]  # fmt: skip
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        await_port(dashboard, head)
        yield {**env, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        try:
            head.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)


def await_port(port: int, head: subprocess.Popen[bytes]) -> None:
    """Wait for the dashboard: each `ray job submit` that comes too early imports Ray for nothing."""
    deadline = time.monotonic() + START_S
    while head.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)


def short_temporary_folder() -> str:
    """Ray's sockets must not have long paths."""
    import tempfile

    return tempfile.mkdtemp(prefix="ray-", dir="/tmp")


def submit(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Submit a job and wait for it; until the head's job agent is up, ask again."""
    command = [str(RAY), "job", "submit", "--", sys.executable, str(ROOT / "run.py"), *arguments]
    deadline = time.monotonic() + START_S
    while True:
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        output = done.stdout + done.stderr
        starting = "No available agent" in output or "Failed to connect" in output
        if not starting or time.monotonic() > deadline:
            return done.returncode, output
        time.sleep(2)


@pytest.mark.timeout(900)
def test_a_job_trains_and_its_log_and_exit_code_can_be_read(
    cluster: dict[str, str], beginner_model_dir: Path, tmp_path: Path
) -> None:
    keys = {"model": str(beginner_model_dir), "tasks_per_iteration": 4, "eval_episodes": 8, "eval_interval": 0}
    settings = [part for name, value in keys.items() for part in ("--set", f"{name}={value}")]
    output = tmp_path / "run"
    code, log = submit(cluster, "--algo", "grpo", "--iterations", "2", "--output", str(output), *settings)
    assert code == 0, log
    assert "iter 2/2  success" in log and "success on the test tasks" in log
    assert "\x1b[" not in "".join(line for line in log.splitlines() if line.startswith("iter")), (
        "plain lines under a job"
    )
    assert json.loads((output / "summary.json").read_text())["status"] == "done"

    few = ["--episodes", "8", "--seeds", "1", "--json", "--set", "engine=torch"]
    code, log = submit(cluster, "eval", "--checkpoint", str(output), *few)
    assert code == 0, log
    assert '"success"' in log

    code, log = submit(cluster, "--algo", "grop")
    assert code != 0
    assert "did you mean 'grpo'?" in log and "exit code 2" in log


@pytest.mark.timeout(900)
def test_a_sweep_as_a_job(cluster: dict[str, str], beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {
        "model": str(beginner_model_dir), "engine": "torch", "num_env_runners": 0, "iterations": 1, "eval_episodes": 4,
        "tasks_per_iteration": 2,
    }  # fmt: skip
    sweep = tmp_path / "sweep.yaml"
    recipe = str(ROOT / "tune_configs" / "recipes" / "guess_numbers_grpo.yaml")
    sweep.write_text(json.dumps({"recipe": recipe, "set": keys, "space": {"lr": [3e-4]}}))
    code, log = submit(cluster, "tune", str(sweep), "--output", str(tmp_path / "out"))
    assert code == 0, log
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    statuses = [trial["status"] for point in results["points"] for trial in point["trials"]]
    assert statuses == ["done"]
