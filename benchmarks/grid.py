"""Run arms x seeds of the command line and keep every finished run, so that a stopped grid can continue.

An arm is a set of flags of ``run.py``. Each cell (arm, seed) calls the command line's entry point in a worker process.
Local cells share worker processes, so libraries are imported once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import command_line, drawn, mean_text, part_of, save
from benchmarks.report import markdown as markdown_table
from rl_agents.cli.parser import main_parser
from rl_agents.cli.train import named_flags
from rl_agents.config import load_recipe, parse_assignments
from rl_agents.errors import InputError
from rl_agents.reporting.statistics import student_interval
from rl_agents.trainer.unused_keys import idle_of

#: Name in tables -> metric whose mean over the iterations is kept.
MEANS = {
    "zero_advantage_share": "rollout/zero_advantage_share",
    "truncation_ratio": "truncation/ratio",
    "turns": "rollout/turns_mean",
    "iteration_seconds": "timing_s/iteration",
    "rollout_seconds": "timing_s/rollout",
    "wait_seconds": "timing_s/wait_rollout",
    "learn_seconds": "timing_s/learn",
    "engine_busy": "perf/engine_busy_share",
    "staleness_max": "rollout/staleness_max",
    "unique_states": "rollout/unique_states_per_step",
    "ess": "rollout_corr/ess",
    "staleness": "rollout/staleness_mean",
}
SUMMARY_KEYS = ("engine", "seconds", "cpu_seconds", "sampled_tokens", "episodes")
Run = dict[str, Any]
Column = Callable[[list[Run]], str]
SMOOTHING = 5


@dataclass(frozen=True)
class Arm:
    """One line of a benchmark's table: flags of ``run.py``, which trains."""

    name: str
    flags: tuple[str, ...]


def grid_parser(description: str | None, name: str) -> argparse.ArgumentParser:
    parser = command_line(description, {"seeds": 3})
    parser.add_argument("--first-seed", type=int, default=0, help="only seeds from this one on")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of every arm")
    parser.add_argument("--local", action="store_true", help="no actors, torch engine")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--name", default=name, help="results/NAME.json and NAME.png")
    return parser


def run_grid(
    arms: Sequence[Arm], args: argparse.Namespace, cell: Callable[..., Run] | None = None, fresh: bool = False
) -> dict[str, list[Run]]:
    """Run the cells that results/NAME.json lacks, seed by seed; return all runs by arm, in the order of the seeds.

    ``cell`` makes one run from ``flags`` and ``seed`` (`run_cell` by default). It must be picklable. ``fresh``: local
    runs have a process each, too, since a process keeps the memory of large models.

    Raises:
        RuntimeError: a run failed; the finished ones are on file.
    """
    local = ["--local"] if args.local else []
    shared = shared_keys(arms, args.set)
    flags = {arm.name: [*arm.flags, *(p for key in shared[arm.name] for p in ("--set", key)), *local] for arm in arms}
    done = _finished(args.name, flags)
    seeds = range(args.first_seed, args.seeds)
    cells = [(name, seed) for seed in seeds for name in flags if str(seed) not in done[name]["runs"]]
    workers = ProcessPoolExecutor(
        args.jobs,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=None if args.local and not fresh else 1,
    )
    with workers as pool:
        futures = {pool.submit(cell or run_cell, flags=flags[name], seed=seed): (name, seed) for name, seed in cells}
        try:
            for future in as_completed(futures):
                name, seed = futures[future]
                run = done[name]["runs"][str(seed)] = future.result()
                print(f"{name:28} seed {seed}: {run['success']}", flush=True)
                _write(args.name, done)
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, drop the remaining cells
    _write(args.name, done)
    return {name: [done[name]["runs"][str(seed)] for seed in seeds] for name in flags}


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
    args = main_parser().parse(last_of_each(arm.flags))
    return {**(load_recipe(args.config) if args.config else {}), **named_flags(args)}


