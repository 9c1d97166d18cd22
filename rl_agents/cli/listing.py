"""``python run.py list``: what can be named on the command line."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS
from rl_agents.cli.parser import Parser
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.rollout.truncation_rules import RULES
from rl_agents.settings import FIELD_TYPES, HELP, Settings

Entry = dict[str, Any]

ENGINES: list[Entry] = [
    {
        "name": "auto",
        "summary": "vllm where it can run, else torch; a run prints which and why",
        "reference": "`run.py doctor`",
    },
    {
        "name": "vllm",
        "summary": "continuous batching and prefix cache; CUDA build on GPUs, CPU build elsewhere",
        "reference": "Kwon et al. 2023, PagedAttention, https://arxiv.org/abs/2309.06180",
    },
    {
        "name": "torch",
        "summary": "a readable KV-cache engine: for --local, for machines without vLLM, and as vLLM's reference",
        "reference": "rl_agents/engines/torch_engine.py",
    },
]
NO_TRUNCATION: list[Entry] = [
    {
        "name": "none",
        "summary": "episodes end by the environment's rules, the turn limit or the context length",
        "reference": "-",
    }
]  # and those of rl_agents.rollout.truncation_rules
ADAPTER: Entry = {
    "name": "gymnasium:<id>",
    "summary": "any text environment registered with gymnasium",
    "reference": "https://gymnasium.farama.org/api/env",
}


def build_parser() -> Parser:
    """Return the parser of the list command."""
    parser = Parser("list", "List algorithms, environments, engines and truncation rules, or all keys.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--keys", action="store_true", help="list the keys of --set and of presets instead")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the list command; return its exit code."""
    args = build_parser().parse(argv)
    listing: Any = settings_keys() if args.keys else catalogue()
    if args.json:
        print(json.dumps(listing, indent=2))
    elif args.keys:
        for entry in listing:
            print(f"{entry['name']} = {_literal(entry['default'])}\n    {entry['summary']} ({entry['type']})")
    else:
        for kind, entries in listing.items():
            print(f"{kind.replace('_', ' ')}:")
            width = max(len(entry["name"]) for entry in entries)
            for entry in entries:
                print(f"  {entry['name']:{width}}  {entry['summary']}")
    return 0


def catalogue() -> dict[str, list[Entry]]:
    """Return everything that can be named, each with name, summary and reference."""
    return {
        "algorithms": _entries(ALGORITHMS),
        "environments": [*_entries(ENVIRONMENTS), ADAPTER],
        "engines": ENGINES,
        "truncation_rules": [*NO_TRUNCATION, *_entries(RULES)],
    }


def settings_keys() -> list[Entry]:
    """Return every settings key with its type, default and explanation, in the order of `Settings`."""
    defaults = Settings()
    return [
        {"name": name, "type": _type_name(FIELD_TYPES[name]), "default": getattr(defaults, name), "summary": HELP[name]}
        for name in HELP
        if name != "env_options"
    ] + [{"name": "env.KEY", "type": "any", "default": None, "summary": HELP["env_options"]}]


def _entries(registry: Mapping[str, Any]) -> list[Entry]:
    return [{"name": item.name, "summary": item.summary, "reference": item.reference} for item in registry.values()]


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " | ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is not None:
        return str(kind)
    return {int: "whole number", float: "number", str: "text", bool: "true | false"}.get(kind, str(kind))


def _literal(value: Any) -> str:
    return "" if value is None else json.dumps(value) if not isinstance(value, str) else value
