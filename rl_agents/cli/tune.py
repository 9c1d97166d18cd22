"""``python run.py tune tune_configs/sweeps/NAME.yaml``: a Ray Tune sweep, its table and best recipe."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_agents.cli.failures import report_crash
from rl_agents.cli.parser import Parser
from rl_agents.cli.train import default_output, named_flags, prepare
from rl_agents.config import Settings
from rl_agents.config.loading import preset_path
from rl_agents.errors import InputError
from rl_agents.installation import command
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.outputs import nothing_left, one_process
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.doubtful_keys import cautions
from rl_agents.trainer.ray_address import describe_session
from rl_agents.tuning.sweep import Sweep, load_sweep

SWEEP_FILE = "sweep.yaml"


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that was checked but not started.

    Attributes:
        settings: resolved settings of each trial, by name.
    """

    sweep: Sweep
    output: Path
    settings: Mapping[str, Settings]


def build_parser() -> Parser:
    parser = Parser("tune")
    named = "a sweep by name (`run.py list sweeps`) or a YAML file (docs/how-to/tune.md)"
    parser.add_argument("sweep", nargs="?", type=Path, metavar="SWEEP", help=named)
    parser.add_argument("--config", type=Path, metavar="SWEEP", help="same as SWEEP")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: runs/sweep-NAME-TIME)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="continue the sweep in DIR")
    parser.add_argument("--local", action="store_true", help="run each trial in a single process")
    parser.add_argument("--iterations", type=int, metavar="N", help="training iterations of every trial")
    parser.add_argument("--seed", type=int, metavar="N", help="first seed of each point (default: the sweep's, else 0)")
    parser.add_settings_flag()
    parser.add_argument("--json", action="store_true", help="print only the results as JSON, on one line")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        plan = plan_resume(args) if args.resume else plan_new(args)
        print(f"[rl_agents] {describe_session()}\n{describe(plan)}", flush=True)
        for line in first_lines(plan.settings.values()):
            print(f"[rl_agents] {line}", flush=True)
        try:
            with taken_back(plan), Interrupts() as interrupts:
                results = _tune(plan, interrupts)
        except InputError:
            raise
        except Exception as error:
            return report_crash(error, plan.output, hint=f"Resume with: {command('tune', '--resume', plan.output)}")
        print_outcome(plan, results, interrupts.requested)
    if args.json:
        print(json.dumps(results))
    return exit_code(results, interrupts.requested)


def first_lines(trials: Iterable[Settings]) -> list[str]:
    """Return the lines to print before trials start, each once: engine choice, lengths and warnings."""
    resolved = list(trials)
    lines = [s.engine_choice for s in resolved if s.engine_choice]
    lines += [s.lengths for s in resolved if s.lengths] + [line for s in resolved for line in cautions(s)]
    return list(dict.fromkeys(lines))


def taken_back(plan: SweepPlan) -> AbstractContextManager[None]:
    """Remove a new sweep's folder if bad input ends it; keep a resumed sweep."""
    resumed = (plan.output / SWEEP_FILE).exists()
    return nullcontext() if resumed else nothing_left(plan.output)


def plan_new(args: argparse.Namespace) -> SweepPlan:
    """Check a new sweep without writing anything.

    Raises `InputError`: a problem with the file, a key, the output folder, or a trial.
    """
    if args.sweep and args.config:
        raise InputError(f"--config {args.config} and {args.sweep}: give one sweep")
    named = args.sweep or args.config
    if named is None:
        raise InputError(
            "tune needs a sweep file, such as tune_configs/sweeps/vspo_small.yaml (see run.py tune --help)"
        )
    sweep = load_sweep(Path(preset_path(str(named), "sweeps")), named_flags(args), args.local)
    output = args.output or default_output(f"sweep-{sweep.name}")
    RunFolder.check_free(output)
    plan = SweepPlan(sweep, output.resolve(), resolve_trials(sweep, str(named)))
    check_comparisons(plan, str(named))
    return with_one_engine(plan, str(named))


def check_comparisons(plan: SweepPlan, source: str) -> None:
    """Raise `InputError` if ASHA would first compare evaluations from before the training."""
    asha = plan.sweep.asha
    for settings in plan.settings.values() if asha and plan.sweep.metric.startswith("eval/") else ():
        if asha and asha.grace < settings.iterations and not 0 < settings.eval_interval <= asha.grace:
            raise InputError(
                f"{source}: asha.grace={asha.grace}: trials would be compared before their first evaluation after "
                f"training, with eval_interval={settings.eval_interval}; set eval_interval={asha.grace}"
            )


def plan_resume(args: argparse.Namespace) -> SweepPlan:
    """Check a resumed sweep without writing anything.

    Raises `InputError`: not a sweep's folder, or flags that would make it a different sweep.
    """
    file = args.resume / SWEEP_FILE
    if not file.is_file():
        raise InputError(f"--resume {args.resume}: not the output folder of a sweep (no sweep.yaml)")
    flags = {"a sweep file": args.sweep or args.config, "--set": args.set or None, "--output": args.output}
    for flag, given in {**flags, "--seed": args.seed, "--iterations": args.iterations}.items():
        if given is not None:
            raise InputError(f"{flag} with --resume: the sweep continues as {file} describes it")
    sweep = load_sweep(file)
    if args.local and not sweep.local:
        raise InputError(f"--local with --resume: the trials of {args.resume} use Ray actors")
    return SweepPlan(sweep, args.resume.resolve(), resolve_trials(sweep, str(file)))


