"""``python run.py eval``: success of checkpoints and models with confidence intervals."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rl_agents.algorithms import KEYS, Settings
from rl_agents.cli.parser import Parser
from rl_agents.cli.train import build_algorithm, prepare
from rl_agents.config.loading import merge_flags, refuse_keys
from rl_agents.config.settings import EVALUATION_KEYS
from rl_agents.data.tasks import by_environment
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.base import is_environment, run_tasks, task_ids
from rl_agents.errors import InputError, unknown
from rl_agents.inference.hub import find_folder, how_to_get
from rl_agents.reporting.episode_diagnostics import EpisodeWatch
from rl_agents.reporting.run_folder import RunFolder, json_safe, restored_settings
from rl_agents.reporting.statistics import Interval, pass_intervals, student_interval, success_interval
from rl_agents.trainer.ray_address import describe_session
from rl_agents.trainer.resolve import choose


def build_parser() -> Parser:
    parser = Parser("eval", epilog="The result is JSON on stdout; everything else goes to stderr.")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="a run folder (its newest checkpoint) or a checkpoint"
    )
    parser.add_argument("--model", metavar="DIR", help="a Hugging Face model: a folder or a public name")
    parser.add_argument(
        "--compare", nargs="+", metavar="[PROMPTING:]DIR", default=[],
        help="compare policies in one table: run folders, checkpoints, model folders or `starter` (the warm-start "
        "model); the prefix `react:` or `reflexion:` makes one a prompting baseline",
    )  # fmt: skip
    parser.add_argument("--env", metavar="NAME", help="environment (default: the checkpoint's, else guess_numbers)")
    parser.add_count("--episodes", 128, "episodes per seed")
    parser.add_count("--seeds", None, "number of seeds (default: 3, or as many as --samples needs)")
    parser.add_count(
        "--samples", None, "also report pass@K (any of K samples solves a task) and pass^K (all do)", metavar="K"
    )
    parser.add_count("--seed", 0, "the first seed", least=0)
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="sampling temperature (default: the run's eval_temperature)"
    )
    parser.add_argument("--split", default="test", choices=("test", "train"), help="task set (default: test)")
    parser.add_argument("--local", action="store_true", help="run in a single process, without Ray actors")
    parser.add_argument("--json", action="store_true", help="print only the JSON, on one line")
    parser.add_settings_flag(
        {"model": "--model", "seed": "--seed", "eval_episodes": "--episodes", "temperature": "--temperature"}
    )
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    # Resolve all before the first one runs, so that a typo in the last one costs no time.
    policies = [(label, evaluation_settings(args, path, keys)) for label, path, keys in chosen_policies(args)]
    refuse_different_tasks(policies, args.split)
    args.seeds = number_of_seeds(args, policies[0][1])
    resolved = [settings for _, settings in policies]
    lines = [s.lengths for s in resolved if s.lengths]
    if any(settings.num_env_runners for settings in resolved):
        lines.insert(0, describe_session())
    if args.samples and not all(settings.eval_temperature for settings in resolved):
        lines.append("temperature 0: the samples of a task are usually the same, so --samples says nothing more")
    for line in dict.fromkeys(lines):
        print(f"[rl_agents] {line}", file=sys.stderr)
    reports = {}
    for label, settings in policies:
        reports[label] = evaluate(settings, args, f"{label}: " if args.compare else "")
        if args.compare:
            print(f"{label}: {sentence(reports[label])}", file=sys.stderr)
    result = reports if args.compare else next(iter(reports.values()))
    print(json.dumps(json_safe(result), indent=None if args.json else 2))
    if not args.json:
        if not args.compare:
            print(sentence(result), file=sys.stderr)
            reports = result.get("environments", {})
        if reports:
            print(table(reports, "policy" if args.compare else "environment"), file=sys.stderr)
    return 0


def chosen_policies(args: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (label, path, keys) of every policy.

    Raises `InputError`: none or several of --checkpoint, --model and --compare, or a repeated policy.
    """
    given = [f"--{name}" for name in ("checkpoint", "model", "compare") if getattr(args, name)]
    if not given:
        raise InputError("eval needs one of --checkpoint DIR, --model DIR and --compare DIR DIR ...")
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other; --compare DIR DIR takes several policies")
    if not args.compare:
        path = str(args.checkpoint or args.model)
        return [(path, path, {})]
    policies = []
    for item in args.compare:
        prompting, colon, path = item.partition(":")
        known = colon and prompting in typing.get_args(KEYS["prompting"].kind)
        policies.append((item, path, {"prompting": prompting}) if known else (item, item, {}))
    if len(set(args.compare)) < len(args.compare):
        raise InputError(f"--compare {' '.join(args.compare)}: a policy is named twice")
    return policies


