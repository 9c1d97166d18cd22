"""Real sweeps in one Ray session: finished, killed, stopped, resumed, and too large."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import children_running

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.cli.train import resolve_settings
from rl_agents.config import load_recipe
from rl_agents.reporting.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("ray_session"), pytest.mark.timeout(600)]

RUN: dict[str, Any] = {
    "env": "guess_numbers", "tasks_per_iteration": 2, "group_size": 4, "eval_episodes": 8, "eval_interval": 0,
    "save_trajectories": 0,
}  # fmt: skip
WAIT_S = 240.0


def write_sweep(folder: Path, model: Path, space: dict[str, Any], run: dict[str, Any], **keys: Any) -> Path:
    path = folder / "sweep.yaml"
    data = {"set": {**RUN, "model": str(model), **run}, "space": space, "local": True, **keys}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def tune(*arguments: str | Path) -> int:
    return main(["tune", *map(str, arguments)])


def runs(output: Path) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted((output / "trials").iterdir())]


def iterations(run: RunFolder) -> list[int]:
    return [record["iteration"] for record in run.read_metrics()]


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_grid_ends_with_table_recipe_and_ordinary_run_folders(
    beginner_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"vspo_temperature": [0.1, 1.0], "vspo_alpha": [1.0, 2.0]}
    keys = {"algo": "vspo", "iterations": 1, "max_response_tokens": 4}
    path = write_sweep(tmp_path, beginner_model_dir, space, keys, max_concurrent=1)
    output = tmp_path / "out"
    assert tune(path, "--output", output, "--json") == 0
    out, err = capsys.readouterr()
    results, cut = json.loads(out), "have a response cut at max_response_tokens=4, so that its end is missing"
    assert [err.count(text) for text in (cut, f"{cut}: raise it")] == [4, 1], "of every trial, with advice once"
    assert results["status"] == "done" and len(results["points"]) == 4
    assert [point["keys"]["vspo_alpha"] for point in results["points"]] == [1.0, 2.0, 1.0, 2.0]
    assert all(0 <= point["interval"]["mean"] <= 1 for point in results["points"])
    assert not (output / ".tune").exists()
    for run, point in zip(runs(output), results["points"], strict=True):
        assert iterations(run) == [0, 1] and run.read_summary()["status"] == "done"
        assert run.load_settings().vspo_alpha == point["keys"]["vspo_alpha"]
        assert RunFolder.locate(run.path)[1] == 1, "run.py --resume and eval find its checkpoint"
        assert list(run.tensorboard.iterdir()), "tensorboard --logdir trials shows every trial"
    settings = Settings.from_dict(load_recipe(str(output / "best.yaml")))
    assert resolve_settings(settings).vspo_temperature in (0.1, 1.0)
    assert tune("--resume", output) == 0, "nothing is left to do"


def test_a_killed_trial_tries_again_and_a_stopped_sweep_goes_on(
    beginner_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path, beginner_model_dir, {"lr": [1e-4, 1e-3]}, {"iterations": 12}, max_concurrent=1)
    output = tmp_path / "out"
    first = RunFolder(output / "trials" / "000-lr=0.0001")

    def kill_then_interrupt() -> None:
        wait_for(lambda: len(first.complete_checkpoints()) >= 2)
        os.kill(children_running("SweepTrial", recursive=True)[0], signal.SIGKILL)
        reached = first.complete_checkpoints()[-1][0]
        wait_for(lambda: first.complete_checkpoints()[-1][0] > reached)
        os.kill(os.getpid(), signal.SIGINT)

    thread = in_background(kill_then_interrupt)
    assert tune(path, "--output", output) == 130
    thread.join()
    said = capsys.readouterr().out
    assert "trial 1/2 lr=0.0001: failed, restarts from its last checkpoint" in said
    assert f"python run.py tune --resume {output}" in said
    before = iterations(first)
    assert before == list(range(len(before))), "nothing lost, nothing twice"
    assert 3 <= len(before) < 13 and first.read_summary()["status"] == "interrupted"

    assert tune("--resume", output) == 0
    for run in runs(output):
        assert iterations(run) == list(range(13)) and run.read_summary()["status"] == "done"
    assert json.loads((output / "results.json").read_text())["best"] is not None


def test_a_trial_that_can_never_fit_is_one_clear_line(
    beginner_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path, beginner_model_dir, {"lr": [1e-4, 1e-3]}, {"num_env_runners": 8}, local=False)
    assert tune(path, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "trial 000-lr=0.0001 can never start: a trial needs 6 CPU" in error
    assert "8 x env runner 0.5 CPU" in error and "the cluster has 1 node with 4 CPU" in error


def test_asha_stops_what_is_worse(beginner_model_dir: Path, tmp_path: Path) -> None:
    path = write_sweep(
        tmp_path, beginner_model_dir, {"group_size": [4, 2]}, {"iterations": 3},
        metric="rollout/episodes", max_concurrent=1, asha={"grace": 1, "reduction": 2},
    )  # fmt: skip
    output = tmp_path / "out"
    assert tune(path, "--output", output) == 0
    whole, stopped = json.loads((output / "results.json").read_text())["points"]
    assert (whole["status"], stopped["status"]) == ("done", "stopped early")
    assert stopped["trials"][0]["reason"] == "at iteration 1"
    assert iterations(runs(output)[1]) == [0, 1]
