"""Real sweeps in one Ray session: finished, killed, stopped, resumed, and too large."""

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
from rl_agents.config import load_recipe
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.resolve import resolve

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


def test_a_sweep_ends_with_table_recipe_and_ordinary_run_folders(beginner_model_dir, tmp_path, capsys) -> None:
    """The second trial has fewer episodes: ASHA stops it."""
    path = write_sweep(
        tmp_path, beginner_model_dir, {"group_size": [4, 2]}, {"iterations": 2, "max_response_tokens": 4},
        metric="rollout/episodes", max_concurrent=1, asha={"grace": 1, "reduction": 2},
    )  # fmt: skip
    output = tmp_path / "out"
    assert tune(path, "--output", output, "--json") == 0
    out, err = capsys.readouterr()
    results, cut = json.loads(out), "have a response cut at max_response_tokens=4, so that its end is missing"
    assert [err.count(text) for text in (cut, f"{cut}: raise it")] == [2, 1], "of every trial, with advice once"
    whole, stopped = results["points"]
    assert (whole["status"], stopped["status"]) == ("done", "stopped early") and whole["interval"]["mean"] == 8
    assert stopped["trials"][0]["reason"] == "at iteration 1"
    assert not (output / ".tune").exists()
    for run, point, last in zip(runs(output), results["points"], (2, 1), strict=True):
        assert iterations(run) == list(range(last + 1))
        assert run.load_settings().group_size == point["keys"]["group_size"]
        assert RunFolder.locate(run.path)[1] == last, "run.py --resume and eval find its checkpoint"
        assert list(run.tensorboard.iterdir()), "tensorboard --logdir trials shows every trial"
    assert runs(output)[0].read_summary()["status"] == "done"
    settings = Settings.from_dict(load_recipe(str(output / "best.yaml")))
    assert resolve(settings).group_size == 4
    assert tune("--resume", output) == 0, "nothing is left to do"


def test_a_killed_trial_tries_again_and_a_stopped_sweep_goes_on(beginner_model_dir, tmp_path, capsys) -> None:
    path = write_sweep(tmp_path, beginner_model_dir, {"lr": [1e-4]}, {"iterations": 12})
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
    assert "trial 1/1 lr=0.0001: failed, restarts from its last checkpoint" in said
    assert f"python run.py tune --resume {output}" in said
    before = iterations(first)
    assert before == list(range(len(before))), "nothing lost, nothing twice"
    assert 3 <= len(before) < 13 and first.read_summary()["status"] == "interrupted"

    assert tune("--resume", output) == 0
    assert iterations(first) == list(range(13)) and first.read_summary()["status"] == "done"
    assert json.loads((output / "results.json").read_text())["best"] is not None


def test_a_trial_that_can_never_fit_is_one_clear_line(beginner_model_dir, tmp_path, capsys) -> None:
    path = write_sweep(tmp_path, beginner_model_dir, {"lr": [1e-4, 1e-3]}, {"num_env_runners": 8}, local=False)
    assert tune(path, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "trial 000-lr=0.0001 can never start: a trial needs 6 CPU" in error
    assert "8 x env runner 0.5 CPU" in error and "the cluster has 1 node with 4 CPU" in error
