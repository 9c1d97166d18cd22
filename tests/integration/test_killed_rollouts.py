"""kill -9 within rollouts, then ``--resume``: the run is the undisturbed one, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trained import TIMES

#: Kills, at equal distances in the count of sampled answers, from the first answer to the last.
KILLS = 3
#: What a run remembers of its tasks is as exact as its weights.
GIVEN = ["Sometimes", "task_sampling=difficulty", "task_uniform_share=0.3"]


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    clocks = (*TIMES, "seconds", "cpu_seconds")
    return [{name: value for name, value in line.items() if not name.startswith(clocks)} for line in lines]


@pytest.mark.rllib
def test_a_run_killed_within_rollouts_equals_the_undisturbed_one(wide_model_dir: Path, tmp_path: Path) -> None:
    program, tests = Path(__file__).with_name("killed_rollouts.py"), Path(__file__).parents[1]
    paths = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(program), str(wide_model_dir), str(tmp_path), str(KILLS), *GIVEN]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True)
    whole, killed = tmp_path / "whole", [tmp_path / f"killed-{kill}" for kill in range(KILLS)]
    expected = metrics(whole)
    assert "curriculum/solved_tasks" in expected[0]
    assert [line["iteration"] for line in expected] == [1, 2, 3] and all(line["actor/grad_norm"] for line in expected)
    for name in ("training_state.safetensors", "hf/model.safetensors"):
        weights = (whole / "checkpoints" / "000003" / name).read_bytes()
        assert [f for f in killed if (f / "checkpoints" / "000003" / name).read_bytes() != weights] == [], name
    assert [folder for folder in killed if metrics(folder) != expected] == []
