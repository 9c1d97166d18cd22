"""``python run.py sft``: train the warm-start model, from a small random network or from a pretrained model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.cli.parser import Parser
from rl_agents.cli.train import prepare
from rl_agents.config.loading import merge_flags, refuse_keys
from rl_agents.envs.base import env_keys, env_spec, starter_spec
from rl_agents.errors import InputError
from rl_agents.reporting.outputs import check_writable, nothing_left
from rl_agents.reporting.progress import plain_line
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.warm_start_folder import imitation, starter_dir


def build_parser() -> Parser:
    parser = Parser("sft")
    parser.add_argument("--env", default="guess_numbers", metavar="NAME", help="environment (default: guess_numbers)")
    parser.add_argument("--model", metavar="DIR", help="pretrained model to start from (default: a small network)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: the cache)")
    parser.add_seed()
    parser.add_argument("--iterations", type=int, metavar="N", help="training iterations (default: the environment's)")
    parser.add_settings_flag({"env": "--env", "model": "--model", "seed": "--seed"})
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    if args.output:
        RunFolder.check_free(args.output)
    keys, settings = plan(args)
    options = env_keys(keys)
    if args.model and not args.output:
        raise InputError(f"--model {args.model}: give --output DIR for the trained model")
    if not args.output and (args.seed or not keys.items() <= starter_spec(args.env, options).defaults.items()):
        raise InputError("--seed, --iterations and --set make a model other than the cached one: give --output DIR")
    from rl_agents.trainer.algorithm import AgentAlgorithm
    from rl_agents.trainer.warm_start import build_starter

    output = args.output or starter_dir(args.env, options=options)
    check_writable(output, "the cache")
    with nothing_left(*([output] if args.output else [])):
        build = AgentAlgorithm.from_settings
        build_starter(build, args.env, output, args.seed, keys, _show, args.model or "", settings=settings)
    print(f"warm-start model for {args.env}: {output}", flush=True)
    return 0


def plan(args: argparse.Namespace) -> tuple[dict[str, Any], Settings]:
    """Return the chosen keys, and the resolved settings of the imitation, before demonstrations are collected.

    Raises:
        InputError: no scripted player, an unknown or invalid key, or contradictory keys.
    """
    env_spec(args.env)
    keys = merge_flags(args.set, {"iterations": args.iterations})
    refuse_keys(keys, ("algo",), "the sft command imitates a scripted player; it has no other algorithm")
    Settings.from_dict(keys)  # checks keys and types before slow imports
    starter = starter_spec(args.env, env_keys(keys))
    return keys, prepare(imitation(args.env, starter, keys, args.seed, args.model or ""))


def _show(iteration: int, iterations: int, metrics: dict[str, float]) -> None:
    if iteration == iterations or iteration % max(1, iterations // 10) == 0:
        print(plain_line({"iteration": iteration, **metrics}, iterations), flush=True)