def refuse_different_tasks(policies: Sequence[tuple[str, Settings]], split: str) -> None:
    """Raise `InputError` if two policies would play different tasks: their rates would not be comparable."""
    (first, mine), *others = policies
    for label, settings in others:
        if settings.env != mine.env:
            raise InputError(f"--compare: {first} plays {mine.env}, and {label} {settings.env}; choose with --env")
        tasks = [run_tasks(one, split) for one in (mine, settings)]
        if tasks[0] != tasks[1]:
            given = mine.env_options
            differ = ", ".join(
                f"env.{name}" for name, value in settings.env_options.items() if value != given.get(name)
            )
            raise InputError(f"--compare: {first} and {label} have different {split} tasks: set {differ}")


def number_of_seeds(args: argparse.Namespace, settings: Settings) -> int:
    """Return ``--seeds``, by default 3 or as many as give every task ``--samples`` episodes.

    Raises `InputError`: the seeds are too few for these.
    """
    if not args.samples:
        return args.seeds or 3
    tasks = max(len(task_ids(own.env, args.split, own.env_options)) for own in settings.each.values())
    of_a_seed = max(1, args.episodes // len(settings.each) // max(1, tasks))
    needed = math.ceil(args.samples / of_a_seed)
    if args.seeds and args.seeds < needed:
        each = f"a task has only {args.seeds * of_a_seed} samples (--seeds {args.seeds}, --episodes {args.episodes})"
        raise InputError(f"--samples {args.samples}: {each}; use --seeds {needed}")
    return args.seeds or max(3, needed)


def evaluation_settings(args: argparse.Namespace, path: str, keys: Mapping[str, Any]) -> Settings:
    """Resolve one policy's settings without building anything.

    Raises `InputError`: contradictory flags, missing folder, unknown key or environment.
    """
    given = merge_flags(args.set, {"env": args.env, "eval_temperature": args.temperature})
    refuse_keys(given, EVALUATION_KEYS, "it has an effect only on training")
    flags = {**given, **keys}
    settings = policy_settings(path, flags, args)
    settings.update(EVALUATION_KEYS)
    settings.only_split = args.split
    if args.local:
        settings.make_local(flags)
    return prepare(settings, sys.stderr)


def policy_settings(path: str, flags: Mapping[str, Any], args: argparse.Namespace) -> Settings:
    """Return the settings of a checkpoint overridden by ``flags``, or only ``flags`` for a model or the starter."""
    folder, model = Path(path), find_folder(path) if args.model or args.compare else None
    has_config = model is not None and (model / "config.json").is_file()
    is_model = args.model or (args.compare and (path == "starter" or has_config))
    if is_model:
        if path != "starter" and not has_config:
            raise InputError(f"{path}: no Hugging Face model there (no config.json){how_to_get(path)}")
        settings = choose(flags)
        settings.update({"model": path})
        return settings
    checkpoint = folder if (folder / "hf").is_dir() else RunFolder.locate(folder)[2]
    RunFolder.check_whole(checkpoint, ("eval", "--checkpoint"), ("hf/", "config.yaml"))
    settings = restored_settings(checkpoint / "config.yaml")
    chosen = flags.get("env", settings.env)
    if chosen in settings.parts:
        settings = settings.parts[chosen]
        settings.task_prefix, flags = "", {name: value for name, value in flags.items() if name != "env"}
    elif settings.parts and chosen != settings.env and not is_environment(chosen):
        raise unknown("environment", chosen, settings.parts)
    elif chosen != settings.env:  # use the other environment's options and turns
        settings.env_options, settings.max_turns = {}, 0
    settings.update({**flags, "model": str(checkpoint / "hf")})
    return settings


def evaluate(settings: Settings, args: argparse.Namespace, label: str = "") -> dict[str, Any]:
    """Run the episodes of every seed with one policy; return its report, and print warnings to stderr."""
    started = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):  # keep logs out of the JSON
        algo = build_algorithm(settings)
        try:
            by_seed = []
            for seed in range(args.seed, args.seed + args.seeds):
                by_seed.append(
                    algo.evaluate_policy(
                        split=args.split, episodes=args.episodes, temperature=settings.eval_temperature, seed=seed
                    )
                )
                if args.seeds > 1 and not args.json:
                    rate, seconds = success_interval(by_seed[-1]).mean, time.monotonic() - started
                    print(f"[rl_agents] {label}seed {seed}: success {rate:.3f} after {seconds:.0f} s", file=sys.stderr)
            engine = algo.engine_description
        finally:
            algo.stop()
    for line in EpisodeWatch(settings).of_policy([t for episodes in by_seed for t in episodes]):
        print(f"[rl_agents] {label}{line}", file=sys.stderr)
    return {
        "env": settings.env,
        "model": settings.model,
        "prompting": settings.prompting,
        "split": args.split,
        "temperature": settings.eval_temperature,
        "engine": engine,
        **evaluation_report(by_seed, args.samples),
        **({"environments": _reports(settings, by_seed, args.samples)} if settings.parts else {}),
        "seconds": round(time.monotonic() - started, 2),
    }


