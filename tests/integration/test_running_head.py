"""A head that `ray start` started on this machine: commands join it, with RAY_ADDRESS and without it, or not at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
LIMIT_S = 300


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A head of its own folder and port; yields the environment of a shell beside it, and its address."""
    folder = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / f"head-{os.getpid()}"
    folder.mkdir(parents=True)
    shell = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    shell |= {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    port = free_port()
    start = [str(RAY), "start", "--head", f"--port={port}", "--num-cpus=4", "--include-dashboard=false",
             "--node-ip-address=127.0.0.1", "--disable-usage-stats"]  # fmt: skip
    subprocess.run(start, env=shell, check=True, capture_output=True, timeout=LIMIT_S)
    try:
        yield {**shell, "HEAD": (folder / "ray" / "ray_current_cluster").read_text().strip()}
    finally:
        pids = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in read(path)]
        for path in pids:
            subprocess.run(["kill", "-9", path.parent.name], check=False, capture_output=True)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def call(shell: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "run.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=shell, capture_output=True, text=True, timeout=LIMIT_S)


def test_commands_join_the_head_that_runs_here(head: dict[str, str], beginner_model_dir: Path, tmp_path: Path) -> None:
    small = ["--set", f"model={beginner_model_dir}", "tasks_per_iteration=2", "group_size=2", "eval_episodes=2",
             "num_env_runners=1", "engine=torch"]  # fmt: skip
    doctor = call(head, "doctor", "--quick")
    assert f"joins the Ray cluster {head['HEAD']}" in doctor.stdout, doctor.stdout + doctor.stderr
    run = call(head, "--algo", "grpo", "--iterations", "1", "--output", str(tmp_path / "run"), *small)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"joins the Ray cluster {head['HEAD']}" in run.stdout
    assert not [line for line in (run.stdout + run.stderr).splitlines() if ".cc:" in line or "loss_type" in line]
    sweep = tmp_path / "sweep.yaml"
    keys = "\n".join(f"  {key.replace('=', ': ')}" for key in small[1:])
    sweep.write_text(f"set:\n  algo: grpo\n  iterations: 1\n{keys}\nspace:\n  lr: [1.0e-4]\n")
    named = {**head, "RAY_ADDRESS": head["HEAD"], "RAY_AUTH_MODE": "token"}  # as docs/clusters.md says
    tune = call(named, "tune", str(sweep), "--output", str(tmp_path / "tune"))
    assert tune.returncode == 0, tune.stdout + tune.stderr


def test_a_run_can_have_a_ray_of_its_own_beside_the_head(head: dict[str, str]) -> None:
    doctor = call({**head, "RAY_ADDRESS": "local"}, "doctor", "--quick")
    assert "Ray starts on this machine for this command alone" in doctor.stdout, doctor.stdout + doctor.stderr
