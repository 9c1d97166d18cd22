"""Plugins in every process of a sweep."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from plugin_folder import EXAMPLES, NAMES, as_a_new_process

from rl_agents.cli import main

FEW = [
    "tasks_per_iteration=2", "group_size=2", "minibatches=1", "eval_episodes=2", "reward=own-brief", "iterations=1",
]  # fmt: skip


@pytest.mark.timeout(300)
def test_a_sweep_whose_trial_has_actors(
    ray_session: None, tmp_path: Path, beginner_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial, its env runner and its learner know the plugins."""
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    with as_a_new_process(tmp_path):
        keys = {
            "plugins": NAMES, "algo": "own-median", "env": "own-lock", "model": str(beginner_model_dir),
            "engine": "torch", "num_env_runners": 1, "num_learners": 1,
            "max_response_tokens": 8, "max_model_len": 256, "save_trajectories": 0,
            **{name: yaml.safe_load(value) for name, value in (item.split("=") for item in FEW)}, "eval_episodes": 0,
        }  # fmt: skip
        sweep = {"set": keys, "space": {"own_median_weight": [0.25]}, "metric": "rollout/success_rate"}
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
        assert main(["tune", "sweep.yaml", "--output", "sweep"]) == 0
        points = json.loads((tmp_path / "sweep" / "results.json").read_text())["points"]
        assert [trial["status"] for point in points for trial in point["trials"]] == ["done"]
        (saved,) = (yaml.safe_load(path.read_text()) for path in (tmp_path / "sweep" / "trials").glob("*/config.yaml"))
        assert (saved["own_median_weight"], saved["algo"], saved["num_learners"]) == (0.25, "own-median", 1)