def _finished(name: str, flags: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the runs on file by arm, without those of arms whose flags have changed."""
    earlier = part_of(name)
    same = {arm for arm, own in flags.items() if earlier.get(arm, {}).get("flags") == own}
    return earlier | {
        arm: {"flags": own, "runs": earlier[arm]["runs"] if arm in same else {}} for arm, own in flags.items()
    }


def _write(name: str, done: Mapping[str, Any]) -> None:
    ordered = {
        arm: {**own, "runs": {seed: own["runs"][seed] for seed in sorted(own["runs"], key=int)}}
        for arm, own in done.items()
        if own["runs"]
    }
    save(name, {"arms": ordered})


def run_cell(flags: Sequence[str], seed: int) -> Run:
    """Return one run: success by iteration, tokens sampled until then, costs, and means of some metrics."""
    with trained(flags, seed) as output:
        return read_run(output)


@contextlib.contextmanager
def trained(flags: Sequence[str], seed: int) -> Iterator[Path]:
    """Call ``run.py`` with a seed; yield the folder of the run, which is removed at the end.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        run_command(["--seed", str(seed), "--output", str(output), *flags])
        yield output


def last_of_each(flags: Sequence[str]) -> list[str]:
    """Return flags in which the last ``--set KEY=VALUE`` of a key replaces earlier ones, which `run.py` refuses.

    >>> last_of_each(["--local", "--set", "lr=1", "--set", "lr=2"])
    ['--local', '--set', 'lr=2']
    """
    own = {place: flags[place].partition("=")[0] for place in range(1, len(flags)) if flags[place - 1] == "--set"}
    last = {key: place for place, key in own.items()}
    idle = own.keys() - set(last.values())
    return [word for place, word in enumerate(flags) if not {place, place + 1} & idle]


def run_command(argv: Sequence[str]) -> str:
    """Call the command line's entry point; return its output.

    Raises:
        RuntimeError: it failed.
    """
    from rl_agents.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = main(last_of_each(argv))
    if code:
        raise RuntimeError(f"run.py {' '.join(argv)} ended with exit code {code}")
    return said.getvalue()


def imitated(folder: Path, env: str, *flags: str) -> Path:
    """Return the folder of a warm-start model, from the repository's root; made when it is absent."""
    if not folder.is_dir():
        run_command(["sft", "--env", env, "--output", str(folder), *flags])
    return folder


def read_run(path: Path) -> Run:
    """Return the kept numbers of a finished run; see `run_cell`."""
    from rl_agents.reporting.run_folder import RunFolder

    folder = RunFolder(path)
    summary, records = folder.read_summary(), folder.read_metrics()
    training = [record for record in records if record["iteration"]]
    evaluated = [record for record in records if "eval/success_rate" in record]
    return {
        "success": {record["iteration"]: record["eval/success_rate"] for record in evaluated},
        "tokens": {record["iteration"]: total_until(training, record["iteration"], "rollout/response_tokens")
                   for record in evaluated},
        "steps": [_steps(record) for record in training],
        "training_success": _every(training, "rollout/success_rate"),
        "zero_advantage": _every(training, "rollout/zero_advantage_share"),
        "environment": {tag[4:]: fmean(_every(training[-SMOOTHING:], tag)) for tag in _reported(training)},
        **({"run_states": states_of(folder.pool)} if folder.pool.is_file() else {}),
        "engine_logprob_gap_max": max(r.get("rollout_corr/logprob_diff_max", 0.0) for r in training),
        **{key: summary[key] for key in SUMMARY_KEYS},
        **{name: fmean(values) for name, tag in MEANS.items() if (values := [r[tag] for r in training if tag in r])},
    }  # fmt: skip


def states_of(pool: Path) -> int:
    """Count the different states of a run's training at which it sampled actions."""
    from rl_agents.store.reader import PoolReader

    keys = "s.task_id, coalesce(o.anchor, o.observation) FROM outcomes o JOIN sessions s ON s.id = o.session"
    with PoolReader(pool) as reader:
        return int(reader.one(f"SELECT count(*) FROM (SELECT DISTINCT {keys})")[0])


def total_until(records: Sequence[Run], iteration: int, tag: str) -> int:
    return int(sum(record.get(tag, 0) for record in records if record["iteration"] <= iteration))


def _every(records: Sequence[Run], tag: str) -> list[float]:
    return [round(record[tag], 4) for record in records if tag in record]


def _reported(records: Sequence[Run]) -> list[str]:
    return sorted(tag for tag in (records[-1] if records else {}) if tag.startswith("env/"))


def _steps(record: Run) -> int:
    """Return the sampled actions of an iteration; a search counts them itself, because its paths share steps."""
    sampled = record.get("search/sampled_steps", record.get("rollout/turns"))  # a search may finish no path
    return int(sampled or 0)


def mean_of(what: str | Callable[[Run], float], digits: int = 2) -> Column:
    """Return a column: the mean over the seeds of a number of a run, or of what ``what`` computes from one."""
    of = (lambda run: run[what]) if isinstance(what, str) else what
    return lambda runs: f"{fmean(of(run) for run in runs):.{digits}f}"


def zero_advantage(runs: list[Run]) -> str:
    return mean_of("zero_advantage_share")(runs) if all("zero_advantage_share" in run for run in runs) else "-"


#: Columns of every grid's table; success is on the test tasks.
COLUMNS: Mapping[str, Column] = {
    "start": lambda runs: mean_text(next(iter(run["success"].values())) for run in runs),
    "end": lambda runs: mean_text(list(run["success"].values())[-1] for run in runs),
    "sampled tokens": lambda runs: f"{fmean(run['sampled_tokens'] for run in runs) / 1000:.0f} k",
    "CPU-s a run": mean_of("cpu_seconds", 0),
    "zero-advantage share": zero_advantage,
}


def markdown(arms: Mapping[str, list[Run]], extra: Mapping[str, Column] | None = None) -> str:
    return table(arms, {**COLUMNS, **(extra or {})})


def table(arms: Mapping[str, list[Run]], columns: Mapping[str, Column], head: str = "arm") -> str:
    """Return a table with one line per arm; ``head`` is the title of the first column."""
    rows = [(name, *(column(runs) for column in columns.values())) for name, runs in arms.items()]
    return markdown_table((head, *columns), rows)


def plot(arms: dict[str, list[Run]], path: Path, title: str) -> None:
    """Plot success of the training episodes over sampled tokens, and test success before and after."""
    size = (13, 1.8 + 0.3 * max(8, len(arms)))
    with drawn(path, 1, 2, figsize=size, width_ratios=(1.2, 1)) as (_, (left, right)):
        for number, runs in enumerate(arms.values()):
            style, color = "-" if number < 10 else "--", f"C{number}"
            mean = [fmean(values) for values in zip(*(smooth(run["training_success"]) for run in runs), strict=True)]
            tokens = fmean(run["sampled_tokens"] for run in runs) / 1000
            left.plot([tokens * (i + 1) / len(mean) for i in range(len(mean))], mean, style, color=color)
            curves = [list(run["success"].values()) for run in runs]
            right.errorbar([fmean(curve[0] for curve in curves)], [number], fmt="|", color=color, capsize=3)
            end = student_interval([curve[-1] for curve in curves])
            spread = [[end.mean - end.low], [end.high - end.mean]]
            right.errorbar([end.mean], [number], xerr=spread, fmt="o", color=color, capsize=3)
        success = f"training success, mean of {SMOOTHING} iterations"
        left.set(xlabel="thousand sampled tokens", ylabel=success, title=title)
        right.set(xlabel="test success: start |, end o with 95 % interval", xlim=(0, 1))
        right.set_yticks(range(len(arms)), list(arms))
        right.invert_yaxis()
        for axis in (left, right):
            axis.grid(alpha=0.3)


def smooth(values: Sequence[float], window: int = SMOOTHING) -> list[float]:
    """Return the mean of each value and up to ``window - 1`` values before it."""
    return [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]
