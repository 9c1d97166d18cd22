"""kill -9 on a real run, then ``--resume``: at most the iteration under way is lost, nothing is counted twice."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_agents.cli import main

ROOT = Path(__file__).parents[2]


def records(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_killed_run_goes_on_where_it_was(beginner_model_dir, tmp_path, capsys) -> None:
    output = tmp_path / "run"
    keys = {"model": str(beginner_model_dir), "tasks_per_iteration": 4, "eval_episodes": 8, "eval_interval": 0}
    settings = [part for name, value in keys.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, str(ROOT / "run.py"), "--local", "--iterations", "4", "--output", str(output), *settings]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("iter 2/"):
            run.send_signal(signal.SIGKILL)
    run.wait()
    assert run.returncode == -signal.SIGKILL
    before = records(output)
    assert before[-1]["iteration"] in (2, 3)

    assert main(["--resume", str(output), "--local"]) == 0
    said = capsys.readouterr().out
    after = records(output)
    assert [record["iteration"] for record in after] == list(range(5))
    assert after[:2] == before[:2], "iterations before the kill are kept as they were"
    restored = int(next(line for line in said.splitlines() if "resumed from" in line).rsplit("/", 1)[1])
    assert restored >= before[-1]["iteration"] - 1, "at most the iteration under way is lost"
    assert json.loads((output / "summary.json").read_text())["status"] == "done"
