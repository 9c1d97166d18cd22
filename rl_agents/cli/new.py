"""``python run.py new environment my_game``: write a plugin skeleton and its test, which passes as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_agents.algorithms import ALGORITHMS
from rl_agents.cli import skeletons
from rl_agents.cli.parser import Parser
from rl_agents.envs.base import is_environment
from rl_agents.envs.blackbox.agents import AGENTS
from rl_agents.errors import InputError
from rl_agents.installation import called_here
from rl_agents.reporting.trackers import TRACKERS
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import JUDGES
from rl_agents.rewards.verifiers import VERIFIERS


@dataclass(frozen=True)
class Kind:
    """A kind of plugin.

    Attributes:
        text, test: templates of the file and its test.
        flags: flags of ``run.py`` that use it.
        taken: whether a name is already registered.
    """

    text: str
    test: str
    flags: str
    taken: Callable[[str], bool]


KINDS = {
    "algorithm": Kind(skeletons.ALGORITHM, skeletons.ALGORITHM_TEST, "--algo {name}", ALGORITHMS.__contains__),
    "environment": Kind(skeletons.ENVIRONMENT, skeletons.ENVIRONMENT_TEST, "--env {name}", is_environment),
    "reward": Kind(skeletons.REWARD, skeletons.REWARD_TEST, "--set reward={name}", REWARDS.__contains__),
    "verifier": Kind(
        skeletons.VERIFIER, skeletons.VERIFIER_TEST, "--algo pivotrl --env pivot --set env.verifier={name}",
        VERIFIERS.__contains__,
    ),
    "judge": Kind(
        skeletons.JUDGE, skeletons.JUDGE_TEST, "--env long_form_qa --set reward=prs prs_form=long judge={name}",
        JUDGES.__contains__,
    ),
    "agent": Kind(
        skeletons.AGENT, skeletons.AGENT_TEST,
        "--env blackbox --set env.agent={name} env.tasks=tasks.jsonl model=DIR", AGENTS.__contains__,
    ),
    "tracker": Kind(skeletons.TRACKER, skeletons.TRACKER_TEST, "--set trackers=[{name}]", TRACKERS.__contains__),
}  # fmt: skip


def build_parser() -> Parser:
    parser = Parser("new", epilog="NAME.py is the plugin, and test_NAME.py its test.")
    parser.add_argument("kind", choices=tuple(KINDS), metavar="KIND", help=f"what to write: {', '.join(KINDS)}")
    parser.add_argument("name", metavar="NAME", help="its name: lowercase letters, digits and _")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Write a plugin and its test.

    Raises:
        InputError: not a module name, a registered name, or an existing file.
    """
    args = build_parser().parse(argv)
    name, kind = args.name, KINDS[args.kind]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise InputError(f"'{name}' is not a module name: use lowercase letters, digits and _, starting with a letter")
    if kind.taken(name):
        raise InputError(f"the {args.kind} '{name}' already exists: choose another name")
    files = {args.folder / f"{name}.py": kind.text, args.folder / f"test_{name}.py": kind.test}
    for path in files:
        if path.exists():
            raise InputError(f"{path} already exists and was left unchanged")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=name), encoding="utf-8")
    first, second = files
    place = "" if args.folder == Path() else f"cd {args.folder} && "
    print(f"wrote {first} and {second}\n  test it: {place}python -m pytest {second.name}")
    print(f"  use it:  {called_here()} --import {first} {kind.flags.format(name=name)}")
    return 0