def evaluation_report(by_seed: Sequence[Sequence[Trajectory]], samples: int | None = None) -> dict[str, Any]:
    """Summarize the episodes of every seed.

    ``success`` is the mean over the seeds' means with its Student-t interval (variation between repetitions);
    ``success_over_tasks`` pools all episodes, and its interval is over distinct tasks; so does `pass_intervals` of
    ``samples``.
    """
    everything = [t for episodes in by_seed for t in episodes]
    rates = [success_interval(episodes).mean for episodes in by_seed]
    returns = student_interval([fmean(t.episode_return for t in episodes) for episodes in by_seed])
    turns = student_interval([fmean(t.turns for t in episodes) for episodes in by_seed])
    over_tasks = success_interval(everything)
    return {
        "episodes": len(everything),
        "tasks": over_tasks.n,
        "seeds": len(by_seed),
        "success": {**student_interval(rates).of_rate().to_dict(), "per_seed": rates},
        "success_over_tasks": over_tasks.to_dict(),
        **{name: rate.to_dict() for name, rate in (pass_intervals(everything, samples) if samples else {}).items()},
        "return": returns.to_dict(),
        "turns": turns.to_dict(),
        "failed_episodes": sum(t.failed for t in everything),
    }


def _reports(settings: Settings, by_seed: Sequence[Sequence[Trajectory]], samples: int | None) -> dict[str, Any]:
    shares = [by_environment(settings.parts, episodes) for episodes in by_seed]
    return {name: evaluation_report([own[name] for own in shares], samples) for name in settings.parts}


def sentence(report: dict[str, Any]) -> str:
    """Return the report's main numbers as one line."""
    pooled, success = Interval(**report["success_over_tasks"]), report["success"]
    line = f"success {pooled:.3f} over {report['episodes']} episodes of {report['tasks']} tasks"
    if success["low"] < success["high"]:  # several seeds that differ
        line += f"; over {report['seeds']} seeds [{success['low']:.3f}, {success['high']:.3f}]"
    line += "".join(f"; {name} {Interval(**report[name]):.3f}" for name in pass_names(report))
    if report["failed_episodes"]:
        line += f"; {report['failed_episodes']} episodes that failed in the environment count as not solved"
    return line


def table(reports: Mapping[str, dict[str, Any]], of: str = "policy") -> str:
    rates = {"success_over_tasks": "success [95 % interval]"}
    rates |= {name: name for name in pass_names(next(iter(reports.values())))}
    rows = dict[str, dict[str, Any]]()
    for label, report in reports.items():
        rows |= {label: report, **{f"{label}, {name}": own for name, own in report.get("environments", {}).items()}}
    lines = [f"| {of} | {' | '.join(rates.values())} | return | turns |", f"|---{'|---' * len(rates)}|---|---|"]
    for label, report in rows.items():
        means = f"{report['return']['mean']:.3f} | {report['turns']['mean']:.1f}"
        lines.append(f"| {label} | {' | '.join(f'{Interval(**report[rate]):.3f}' for rate in rates)} | {means} |")
    return "\n".join(lines)


def pass_names(report: Mapping[str, Any]) -> list[str]:
    return [name for name in report if name.startswith("pass")]
