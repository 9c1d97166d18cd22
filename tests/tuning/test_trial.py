"""A trial, stepped without Tune: an ordinary run that can be resumed and stopped."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.measure import ready
from rl_agents.tuning.report import not_finite
from rl_agents.tuning.sweep import Grid, Sweep
from rl_agents.tuning.trial import SweepTrial

RUN: dict[str, Any] = {
    "env": "guess_numbers", "tasks_per_iteration": 2, "group_size": 4, "eval_episodes": 8, "eval_interval": 0,
    "iterations": 3, "save_trajectories": 0,
}  # fmt: skip


def make_sweep(model: Path, rates: tuple[float, ...], **keys: Any) -> Sweep:
    run = {**RUN, "model": str(model), **keys.pop("run", {})}
    return Sweep("s", keys=run, space={"lr": Grid(rates)}, local=True, source={}, **keys)


def start(sweep: Sweep, output: Path) -> SweepTrial:
    spec = sweep.trials[0]
    trial = {"name": spec.name, "bundles": [{"CPU": 1.0}], "settings": ready(sweep.settings(spec))}
    return SweepTrial({"sweep": sweep, "output": str(output), "trial": trial})


def test_what_a_run_says_of_its_episodes_reaches_the_sweep_and_what_breaks_leaves_its_traceback(
    beginner_model_dir: Path, tmp_path: Path
) -> None:
    trial = start(make_sweep(beginner_model_dir, (1e-3,), run={"max_response_tokens": 1}), tmp_path)
    first, second = trial.train(), trial.train()
    assert any("have a response cut at max_response_tokens=1" in note for note in first["notes"])
    assert "notes" not in second, "it is the same"
    (trial.folder.path / "metrics.jsonl").unlink()
    (trial.folder.path / "metrics.jsonl").mkdir()  # the disk turns against the run
    with pytest.raises(IsADirectoryError):
        trial.train()
    assert "IsADirectoryError" in (trial.folder.path / "error.log").read_text()


def test_a_trial_runs_the_settings_that_the_sweep_resolved(
    beginner_model_dir: Path, tmp_path: Path, monkeypatch
) -> None:
    sweep = make_sweep(beginner_model_dir, (1e-3,))
    config = {"name": sweep.trials[0].name, "bundles": [], "settings": ready(sweep.settings(sweep.trials[0]))}
    monkeypatch.setattr("rl_agents.trainer.measure.resolve", None)  # it is not called again
    trial = SweepTrial({"sweep": sweep, "output": str(tmp_path), "trial": config})
    assert trial.algo is not None and trial.algo.settings.to_dict() == config["settings"].to_dict()
    trial.stop()


def test_a_trial_that_starts_again_goes_on_from_its_own_checkpoint(beginner_model_dir: Path, tmp_path: Path) -> None:
    sweep = make_sweep(beginner_model_dir, (1e-3,))
    first = start(sweep, tmp_path)
    results = [first.train(), first.train()]
    assert [result["iteration"] for result in results] == [1, 2]
    del first.loop  # its process is gone: nothing is written any more
    first.algo.pool.close()
    first.lock.release()
    second = start(sweep, tmp_path)
    last = second.train()
    assert (last["iteration"], last["done"]) == (3, True) and 0 <= last["value"] <= 1
    second.stop()
    run = RunFolder(tmp_path / "trials" / sweep.trials[0].name)
    assert [record["iteration"] for record in run.read_metrics()] == [0, 1, 2, 3]
    assert run.read_summary()["status"] == "done"


def test_a_trial_waits_until_the_process_before_has_ended_and_is_refused_if_it_does_not(
    beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune starts the new trial at once, while the old one still saves and closes."""
    sweep = make_sweep(beginner_model_dir, (1e-3,), run={"checkpoint_interval": 0})
    first = start(sweep, tmp_path)
    first.train()
    with monkeypatch.context() as soon:
        soon.setattr("rl_agents.tuning.trial.PREDECESSOR_S", 0.1)
        refused = start(sweep, tmp_path)
    result = refused.train()
    refused.stop()
    assert result["done"] and f"process {os.getpid()}; one process at a time" in result["bad_input"]
    ending = threading.Timer(1.0, first.stop)
    ending.start()
    second = start(sweep, tmp_path)
    ending.join()
    assert second.start == second.folder.checkpoint(1), "the checkpoint that the first one wrote at its end"
    assert second.train()["iteration"] == 2
    second.stop()
    assert second.folder.read_summary()["status"] == "interrupted"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_metric_that_is_not_finite_ends_the_trial(beginner_model_dir: Path, tmp_path: Path) -> None:
    """A critic that diverges under a huge learning rate makes the advantages and the policy's loss NaN."""
    run = {"algo": "ppo", "critic_lr": 3e37}
    sweep = make_sweep(beginner_model_dir, (1e-3,), run=run, metric="actor/pg_loss", mode="min")
    trial = start(sweep, tmp_path)
    assert not trial.train().get("done")
    result = trial.train()
    trial.stop()
    assert result["done"] and result["diverged"] == "actor/pg_loss is not finite at iteration 2"
    folder = RunFolder(tmp_path / "trials" / sweep.trials[0].name)
    assert folder.read_summary()["status"] == "failed"
    assert {tag: not_finite(folder.read_metrics())[tag] for tag in ("critic/value_loss", "actor/pg_loss")} == {
        "critic/value_loss": 1, "actor/pg_loss": 2
    }  # fmt: skip


def test_an_unknown_metric_ends_the_trial_and_names_the_nearest(beginner_model_dir: Path, tmp_path: Path) -> None:
    trial = start(make_sweep(beginner_model_dir, (1e-3,), metric="eval/sucess_rate"), tmp_path)
    result = trial.train()
    trial.stop()
    assert result["done"]
    assert result["bad_input"] == "unknown metric 'eval/sucess_rate': did you mean 'eval/success_rate'?"


def test_a_trial_whose_episodes_all_fail_is_not_tried_again(beginner_model_dir: Path, tmp_path: Path) -> None:
    run = {"env": "gymnasium:integration.test_bad_environments:Bad", "env.kwargs": {"way": "reset"}}
    run |= {"max_response_tokens": 6, "max_model_len": 128}
    trial = start(make_sweep(beginner_model_dir, (1e-3,), run=run), tmp_path)
    result = trial.train()
    trial.stop()
    assert result["done"] and "8 of 8 evaluation episodes failed" in result["bad_input"]
    assert trial.folder.read_summary()["status"] == "failed"
