"""kill -9 on a real run, then ``--resume``: at most the iteration under way is lost, nothing is counted twice.

And on a helper process of Ray's below a sweep, as the kernel does where memory is short: the sweep ends and says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "run.py"), *arguments]


def records(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_killed_run_goes_on_where_it_was(beginner_model_dir: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    keys = {"model": str(beginner_model_dir), "tasks_per_iteration": 4, "eval_episodes": 8, "eval_interval": 0}
    settings = [part for name, value in keys.items() for part in ("--set", f"{name}={value}")]
    run = subprocess.Popen(
        command("--local", "--iterations", "6", "--output", str(output), *settings), stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("iter 2/"):
            run.send_signal(signal.SIGKILL)
    run.wait()
    assert run.returncode == -signal.SIGKILL
    before = records(output)
    assert before[-1]["iteration"] in (2, 3)

    resumed = subprocess.run(
        command("--resume", str(output), "--local"), capture_output=True, text=True, timeout=500, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    after = records(output)
    assert [record["iteration"] for record in after] == list(range(7))
    assert after[:2] == before[:2], "iterations before the kill are kept as they were"
    restored = int(next(line for line in resumed.stdout.splitlines() if "resumed from" in line).rsplit("/", 1)[1])
    assert restored >= before[-1]["iteration"] - 1, "at most the iteration under way is lost"
    assert json.loads((output / "summary.json").read_text())["status"] == "done"


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_sweep_whose_ray_is_killed_says_so_and_can_be_resumed(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {"env": "guess_numbers", "model": str(beginner_model_dir), "tasks_per_iteration": 2, "group_size": 4}
    sweep = {"set": {**keys, "eval_episodes": 4, "iterations": 100_000}, "space": {"lr": [1e-4, 1e-3]}, "local": True}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    output = tmp_path / "out"
    line = command("tune", str(tmp_path / "sweep.yaml"), "--output", str(output))
    own = {**os.environ, "RAY_ADDRESS": "local"}
    run = subprocess.Popen(line, env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("trial 1/2 ") or line.startswith("trial 2/2 "):
            break
    (helper,) = (child for child in psutil.Process(run.pid).children() if child.name() == "gcs_server")
    helper.kill()
    _, error = run.communicate()  # without the watch: after Ray's own minutes, with a message of Ray's
    assert run.returncode == 1, error
    assert error.splitlines()[-1] == (
        f"error: Ray's process gcs_server died (killed for memory?). Resume with: python run.py tune --resume {output}"
    )
    assert (output / "sweep.yaml").is_file(), "what --resume needs"
