"""What a sweep's driver saves, and what it reads while trials run."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial

from rl_agents.algorithms import Settings
from rl_agents.cli.tune import all_bad_input
from rl_agents.errors import InputError
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.tuning import driver
from rl_agents.tuning.driver import SweepFolder, SweepMonitor, check_room, known_values
from rl_agents.tuning.sweep import Grid, Sweep

SWEEP = Sweep("s", keys={"env": "guess_numbers"}, space={"lr": Grid((1e-4, 1e-3, 1e-2))}, source={"space": {}})


@pytest.fixture
def settings() -> dict[str, Settings]:
    return {spec.name: Settings.from_dict({"num_env_runners": 1, "iterations": 9}) for spec in SWEEP.trials}


def trial(index: int, status: str, **more: Any) -> Any:
    return SimpleNamespace(custom_dirname=SWEEP.trials[index].name, status=status, **more)


def test_a_resumed_sweep_runs_what_is_left_and_tries_failures_again(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.begin(SWEEP)
    done, failed, stopped = SWEEP.trials
    RunFolder.create(folder.trial(done).path, Settings()).write_summary({"status": "done"})
    folder.note(failed.name, "failed", "OSError: no space left")
    folder.note(stopped.name, "stopped early", "at iteration 3")
    again = SweepFolder(tmp_path)
    assert again.left(SWEEP) == [failed]
    assert again.outcomes[failed.name]["reason"] == "OSError: no space left"
    again.begin(SWEEP)
    assert list(SweepFolder(tmp_path).outcomes) == [stopped.name]


def test_the_last_known_value_counts_until_the_next(tmp_path: Path) -> None:
    folder, spec = SweepFolder(tmp_path), SWEEP.trials[0]
    run = RunFolder.create(folder.trial(spec).path, Settings())
    for iteration, tags in enumerate([{"eval/success_rate": 0.25}, {}, {"eval/success_rate": 0.5}, {}]):
        run.append_metrics({"iteration": iteration, **tags})
    assert known_values(SWEEP, folder, spec) == [(1, 0.25), (2, 0.5), (3, 0.5)]


def test_a_trial_without_room_is_refused_by_name(settings: dict[str, Settings], monkeypatch: Any) -> None:
    monkeypatch.setattr(driver, "cluster_nodes", lambda: [{"CPU": 2.0}])
    with pytest.raises(InputError, match=r"trial 000-lr=0\.0001 can never start: a trial needs 2\.5 CPU"):
        check_room(SWEEP.trials, settings)
    monkeypatch.setattr(driver, "cluster_nodes", lambda: [{"CPU": 4.0}])
    check_room(SWEEP.trials, settings)


def test_a_cluster_that_shrank_ends_the_sweep_once_nothing_runs(tmp_path, settings, monkeypatch) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 0.0)
    monkeypatch.setattr(driver, "PATIENCE_S", 0.0)
    monkeypatch.setattr(driver, "cluster_nodes", lambda: [{"CPU": 2.0}])
    watch = SweepMonitor(SWEEP, SweepFolder(tmp_path), settings, Interrupts())
    watch.on_step_end(1, [trial(0, Trial.RUNNING), trial(1, Trial.PENDING)])
    assert not watch.stop_all(), "what runs may end and leave its place"
    watch.on_step_end(2, [trial(0, Trial.TERMINATED), trial(1, Trial.PENDING)])
    assert watch.stop_all() and "trial 001-lr=0.001 can no longer start: a trial needs 2.5 CPU" in watch.too_small


def test_failures_are_told_with_their_last_line(tmp_path, settings: dict[str, Settings], capsys) -> None:
    error = tmp_path / "error.txt"
    error.write_text("Failure # 3\nTraceback ...\nOSError: no space left\n")
    folder = SweepFolder(tmp_path)
    watch = SweepMonitor(SWEEP, folder, settings, Interrupts())
    watch.on_trial_recover(1, [], trial(0, Trial.RUNNING, error_file=str(error)))
    watch.on_trial_error(2, [], trial(0, Trial.ERROR, error_file=str(error)))
    watch.on_trial_recover(3, [], trial(1, Trial.RUNNING, error_file=str(tmp_path / "none")))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "trial 1/3 lr=0.0001: failed, restarts from its last checkpoint (OSError: no space left)"
    assert said[1] == "trial 1/3 lr=0.0001: failed 3 times, not restarted: OSError: no space left"
    assert said[2].endswith("(its process died)")
    assert folder.outcomes[SWEEP.trials[0].name] == {"status": "failed", "reason": "OSError: no space left"}


def test_notes_of_trials_are_said_once_for_each(tmp_path, settings: dict[str, Settings], capsys) -> None:
    watch = SweepMonitor(SWEEP, SweepFolder(tmp_path), settings, Interrupts())
    for index, share in ((0, 60), (0, 90), (1, 70), (1, 55)):
        notes = [f"{share}% of the episodes are cut by the context: raise max_model_len", f"{share} of 99 failed; boom"]
        watch.on_trial_result(1, [], trial(index, Trial.RUNNING), {"value": math.nan, "notes": notes})
    assert capsys.readouterr().out.splitlines() == [
        "trial 1/3 lr=0.0001: 60% of the episodes are cut by the context: raise max_model_len",
        "trial 1/3 lr=0.0001: 60 of 99 failed; boom",
        "trial 2/3 lr=0.001: 70% of the episodes are cut by the context",
        "trial 2/3 lr=0.001: 70 of 99 failed",
    ]


def test_only_a_sweep_without_any_usable_trial_is_bad_input() -> None:
    bad, done = {"status": "bad_input", "reason": "no such metric"}, {"status": "done", "reason": ""}
    assert all_bad_input({"points": [{"trials": [bad]}, {"trials": [bad]}]}) == "no such metric"
    assert not all_bad_input({"points": [{"trials": [bad]}, {"trials": [done]}]})
