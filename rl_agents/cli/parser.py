"""An argument parser whose errors are one line and suggest the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called, called


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
