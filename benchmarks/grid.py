"""Run arms x seeds of the command line and keep every finished run, so that a stopped grid can continue.

An arm is a set of flags of ``run.py``. Each cell (arm, seed) calls the command line's entry point in a worker process.
Local cells share worker processes, so libraries are imported once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import multiprocessing
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rl_agents.cli.parser import main_parser
from rl_agents.cli.train import named_flags
from rl_agents.config import Settings, load_recipe, parse_assignments
from rl_agents.errors import InputError
from rl_agents.reporting.statistics import student_interval
from rl_agents.trainer.unused_keys import idle_of

RESULTS = Path(__file__).with_name("results")
#: Name in tables -> metric whose mean over the iterations is kept.
MEANS = {
    "zero_advantage_share": "rollout/zero_advantage_share",
    "truncation_ratio": "truncation/ratio",
    "truncated_answered": "truncation/answered_share",
    "turns": "rollout/turns_mean",
    "iteration_seconds": "timing_s/iteration",
    "rollout_seconds": "timing_s/rollout",
    "wait_seconds": "timing_s/wait_rollout",
    "learn_seconds": "timing_s/learn",
    "engine_busy": "perf/engine_busy_share",
    "staleness_max": "rollout/staleness_max",
    "unique_states": "rollout/unique_states_per_step",
    "tokens_per_s": "perf/tokens_per_s",
    "ess": "rollout_corr/ess",
    "staleness": "rollout/staleness_mean",
    "clip_fraction": "actor/clip_fraction",
}
SUMMARY_KEYS = ("engine", "seconds", "cpu_seconds", "sampled_tokens", "episodes")
Run = dict[str, Any]
Column = Callable[[list[Run]], str]
SMOOTHING = 5


@dataclass(frozen=True)
class Arm:
    """One line of a benchmark's table.

    Attributes:
        flags: of ``run.py``, which trains.
        evaluations: name -> flags of ``run.py eval`` for further evaluations of the trained agent.
    """

    name: str
    flags: tuple[str, ...]
    evaluations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def grid_parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that every grid has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="only seeds from this one on")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of every arm")
    parser.add_argument("--local", action="store_true", help="no actors, torch engine")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--name", default=name, help="results/NAME.json and NAME.png")
    return parser


def run_grid(
    arms: Sequence[Arm], args: argparse.Namespace, cell: Callable[..., Run] | None = None
) -> dict[str, list[Run]]:
    """Run the cells that results/NAME.json lacks, seed by seed; return all runs by arm, in the order of the seeds.

    Args:
        cell: makes one run from ``flags`` and ``seed``; `run_cell` by default. It must be picklable.

    Raises:
        RuntimeError: a run failed; the finished ones are on file.
    """
    local = ["--local"] if args.local else []
    common = {
        name: [*(part for key in keys for part in ("--set", key)), *local]
        for name, keys in shared_keys(arms, args.set).items()
    }
    path = RESULTS / f"{args.name}.json"
    done = _finished(path, {arm.name: _command(arm, common[arm.name]) for arm in arms})
    seeds = range(args.first_seed, args.seeds)
    cells = [(arm, seed) for seed in seeds for arm in arms if str(seed) not in done[arm.name]["runs"]]
    workers = ProcessPoolExecutor(
        args.jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=None if args.local else 1
    )
    with workers as pool:
        futures = {
            pool.submit(cell or run_cell, seed=seed, **_command(arm, common[arm.name])): (arm, seed)
            for arm, seed in cells
        }
        try:
            for future in as_completed(futures):
                arm, seed = futures[future]
                run = future.result()
                done[arm.name]["runs"][str(seed)] = run
                print(f"{arm.name:28} seed {seed}: {run['success']}", flush=True)
                _write(path, done)
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, drop the remaining cells
    _write(path, done)
    return {arm.name: [done[arm.name]["runs"][str(seed)] for seed in seeds] for arm in arms}


def shared_keys(arms: Sequence[Arm], assignments: Sequence[str]) -> dict[str, list[str]]:
    """Return the ``KEY=VALUE`` items of every arm, by arm, without those that have no effect on it.

    Raises:
        InputError: one has no effect on any arm.
    """
    common = parse_assignments(assignments)
    idle = {arm.name: idle_of({**_keys(arm), **common}).keys() & common.keys() for arm in arms}
    if nowhere := sorted(set(common).intersection(*idle.values())):
        raise InputError(f"--set {nowhere[0]}: has no effect on any arm")
    return {name: [item for item in assignments if item.partition("=")[0] not in own] for name, own in idle.items()}


def _keys(arm: Arm) -> dict[str, Any]:
    args = main_parser().parse(arm.flags)
    return {**(load_recipe(args.config) if args.config else {}), **named_flags(args)}


def _command(arm: Arm, common: Sequence[str]) -> dict[str, Any]:
    """Return what a cell of the arm runs, as stored on file; the runs of an arm are stale when it changes."""
    also = {name: list(flags) for name, flags in arm.evaluations.items()}
    return {"flags": [*arm.flags, *common], **({"evaluations": also} if also else {})}


def _finished(path: Path, commands: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the runs on file by arm, without those of arms whose command has changed."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["arms"] if path.is_file() else {}
    same = {name for name, own in commands.items() if {**earlier.get(name, {}), "runs": 0} == {**own, "runs": 0}}
    return {
        **earlier,
        **{name: {**own, "runs": earlier[name]["runs"] if name in same else {}} for name, own in commands.items()},
    }


def _write(path: Path, done: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    ordered = {
        name: {**arm, "runs": {seed: arm["runs"][seed] for seed in sorted(arm["runs"], key=int)}}
        for name, arm in done.items()
        if arm["runs"]
    }
    table = {name: summarize(list(arm["runs"].values())) for name, arm in ordered.items()}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"table": table, "arms": ordered}, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def run_cell(flags: Sequence[str], seed: int, evaluations: Mapping[str, Sequence[str]] | None = None) -> Run:
    """Return one run: success by iteration, tokens sampled until then, costs, and means of some metrics.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        run_command(["--seed", str(seed), "--output", str(output), *flags])
        run = read_run(output)
        checkpoint = ["eval", "--checkpoint", str(output), "--json", "--seeds", "1"]
        other = {name: json.loads(run_command([*checkpoint, *own])) for name, own in (evaluations or {}).items()}
    return run | ({"evaluations": {name: report["success_wilson"] for name, report in other.items()}} if other else {})


