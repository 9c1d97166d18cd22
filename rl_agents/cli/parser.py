"""An argument parser whose errors are one line and suggest the nearest flag."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called, called


def show_start(notes: TextIO) -> None:
    """Say that seconds of imports come, unless they are done.

    Args:
        notes: standard output, or standard error where results as JSON have that for themselves.
    """
    if "torch" not in sys.modules:
        print("[rl_agents] loading libraries ...", file=notes, flush=True)


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that raises `InputError` instead of printing usage and exiting."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"{'run.py' if called() == 'python run.py' else called()} {command}".strip(),
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def format_help(self) -> str:
        """Return the help, with the command line as it was called."""
        return as_called(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would have printed."""
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse(self, argv: Sequence[str], mixed: bool = False) -> argparse.Namespace:
        """Parse all of ``argv``.

        Args:
            mixed: arguments without a name may stand before, between and after flags.

        Raises:
            InputError: an unknown flag (the nearest is suggested), a stray argument, or a value of the wrong type.
        """
        args, rest = self.parse_known_intermixed_args(argv) if mixed else self.parse_known_args(argv)
        for item in rest:
            if item.startswith("-"):
                flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
                raise unknown("flag", item.partition("=")[0], flags)
        if rest:
            raise InputError(f"unexpected argument '{rest[0]}' (see {self.prog} --help)")
        return args

    def add_settings_flag(self) -> None:
        """Add ``--set key=value ...``."""
        self.add_argument(
            "--set", nargs="+", action="extend", default=[], metavar="key=value",
            help="set keys of the configuration; `run.py list --keys` lists them",
        )  # fmt: skip


#: Command -> (module with ``run(argv) -> exit code``, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("rl_agents.cli.train", "train an agent (the default command)"),
    "eval": ("rl_agents.cli.evaluate", "evaluate checkpoints or models: mean and 95 % interval as JSON"),
    "pivot": ("rl_agents.cli.pivot", "prepare expert traces for PivotRL: extract turns, profile them, keep the pivots"),
    "tune": ("rl_agents.cli.tune", "run a sweep with Ray Tune: table, best preset, plot"),
    "serve": ("rl_agents.cli.serve", "host a trained agent: OpenAI's and Anthropic's APIs, agent sessions, a web page"),
    "push": ("rl_agents.cli.push", "publish a checkpoint with a model card, on the Hugging Face Hub or as a folder"),
    "gateway": ("rl_agents.cli.gateway", "serve a model to agents of any framework; every call is kept as a step"),
    "sft": ("rl_agents.cli.sft", "build an environment's starter model by imitation"),
    "model": ("rl_agents.cli.model", "write a GGUF file's model as a Hugging Face folder to train, and check it"),
    "play": ("rl_agents.cli.play", "show an environment: a random, scripted or human player, its rewards"),
    "view": (
        "rl_agents.cli.view",
        "look at runs: curves, episodes, tokens, trees, why a step got its advantage",
    ),
    "pool": ("rl_agents.cli.pool", "list, read, curate and export what a run sampled"),
    "replay": ("rl_agents.cli.replay", "repeat a run's learning from its pool, and compare it with the record"),
    "new": ("rl_agents.cli.new", "write a plugin to begin with, and its test: an algorithm, environment, judge ..."),
    "list": (
        "rl_agents.cli.listing",
        "list algorithms, environments, engines, recipes, sweeps, keys, or the keys' schema",
    ),
    "completion": ("rl_agents.cli.completion", "print the script with which bash or zsh completes all of this"),
    "doctor": ("rl_agents.cli.doctor", "report what is installed, what will run, and how to fix the rest"),
}


def main_parser() -> Parser:
    """Return the parser of the train command and of ``run.py`` itself: here, where nothing slow is imported."""
    commands = "\n".join(f"  {name:11}{summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        "", "Train an LLM agent with reinforcement learning.",
        epilog=f"commands (run.py COMMAND --help):\n{commands}\n\nexit codes: 0 done, 1 failed, 2 bad input, "
        "130 interrupted after a checkpoint\n\n"
        "--import MODULE, with any command: load algorithms, environments and rewards of your own",
    )  # fmt: skip
    parser.add_argument("--algo", metavar="NAME", help="algorithm (default: grpo); `run.py list` lists them")
    parser.add_argument("--env", metavar="NAME", help="environment (default: guess_numbers); `run.py list` lists them")
    parser.add_argument("--model", metavar="DIR", help="Hugging Face model folder (default: the environment's starter)")
    parser.add_argument("--pool", metavar="PATH", help="learn from the sessions of a pool (file or run folder) alone")
    parser.add_argument("--config", metavar="RECIPE", help="a recipe: its name (`run.py list recipes`), or a YAML file")
    parser.add_settings_flag()
    parser.add_argument("--iterations", type=int, metavar="N", help="total number of training iterations")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: runs/ENV-ALGO-TIME)")
    parser.add_argument(
        "--resume", type=Path, metavar="DIR", help="continue the run in DIR, or from its checkpoint DIR"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed (default: 0)")
    parser.add_argument("--local", action="store_true", help="no actors: everything in this process")
    parser.add_argument("--version", action="store_true", help="print version, commit and the libraries' versions")
    return parser
