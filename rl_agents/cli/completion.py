"""``rl-agents completion bash``: a script that completes commands, flags, names and keys (made by shtab)."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

import shtab

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS, KEYS
from rl_agents.cli.listing import KINDS
from rl_agents.cli.parser import COMMANDS, Parser
from rl_agents.config.loading import preset_files
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.installation import SCRIPT

SHELLS = ("bash", "zsh")
#: Arguments that name files or folders.
PATHS = {
    "model": shtab.DIR, "pool": shtab.FILE, "output": shtab.FILE, "resume": shtab.DIR, "checkpoint": shtab.DIR,
    "runs": shtab.DIR, "run": shtab.DIR, "export": shtab.DIR, "traces": shtab.FILE,
}  # fmt: skip


def build_parser() -> Parser:
    parser = Parser(
        "completion",
        epilog=f"bash: {SCRIPT} completion bash > ~/.local/share/bash-completion/completions/{SCRIPT}\n"
        f"zsh:  {SCRIPT} completion zsh > DIR/_{SCRIPT}, with DIR in $fpath",
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def run(argv: Sequence[str]) -> int:
    print(shtab.complete(whole_parser(), shell=build_parser().parse(argv).shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Return the train command's parser with all other commands as subparsers."""
    whole = _parser_of("train")
    whole.prog = SCRIPT
    below: Any = whole.add_subparsers(parser_class=cast(Any, lambda prog, command: _parser_of(command)))
    for name, (_, summary) in COMMANDS.items():
        below.add_parser(name, help=summary, command=name)
    return whole


def _parser_of(command: str) -> argparse.ArgumentParser:
    """Return a command's parser with completions of its values; commands with actions only complete files."""
    build = getattr(importlib.import_module(COMMANDS[command][0]), "build_parser", None)
    parser: argparse.ArgumentParser = build() if build else Parser(command)
    for action in parser._actions:
        if action.choices is None and (complete := _values(action.dest, command)):
            action.complete = complete  # type: ignore[attr-defined]  # where shtab looks
    return parser


def _values(name: str, command: str) -> Any:
    """Return shtab's completion of the argument ``name``; None: unknown."""
    words: dict[str, Iterable[str]] = {
        "algo": ALGORITHMS, "env": ENVIRONMENTS, "set": [f"{key}=" for key in KEYS],
        "config": preset_files("sweeps" if command == "tune" else "recipes"), "sweep": preset_files("sweeps"),
        "what": KINDS,
    }  # fmt: skip
    if name not in words:
        return PATHS.get(name)
    listed, function = " ".join(words[name]), f"_rl_agents_{name}_{command}"
    files = 'compgen -f -- "$1"' if name in ("config", "sweep") else ":"
    return {
        "bash": function,
        "zsh": f"({listed})",
        "preamble": {"bash": f'{function}() {{ compgen -W "{listed}" -- "$1"; {files}; }}'},
    }
