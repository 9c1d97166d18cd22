"""An argument parser whose errors are one line and suggest the nearest flag."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TextIO

from rl_agents.config.aliases import ALIASES
from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called, called


def show_start(notes: TextIO) -> None:
    """Report that libraries are loading, unless they are loaded.

    Args:
        notes: standard output, or standard error for commands that print JSON.
    """
    if "torch" not in sys.modules:
        print("[rl_agents] loading libraries ...", file=notes, flush=True)


class _Once(argparse.Action):
    """Stores a flag's value as argparse does, and refuses a second one that differs."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if self.dest in parser.given and parser.given[self.dest] != values:
            raise InputError(f"{option_string} is given twice: {parser.given[self.dest]} and {values}")
        parser.given[self.dest] = values
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that raises `InputError` instead of printing usage and exiting.

    Args:
        command: a name of `COMMANDS`, whose summary is the default description.
    """

    def __init__(self, command: str, description: str = "", epilog: str = "") -> None:
        summary = COMMANDS[command][1] if command in COMMANDS else ""
        super().__init__(
            prog=f"{'run.py' if called() == 'python run.py' else called()} {command}".strip(),
            description=description or f"{summary[:1].upper()}{summary[1:]}.",
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._least: dict[str, int] = {}
        self._flags: Mapping[str, str] = {}
        self._own: Collection[str] = ()
        self.given: dict[str, Any] = {}
        self.register("action", None, _Once)

    def format_help(self) -> str:
        """Return the help text, with the command as it was called."""
        return as_called(super().format_help())

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse(self, argv: Sequence[str], mixed: bool = False) -> argparse.Namespace:
        """Parse all of ``argv``.

        Args:
            mixed: positional arguments may come before, between and after flags.

        Raises:
            InputError: an unknown flag (with the nearest one), an unexpected argument, or an empty or invalid value.
        """
        for before, word in pairwise(["", *argv]):
            if not word or (word.startswith("--") and word.endswith("=")):
                raise InputError(f"{word[:-1] or before} '': the value is empty; is a shell variable unset?".strip())
        self.given.clear()
        args, rest = self.parse_known_intermixed_args(argv) if mixed else self.parse_known_args(argv)
        for flag, least in self._least.items():
            value = getattr(args, flag[2:].replace("-", "_"))
            if value is not None and value < least:
                raise InputError(f"{flag} {value}: must be at least {least}")
        for item in rest:
            if item.startswith("-"):
                name, _, value = item.lstrip("-").replace("-", "_").partition("=")
                if "--set" in self._option_string_actions and self._is_key(name):
                    raise InputError(f"{item} is no flag but a key: write --set {name}={value or 'VALUE'}")
                flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
                raise unknown("flag", item.partition("=")[0], flags)
        if rest:
            raise InputError(f"unexpected argument '{rest[0]}' (see {self.prog} --help)")
        for item in getattr(args, "set", ()):
            self._refuse_flag(item)
        return args

    def _is_key(self, name: str) -> bool:
        from rl_agents.algorithms import KEYS  # not before it is needed: this module has fast imports

        return name in {*KEYS, *ALIASES, *self._own}

    def _refuse_flag(self, item: str) -> None:
        """Raise `InputError` if a ``key=value`` of ``--set`` means a flag, which the message names."""
        name, _, value = item.partition("=")
        flag = self._flags.get(name, f"--{name.replace('_', '-')}")
        action = self._option_string_actions.get(flag)
        if action and (name in self._flags or not self._is_key(name)):
            raise InputError(f"--set {item}: write {flag}{'' if action.nargs == 0 else f' {value}'}")

    def add_count(self, flag: str, default: int | None, help: str, least: int = 1, metavar: str = "N") -> None:
        """Add a flag for a whole number of at least ``least``; the help text ends with its default."""
        ending = "" if default is None or "default" in help else f" (default: {default})"
        self.add_argument(flag, type=int, default=default, metavar=metavar, help=help + ending)
        self._least[flag] = least

    def add_seed(self) -> None:
        self.add_count("--seed", 0, "random seed", least=0)

    def add_settings_flag(self, flags: Mapping[str, str] = MappingProxyType({}), own: Collection[str] = ()) -> None:
        """Add ``--set`` for a run's keys, except those that ``flags`` give instead, and for a command's own."""
        self._flags, self._own = flags, own
        self.add_argument(
            "--set", nargs="+", action="extend", default=[], metavar="key=value",
            help="set configuration keys; `run.py list --keys` lists them",
        )  # fmt: skip


#: Command -> (module with ``run(argv) -> exit code``, summary).
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("rl_agents.cli.train", "train an agent (the default command)"),
    "eval": ("rl_agents.cli.evaluate", "evaluate checkpoints or models: mean success with its 95 % interval, as JSON"),
    "pivot": ("rl_agents.cli.pivot", "prepare expert traces for PivotRL: extract turns, profile them, keep the pivots"),
    "tune": ("rl_agents.cli.tune", "run a hyperparameter sweep with Ray Tune: results table, best recipe"),
    "serve": ("rl_agents.cli.serve", "serve a trained agent: OpenAI and Anthropic APIs, agent sessions, a web page"),
    "gateway": (
        "rl_agents.cli.gateway",
        "serve a model to agents of any framework and record every call as a training step",
    ),
    "sft": ("rl_agents.cli.sft", "train an environment's warm-start model by imitating its scripted demonstrator"),
    "model": ("rl_agents.cli.model", "convert a GGUF file into a Hugging Face model folder, and check it"),
    "view": ("rl_agents.cli.view", "browse runs in a web page: curves, episodes, tokens, search trees, advantages"),
    "pool": ("rl_agents.cli.pool", "list, read and export a run's trajectories"),
    "rescore": ("rl_agents.cli.rescore", "score a run's episodes with another reward: what changes in its advantages"),
    "list": ("rl_agents.cli.listing", "list algorithms, environments, engines, recipes, sweeps, or configuration keys"),
    "doctor": (
        "rl_agents.cli.doctor",
        "report what is installed and what will run, and how to fix problems; or check a recipe",
    ),
}


def main_parser() -> Parser:
    """Return the parser of the train command and of ``run.py`` itself, in this module with fast imports."""
    commands = "\n".join(f"  {name:11}{summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        "", f"Train an LLM agent with reinforcement learning. First run: {called()} --algo grpo --local --iterations 2",
        epilog=f"commands (run.py COMMAND --help):\n{commands}\n\nexit codes: 0 done, 1 failed, 2 bad input, "
        "130 interrupted after a checkpoint\n\n"
        "--import MODULE, with any command: load your own algorithms, environments and rewards",
    )  # fmt: skip
    parser.add_argument("--algo", metavar="NAME", help="algorithm (default: grpo); `run.py list` lists them")
    parser.add_argument("--env", metavar="NAME", help="environment (default: guess_numbers); `run.py list` lists them")
    parser.add_argument("--model", metavar="DIR", help="Hugging Face model (default: a small warm-start model)")
    parser.add_argument("--pool", metavar="PATH", help="train only on recorded sessions: a pool file or run folder")
    parser.add_argument("--config", metavar="RECIPE", help="a recipe by name (`run.py list recipes`) or a YAML file")
    parser.add_settings_flag()
    parser.add_argument("--iterations", type=int, metavar="N", help="total number of training iterations")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: runs/ENV-ALGO-TIME)")
    parser.add_argument(
        "--resume", type=Path, metavar="DIR", help="continue the run in DIR, or from its checkpoint DIR"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed (default: 0)")
    parser.add_argument("--local", action="store_true", help="run in a single process, without Ray actors")
    parser.add_argument("--version", action="store_true", help="print the version, commit and library versions")
    return parser