def run_command(argv: Sequence[str]) -> str:
    """Call the command line's entry point; return its output.

    Raises:
        RuntimeError: it failed.
    """
    from rl_agents.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = main(list(argv))
    if code:
        raise RuntimeError(f"run.py {' '.join(argv)} ended with exit code {code}")
    return said.getvalue()


def read_run(path: Path) -> Run:
    """Return the kept numbers of a finished run; see `run_cell`."""
    from rl_agents.reporting.run_folder import RunFolder

    folder = RunFolder(path)
    summary, records, settings = folder.read_summary(), folder.read_metrics(), folder.load_settings()
    trained = [record for record in records if record["iteration"]]
    evaluated = [record for record in records if "eval/success_rate" in record]
    return {
        "success": {record["iteration"]: record["eval/success_rate"] for record in evaluated},
        "tokens": {record["iteration"]: total_until(trained, record["iteration"], "rollout/response_tokens")
                   for record in evaluated},
        "steps": [_steps(record) for record in trained],
        "optimizer_steps": sum(_optimizer_steps(record, settings) for record in trained),
        "syncs": sum(record.get("search/syncs", 1) for record in trained),
        "training_success": _every(trained, "rollout/success_rate"),
        "zero_advantage": _every(trained, "rollout/zero_advantage_share"),
        "environment": {tag[4:]: fmean(_every(trained[-SMOOTHING:], tag)) for tag in _reported(trained)},
        **({"run_states": states_of(folder.pool)} if folder.pool.is_file() else {}),
        "engine_logprob_gap_max": max(r.get("rollout_corr/logprob_diff_max", 0.0) for r in trained),
        **{key: summary[key] for key in SUMMARY_KEYS},
        **{name: fmean(values) for name, tag in MEANS.items() if (values := [r[tag] for r in trained if tag in r])},
    }  # fmt: skip


def states_of(pool: Path) -> int:
    """Count the different states of a run's training at which it sampled actions."""
    from rl_agents.store.reader import PoolReader

    keys = "s.task_id, coalesce(o.anchor, o.observation) FROM outcomes o JOIN sessions s ON s.id = o.session"
    with PoolReader(pool) as reader:
        return int(reader.one(f"SELECT count(*) FROM (SELECT DISTINCT {keys})")[0])


def total_until(records: Sequence[Run], iteration: int, tag: str) -> int:
    """Sum a metric over the iterations up to ``iteration``."""
    return int(sum(record.get(tag, 0) for record in records if record["iteration"] <= iteration))


def _every(records: Sequence[Run], tag: str) -> list[float]:
    return [round(record[tag], 4) for record in records if tag in record]


def _reported(records: Sequence[Run]) -> list[str]:
    """Return the tags of the environment's own metrics."""
    return sorted(tag for tag in (records[-1] if records else {}) if tag.startswith("env/"))


