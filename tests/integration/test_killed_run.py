"""kill -9 on a real run, then ``--resume``: at most the iteration under way is lost, nothing is counted twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
        command("--local", "--iterations", "12", "--output", str(output), *settings), stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("iter 5/"):
            run.send_signal(signal.SIGKILL)
    run.wait()
    assert run.returncode == -signal.SIGKILL
    before = records(output)
    assert before[-1]["iteration"] in (5, 6)

    resumed = subprocess.run(
        command("--resume", str(output), "--local"), capture_output=True, text=True, timeout=500, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    after = records(output)
    assert [record["iteration"] for record in after] == list(range(13))
    assert after[:5] == before[:5], "iterations before the kill are kept as they were"
    restored = int(next(line for line in resumed.stdout.splitlines() if "resumed from" in line).rsplit("/", 1)[1])
    assert restored >= before[-1]["iteration"] - 1, "at most the iteration under way is lost"
    assert json.loads((output / "summary.json").read_text())["status"] == "done"
