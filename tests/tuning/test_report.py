"""Tables and the best recipe of run folders."""

import json
import math
from pathlib import Path

import pytest

from rl_agents.algorithms import Settings
from rl_agents.cli.tune import SweepPlan, print_outcome
from rl_agents.config import load_recipe
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.resolve import resolve
from rl_agents.tuning.driver import SweepFolder
from rl_agents.tuning.report import best_point, collect, write_results
from rl_agents.tuning.sweep import Grid, Sweep

METRIC = "eval/success_rate"


def grid_sweep(**changes: object) -> Sweep:
    space = {"vspo_temperature": Grid((0.1, 1.0)), "vspo_alpha": Grid((1.0, 2.0))}
    keys = {"algo": "vspo", "env": "guess_numbers", "iterations": 2, "seed": 3}
    return Sweep(**{"name": "grid", "keys": keys, "space": space, "seeds": 2, "source": {}, **changes})  # type: ignore


def write_run(folder: SweepFolder, name: str, value: float, status: str = "done", **tags: float) -> None:
    run = RunFolder.create(folder.path / "trials" / name, Settings())
    run.append_metrics({"iteration": 1, "seconds": 1.0, "actor/pg_loss": 0.5})
    bounds = {"eval/success_low": value - 0.1, "eval/success_high": value + 0.1}
    run.append_metrics({"iteration": 2, "seconds": 2.0, METRIC: value, **bounds, **tags})
    run.write_summary({"status": status})


def fill(sweep: Sweep, path: Path, values: list[float]) -> SweepFolder:
    folder = SweepFolder(path)
    for spec, value in zip(sweep.trials, values, strict=True):
        write_run(folder, spec.name, value)
    return folder


def test_points_are_means_over_seeds_with_their_interval(tmp_path: Path) -> None:
    sweep = grid_sweep()
    folder = fill(sweep, tmp_path, [0.4, 0.6, 0.5, 0.5, 0.6, 0.8, 0.1, 0.3])
    points = collect(sweep, folder)
    interval = points[0].interval
    assert interval is not None and interval.mean == pytest.approx(0.5)
    # t(0.975, 1) = 12.706, s = 0.1414: ± 1.27, cut to what a rate can be.
    assert (interval.low, interval.high) == (0.0, 1.0)
    # Two equal seeds show no spread over seeds, so the interval is that over the tasks of their evaluations.
    equal = points[1].interval
    assert equal is not None and (equal.low, equal.high, equal.n) == (pytest.approx(0.4), pytest.approx(0.6), 2)
    best = best_point(sweep, points)
    assert best is not None and best.keys == {"vspo_temperature": 1.0, "vspo_alpha": 1.0}
    smallest = best_point(grid_sweep(mode="min"), points)
    assert smallest is not None and smallest.keys == {"vspo_temperature": 1.0, "vspo_alpha": 2.0}


def test_seeds_that_agree_in_another_metric_have_no_interval(tmp_path: Path) -> None:
    sweep = grid_sweep(metric="actor/pg_loss")
    folder = fill(sweep, tmp_path, [0.5] * 8)
    interval = collect(sweep, folder)[0].interval
    assert interval is not None and interval.mean == 0.5 and math.isnan(interval.low) and math.isnan(interval.high)
    write_results(sweep, folder)
    assert "| 0.500 |  | 1 |" in (tmp_path / "results.md").read_text()


def test_results_hold_table_and_recipe(tmp_path: Path) -> None:
    sweep = grid_sweep(seeds=1)
    results = write_results(sweep, fill(sweep, tmp_path, [0.4, 0.5, 0.9, 0.7]))
    assert results["status"] == "done"
    assert json.loads((tmp_path / "results.json").read_text())["best"]["keys"]["vspo_alpha"] == 1.0
    rows = [line for line in (tmp_path / "results.md").read_text().splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| 1.0 | 1.0 | 0.900 | [0.800, 1.000] | 2 | 2 | done")
    recipe = load_recipe(str(tmp_path / "best.yaml"))
    assert recipe == {
        "algo": "vspo", "env": "guess_numbers", "iterations": 2, "vspo_temperature": 1.0, "vspo_alpha": 1.0
    }  # fmt: skip
    assert resolve(Settings.from_dict(recipe)).vspo_alpha == 1.0


def test_nan_is_told_and_never_wins(tmp_path: Path) -> None:
    sweep = grid_sweep(seeds=1)
    folder = fill(sweep, tmp_path, [0.4, 0.5, 0.6, math.nan])
    folder.note(sweep.trials[3].name, "diverged", f"{METRIC} is not finite at iteration 2")
    RunFolder(tmp_path / "trials" / sweep.trials[3].name).write_summary({"status": "failed"})
    write_run_again = RunFolder(tmp_path / "trials" / sweep.trials[0].name)
    write_run_again.append_metrics({"iteration": 3, "actor/pg_loss": math.nan})
    write_run_again.append_metrics({"iteration": 4, "actor/pg_loss": math.inf})
    results = write_results(sweep, folder)
    assert results["best"]["keys"] == {"vspo_temperature": 1.0, "vspo_alpha": 1.0}
    text = (tmp_path / "results.md").read_text()
    assert f"{sweep.trials[3].name}: diverged: {METRIC} is not finite at iteration 2" in text
    assert f"{sweep.trials[0].name}: not finite: actor/pg_loss (first at iteration 3)" in text


def test_unfinished_and_early_stopped_points_are_no_candidates(tmp_path, capsys) -> None:
    sweep = grid_sweep(seeds=1)
    folder = SweepFolder(tmp_path)
    write_run(folder, sweep.trials[0].name, 0.9, status="interrupted")
    write_run(folder, sweep.trials[1].name, 0.8, status="interrupted")
    folder.note(sweep.trials[1].name, "stopped early", "at iteration 1")
    write_run(folder, sweep.trials[2].name, 0.3)
    results = write_results(sweep, folder)
    assert [point["status"] for point in results["points"]] == ["unfinished", "stopped early", "done", "unfinished"]
    assert results["best"]["interval"]["mean"] == 0.3 and results["status"] == "incomplete"
    assert results["best"]["of"] == "1 of 4 points so far"
    assert (tmp_path / "best.yaml").read_text().startswith("# Highest mean of 1 of 4 points so far of grid: ")
    print_outcome(SweepPlan(sweep, tmp_path, {}), results, True)
    assert f"best recipe (best of 1 of 4 points so far): python run.py --config {tmp_path}" in capsys.readouterr().out


def test_a_sweep_without_any_value_has_no_best(tmp_path: Path) -> None:
    results = write_results(grid_sweep(), SweepFolder(tmp_path))
    assert results["best"] is None and not (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize(
    ("values", "overlaps", "named"),
    [((0.9, 0.75, 0.4, 0.1), 1, "highest mean: "), ((0.9, 0.6, 0.4, 0.1), 0, "best recipe: ")],
)
def test_a_mean_is_the_best_only_where_its_interval_is_apart(
    tmp_path, capsys, values, overlaps: int, named: str
) -> None:
    sweep = grid_sweep(seeds=1)
    results = write_results(sweep, fill(sweep, tmp_path, list(values)))  # each with an interval of 0.1 to both sides
    assert results["best"]["overlaps"] == overlaps
    print_outcome(SweepPlan(sweep, tmp_path, {}), results, False)
    printed = capsys.readouterr().out
    assert f"\n{named}python run.py --config " in printed
    assert ("intervals of 1 other points overlap that of the highest mean" in printed) is bool(overlaps)
