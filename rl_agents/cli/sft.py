"""``python run.py sft``: build the small model that an environment's training starts from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rl_agents.algorithms import Settings
from rl_agents.cli.parser import Parser
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError
from rl_agents.reporting.outputs import nothing_left
from rl_agents.reporting.progress import plain_line
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.settings import parse_assignments


def build_parser() -> Parser:
    """Return the parser of the sft command."""
    parser = Parser("sft", "Build an environment's starter model by imitating its scripted demonstrator.")
    parser.add_argument("--env", default="guess_numbers", metavar="NAME", help="environment (default: guess_numbers)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: the cache)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    parser.add_settings_flag()
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the sft command; return its exit code."""
    args = build_parser().parse(argv)
    env_spec(args.env)
    assignments = parse_assignments(args.set)
    for name in ("algo", "env", "model", "seed"):
        if name in assignments:
            raise InputError(f"--set {name}={assignments[name]}: the sft command has a flag for it, or does not use it")
    Settings.from_dict(assignments)  # unknown keys and wrong types, before anything is built
    if args.output:
        RunFolder.check_free(args.output)
    elif args.seed or assignments:
        raise InputError("--seed and --set make another model than the cached one: choose a folder with --output")
    from rl_agents.core.algorithm import AgentAlgorithm
    from rl_agents.core.starter import build_starter, starter_dir

    output = args.output or starter_dir(args.env)
    with nothing_left(*([output] if args.output else [])):
        build_starter(AgentAlgorithm.from_settings, args.env, output, args.seed, set=assignments, on_iteration=_show)
    print(f"starter model of {args.env}: {output}", flush=True)
    return 0


def _show(iteration: int, iterations: int, metrics: dict[str, float]) -> None:
    if iteration == iterations or iteration % max(1, iterations // 10) == 0:
        print(plain_line({"iteration": iteration, **metrics}, iterations), flush=True)