def _steps(record: Run) -> int:
    """Return the sampled actions of an iteration; a search counts them itself, because its paths share steps."""
    sampled = record.get("search/sampled_steps", record.get("rollout/turns"))  # a search may finish no path
    return int(sampled or 0)


def _optimizer_steps(record: Run, settings: Settings) -> int:
    planned = 0 if record.get("actor/skipped_iterations") else settings.epochs * settings.minibatches
    return int(record.get("search/optimizer_steps", planned))


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Return mean and 95 % Student interval of start, end and gain over the seeds, and mean costs."""
    curves = [list(run["success"].values()) for run in runs]
    rows = {
        "start": [curve[0] for curve in curves],
        "end": [curve[-1] for curve in curves],
        "gain": [curve[-1] - curve[0] for curve in curves],
    }
    names = ("seconds", "cpu_seconds", "sampled_tokens", *(name for name in MEANS if all(name in run for run in runs)))
    return {
        "seeds": len(runs),
        **{name: student_interval(values).to_dict() for name, values in rows.items()},
        **{name: fmean(run[name] for run in runs) for name in names},
        "engine_logprob_gap_max": max(run["engine_logprob_gap_max"] for run in runs),
    }


def text(interval: dict[str, float]) -> str:
    """Return ``mean [low, high]``; one value has no interval."""
    mean, low, high = (interval[part] for part in ("mean", "low", "high"))
    return f"{mean:.2f}" if math.isnan(low) else f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def mean_text(values: Sequence[float]) -> str:
    """Return `text` of the mean and its 95 % Student interval."""
    return text(student_interval(values).to_dict())


def zero_advantage(runs: list[Run]) -> str:
    """Return the share of episodes without an advantage; ``-`` if a run has none on file."""
    shares = [run["zero_advantage_share"] for run in runs if "zero_advantage_share" in run]
    return f"{fmean(shares):.2f}" if len(shares) == len(runs) else "-"


#: Columns of every grid's table; success is on the test tasks.
COLUMNS: Mapping[str, Column] = {
    "start": lambda runs: mean_text([next(iter(run["success"].values())) for run in runs]),
    "end": lambda runs: mean_text([list(run["success"].values())[-1] for run in runs]),
    "sampled tokens": lambda runs: f"{fmean(run['sampled_tokens'] for run in runs) / 1000:.0f} k",
    "CPU-s a run": lambda runs: f"{fmean(run['cpu_seconds'] for run in runs):.0f}",
    "zero-advantage share": zero_advantage,
}


def markdown(arms: Mapping[str, list[Run]], extra: Mapping[str, Column] | None = None) -> str:
    """Return a table with `COLUMNS` and ``extra``."""
    return table(arms, {**COLUMNS, **(extra or {})})


def table(arms: Mapping[str, list[Run]], columns: Mapping[str, Column], head: str = "arm") -> str:
    """Return a table with one line per arm; ``head`` is the title of the first column."""
    lines = [f"| {' | '.join((head, *columns))} |", f"|{'---|' * (1 + len(columns))}"]
    for name, runs in arms.items():
        lines.append(f"| {' | '.join((name, *(column(runs) for column in columns.values())))} |")
    return "\n".join(lines)


def plot(arms: dict[str, list[Run]], path: Path, title: str) -> None:
    """Plot success of the training episodes over sampled tokens, and test success before and after."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (13, 1.8 + 0.3 * max(8, len(arms)))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=size, width_ratios=(1.2, 1), layout="constrained")
    for number, runs in enumerate(arms.values()):
        style = "-" if number < 10 else "--"
        curves = [smooth(run["training_success"]) for run in runs]
        mean = [fmean(values) for values in zip(*curves, strict=True)]
        tokens = fmean(run["sampled_tokens"] for run in runs) / 1000
        left.plot([tokens * (i + 1) / len(mean) for i in range(len(mean))], mean, style, color=f"C{number}")
        row = summarize(runs)
        for key, marker in (("start", "|"), ("end", "o")):
            low, middle, high = (row[key][part] for part in ("low", "mean", "high"))
            spread = [[middle - low], [high - middle]] if key == "end" else None
            right.errorbar([middle], [number], xerr=spread, fmt=marker, color=f"C{number}", capsize=3)
    left.set(xlabel="thousand sampled tokens", ylabel=f"training success, mean of {SMOOTHING} iterations", title=title)
    right.set(xlabel="test success: start |, end o with 95 % interval", xlim=(0, 1))
    right.set_yticks(range(len(arms)), list(arms))
    right.invert_yaxis()
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def smooth(values: Sequence[float], window: int = SMOOTHING) -> list[float]:
    """Return the mean of each value and up to ``window - 1`` values before it."""
    return [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]