def with_one_engine(plan: SweepPlan, source: str) -> SweepPlan:
    """Choose one engine for all trials and store it in the sweep's file, so that trials are comparable.

    It is vLLM if ``engine=auto`` would choose vLLM for one of them.
    """
    sweep = plan.sweep
    if sweep.local or "engine" in sweep.space or sweep.keys.get("engine", "auto") != "auto":
        return plan
    trials = list(plan.settings.values())
    chosen = next((settings for settings in trials if settings.engine == "vllm"), trials[0])
    sweep = replace(sweep, keys={**sweep.keys, "engine": chosen.engine})
    if any(settings.engine != chosen.engine for settings in trials):
        plan = replace(plan, settings=resolve_trials(sweep, source))
        for settings in plan.settings.values():
            settings.engine_choice = chosen.engine_choice
    return replace(plan, sweep=sweep)


def resolve_trials(sweep: Sweep, source: str) -> dict[str, Settings]:
    """Resolve the settings of every trial before the sweep starts. Raises `InputError`: with the file and the trial."""
    resolved = {}
    for spec in sweep.trials:
        try:
            resolved[spec.name] = prepare(sweep.settings(spec))
        except InputError as error:
            raise InputError(f"{source}: trial {spec.name.partition('-')[2]}: {error}") from None
    return resolved


def describe(plan: SweepPlan) -> str:
    """Return two lines: the varied keys with the number of runs, and the output folder."""
    sweep = plan.sweep
    points = len(sweep.trials) // sweep.seeds
    scheduler = "asha" if sweep.asha else "no early stopping"
    first = next(iter(plan.settings.values()))
    keys = " x ".join(sweep.space)
    return (
        f"sweep {sweep.name}: {keys}, {points} points, {sweep.seeds} seed{'s' if sweep.seeds > 1 else ''} each, "
        f"{len(sweep.trials)} runs of {first.iterations} iterations of {first.algo} on {first.env} ({scheduler})\n"
        f"output: {plan.output} (TensorBoard: tensorboard --logdir {plan.output}/trials)"
    )


def _tune(plan: SweepPlan, interrupts: Interrupts) -> dict[str, Any]:
    from rl_agents.resources import run_bundles
    from rl_agents.trainer.algorithm import AgentAlgorithm
    from rl_agents.trainer.ray_init import ends_with_ray, ensure_ray, quiet_libraries
    from rl_agents.trainer.warm_start import ensure_model
    from rl_agents.tuning.driver import SweepFolder, run_sweep
    from rl_agents.tuning.report import write_results

    quiet_libraries()
    for settings in {(s.env, s.model): s for s in plan.settings.values()}.values():
        ensure_model(settings, AgentAlgorithm.from_settings)  # once, before many trials need it
    largest = max(sum(b.get("CPU", 0) for b in run_bundles(s)) for s in plan.settings.values())
    ensure_ray(math.ceil(largest) - 1)
    interrupts.install()
    folder = SweepFolder(plan.output)
    plan.output.mkdir(parents=True, exist_ok=True)
    with ends_with_ray(f"Resume with: {command('tune', '--resume', plan.output)}"), one_process(plan.output):
        problem = run_sweep(plan.sweep, folder, plan.settings, interrupts)
    results = write_results(plan.sweep, folder)
    if problem:
        raise RuntimeError(problem)
    if not interrupts.requested and (reason := all_bad_input(results)):
        raise InputError(reason)
    return results


def all_bad_input(results: Mapping[str, Any]) -> str:
    """Return the reason if all trials have bad input; else empty."""
    trials = [trial for point in results["points"] for trial in point["trials"]]
    return str(trials[0]["reason"]) if all(trial["status"] == "bad_input" for trial in trials) else ""


def print_outcome(plan: SweepPlan, results: Mapping[str, Any], interrupted: bool) -> None:
    """Print the results and the next commands."""
    print("\n" + (plan.output / "results.md").read_text(encoding="utf-8"))
    if results["best"] is not None:
        so_far = "" if results["status"] == "done" else f" (best of {results['best']['of']})"
        named = "highest mean" if results["best"]["overlaps"] else "best recipe"
        print(f"{named}{so_far}: {command('--config', plan.output / 'best.yaml')}")
    print(f"explore: {command('view', plan.output)}")
    if interrupted or results["status"] != "done":
        print(f"some trials are not done; resume with: {command('tune', '--resume', plan.output)}")
    print(f"output: {plan.output}", flush=True)


def exit_code(results: Mapping[str, Any], interrupted: bool) -> int:
    """130 after a signal, 1 when trials failed, else 0."""
    statuses = {trial["status"] for point in results["points"] for trial in point["trials"]}
    if interrupted:
        return 130
    return 0 if results["status"] == "done" and "bad_input" not in statuses else 1
