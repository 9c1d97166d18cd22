"""``python run.py eval``: how good is a checkpoint or a model, and how sure is that."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rl_agents.cli.parser import Parser
from rl_agents.cli.train import build_algorithm, chosen_settings, make_local, resolve_settings
from rl_agents.errors import InputError
from rl_agents.reporting.evaluation import success_interval
from rl_agents.reporting.run_folder import RunFolder, json_safe, restored_settings
from rl_agents.reporting.statistics import student_interval
from rl_agents.rollout.trajectory import Trajectory
from rl_agents.settings import Settings, parse_assignments

#: An evaluation has no learner actors, never truncates, and needs no judge of training's rewards.
EVALUATION_KEYS = {"num_learners": 0, "truncation": "none", "reward": "environment"}


def build_parser() -> Parser:
    """Return the parser of the eval command."""
    parser = Parser("eval", "Evaluate a policy; the result is JSON on stdout, everything else goes to stderr.")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="a run's folder (newest checkpoint) or a checkpoint"
    )
    parser.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face model folder")
    parser.add_argument("--env", help="environment (default: the checkpoint's, else guess_numbers)")
    parser.add_argument("--episodes", type=int, default=128, help="episodes per seed (default: 128)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, 0 to N-1 (default: 3)")
    parser.add_argument("--temperature", type=float, help="sampling temperature (default: the run's eval_temperature)")
    parser.add_argument("--split", default="test", choices=("test", "train"), help="task set (default: test)")
    parser.add_argument("--local", action="store_true", help="no actors: everything in this process")
    parser.add_argument("--json", action="store_true", help="only the JSON, on one line")
    parser.add_settings_flag()
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the eval command; return its exit code."""
    args = build_parser().parse(argv)
    settings, model = evaluation_settings(args)
    started = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):  # actors' logs must not mix with the JSON
        algo = build_algorithm(settings)
        try:
            temperature = settings.eval_temperature
            by_seed = [
                algo.evaluate_policy(split=args.split, episodes=args.episodes, temperature=temperature, seed=seed)
                for seed in range(args.seeds)
            ]
            engine = algo.engine_description
        finally:
            algo.stop()
    report = {
        "env": settings.env,
        "model": str(model),
        "split": args.split,
        "temperature": temperature,
        "engine": engine,
        **evaluation_report(by_seed),
        "seconds": round(time.monotonic() - started, 2),
    }
    print(json.dumps(json_safe(report), indent=None if args.json else 2))
    if not args.json:
        print(sentence(report), file=sys.stderr)
    return 0


def evaluation_settings(args: argparse.Namespace) -> tuple[Settings, Path]:
    """Resolve what to evaluate; nothing is built.

    Returns:
        The settings and the model folder.

    Raises:
        InputError: contradictory flags, missing folder, unknown key or environment.
    """
    if (args.checkpoint is None) == (args.model is None):
        raise InputError("eval needs either --checkpoint DIR or --model DIR")
    for name in ("episodes", "seeds"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} {getattr(args, name)}: must be at least 1")
    flags = parse_assignments(args.set)
    flags |= {"env": args.env} if args.env else {}
    flags |= {} if args.temperature is None else {"eval_temperature": args.temperature}
    if args.checkpoint:
        checkpoint = args.checkpoint
        if not (checkpoint / "hf").is_dir():
            checkpoint = RunFolder.locate(checkpoint)[2]
        model, settings = checkpoint / "hf", restored_settings(checkpoint / "config.yaml")
        settings.update(flags)
    else:
        model, settings = args.model, chosen_settings({}, flags, None)
    if not (model / "config.json").is_file():
        raise InputError(f"{model}: no Hugging Face model there (no config.json)")
    settings.update({"model": str(model), **EVALUATION_KEYS})
    if settings.eval_temperature < 0:
        raise InputError(f"temperature={settings.eval_temperature}: must not be negative")
    if args.local:
        make_local(settings, flags)
    return resolve_settings(settings), model


def evaluation_report(by_seed: Sequence[Sequence[Trajectory]]) -> dict[str, Any]:
    """Summarise the episodes of every seed.

    ``success`` is the mean over the seeds' means with its Student-t interval (how much a repetition would
    differ); ``success_wilson`` pools all episodes.
    """
    everything = [t for episodes in by_seed for t in episodes]
    rates = [success_interval(episodes).mean for episodes in by_seed]
    returns = student_interval([fmean(t.episode_return for t in episodes) for episodes in by_seed])
    turns = student_interval([fmean(len(t.steps) for t in episodes) for episodes in by_seed])
    return {
        "episodes": len(everything),
        "seeds": len(by_seed),
        "success": {**student_interval(rates).clipped(0.0, 1.0).to_dict(), "per_seed": rates},
        "success_wilson": success_interval(everything).to_dict(),
        "return": returns.to_dict(),
        "turns": turns.to_dict(),
        "failed_episodes": sum(t.failed for t in everything),
    }


def sentence(report: dict[str, Any]) -> str:
    """Return the report's main figures as one line."""
    pooled, success = report["success_wilson"], report["success"]
    line = (
        f"success {pooled['mean']:.3f} [{pooled['low']:.3f}, {pooled['high']:.3f}] over {report['episodes']} episodes"
    )
    if report["seeds"] > 1:
        line += f"; over {report['seeds']} seeds [{success['low']:.3f}, {success['high']:.3f}]"
    if report["failed_episodes"]:
        line += f"; {report['failed_episodes']} episodes broken by the environment count as not solved"
    return line
