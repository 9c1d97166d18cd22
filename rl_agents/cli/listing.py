"""``python run.py list``: what can be named on the command line."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.keys import readers, sections
from rl_agents.cli.parser import Parser
from rl_agents.config.options import option_types, range_text, spoken
from rl_agents.config.presets import Kind, preset_files
from rl_agents.config.schema import recipe_schema
from rl_agents.envs.base import CLASSES, ENVIRONMENTS
from rl_agents.envs.blackbox.agents import AGENTS
from rl_agents.errors import unknown
from rl_agents.installation import as_called, presets_folder
from rl_agents.plugins import ORIGINS
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import JUDGES
from rl_agents.rewards.verifiers import VERIFIERS
from rl_agents.rollout.truncation import RULES

Entry = dict[str, Any]
PRESETS = ("recipes", "sweeps")
FIRST_KINDS = ("algorithms", "environments", "engines", "truncation_rules")
KINDS = (*FIRST_KINDS, "rewards", "verifiers", "judges", "agents", *PRESETS)

ENGINES: list[Entry] = [
    {
        "name": "auto",
        "summary": "vllm where it can run, torch for small models on CPUs; each run prints its choice and the reason",
        "reference": "docs/how-to/scale.md",
    },
    {
        "name": "vllm",
        "summary": "continuous batching and prefix caching, on GPUs or (CPU build) on CPUs",
        "reference": "Kwon et al. 2023, PagedAttention, https://arxiv.org/abs/2309.06180",
    },
    {
        "name": "torch",
        "summary": "a small built-in engine with a KV cache: for small models, --local, and machines without vLLM",
        "reference": "rl_agents/inference/torch_engine.py",
    },
]
NO_TRUNCATION: list[Entry] = [
    {
        "name": "none",
        "summary": "no truncation rule: episodes end by the environment, the turn limit or the context length",
        "reference": "-",
    }
]  # and those of rl_agents.rollout.truncation
ADAPTER: Entry = {
    "name": "gymnasium:<id>",
    "summary": "any Gymnasium environment, or your own as gymnasium:<module>:<class or id>",
    "reference": "docs/environments/gymnasium.md",
}


def build_parser() -> Parser:
    parser = Parser("list")
    parser.add_argument("what", nargs="?", metavar="WHAT", help=f"list only one kind: {', '.join(KINDS)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--keys", action="store_true", help="list the keys of --set and of presets instead")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of recipe files, for editors")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    listing: Any = settings_keys() if args.keys else schema() if args.schema else listed(args.what, args.json)
    if args.json or args.schema:
        print(json.dumps(listing, indent=2))
    elif args.keys:
        print_keys(listing)
    else:
        for kind, entries in listing.items():
            print(f"{kind.replace('_', ' ')}:" + (f" (in {presets_folder() / kind})" if kind in PRESETS else ""))
            width = max((len(entry["name"]) for entry in entries), default=0)
            for entry in entries:
                print(as_called(f"  {entry['name']:{width}}  {entry['summary']}"))
    return 0


def listed(what: str | None, for_programs: bool = False) -> dict[str, list[Entry]]:
    """Return one kind of things, or all but the presets; programs are promised the four kinds of the first version.

    Raises:
        InputError: there is no such kind.
    """
    if what is not None and what not in KINDS:
        raise unknown("kind", what, KINDS)
    if what in PRESETS:
        return {what: presets(typing.cast(Kind, what))}
    everything = catalogue()
    if what is None and for_programs:
        return {kind: everything[kind] for kind in FIRST_KINDS}
    return {what: everything[what]} if what else {kind: entries for kind, entries in everything.items() if entries}


def presets(kind: Kind) -> list[Entry]:
    """Return the recipes or sweeps of the package; a summary is the first sentence of the file's comment."""
    found = []
    for name, path in preset_files(kind).items():
        comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        text = re.sub(r"\s*\n?# *", " ", comment[0] if comment else "").strip()
        found.append(
            {"name": name, "summary": re.split(r"(?<=\.)\s+", text)[0], "reference": f"tune_configs/{kind}/{path.name}"}
        )
    return found


def schema() -> dict[str, Any]:
    choices = {
        "algo": ALGORITHMS,
        "env": [*ENVIRONMENTS, "..."],
        "reward": REWARDS,
        "judge": JUDGES,
        "truncation": [entry["name"] for entry in catalogue()["truncation_rules"]],
    }
    own = {name: spec.options for name, spec in ENVIRONMENTS.items() if dataclasses.is_dataclass(spec.options)}
    return recipe_schema(Settings, choices, own, left_out="env_options")


def catalogue() -> dict[str, list[Entry]]:
    """Return everything that can be named, each with name, summary and reference."""

    return {
        "algorithms": _entries(ALGORITHMS, "algorithm"),
        "environments": [*_entries(ENVIRONMENTS, "environment"), *_classes(), ADAPTER],
        "engines": ENGINES,
        "truncation_rules": [*NO_TRUNCATION, *_entries(RULES, "truncation rule")],
        "rewards": _entries(REWARDS, "reward"),
        "verifiers": _entries(VERIFIERS, "verifier"),
        "judges": _entries(JUDGES, "judge"),
        "agents": _entries(AGENTS, "agent"),
    }


def settings_keys() -> list[Entry]:
    """Return every key of a run, section by section, with all that its declaration says.

    ``readers`` names the algorithms that read it; it is empty for a key of every run.
    """
    defaults, types = Settings(), option_types(Settings)
    return [
        {
            "name": "env.KEY" if field.name == "env_options" else field.name,
            "section": (section.__doc__ or "").strip().rstrip("."),
            "type": "any" if field.name == "env_options" else _type_name(types[field.name]),
            "default": None if field.name == "env_options" else getattr(defaults, field.name),
            "summary": field.metadata["help"],
            "range": range_text(field.metadata),
            "needs": [spoken(need) for need in field.metadata["needs"]],
            "readers": readers(field.name, ALGORITHMS.values()),
        }
        for section, fields in sections(ALGORITHMS.values()).items()
        for field in fields
    ]


def print_keys(entries: Sequence[Entry]) -> None:
    """Print keys by section, what a section's keys have in common beside its name."""
    for section, group in itertools.groupby(entries, key=lambda entry: entry["section"]):
        own = list(group)
        shared = own[0]["readers"] if all(entry["readers"] == own[0]["readers"] for entry in own) else []
        print(f"\n{section}" + (f" ({', '.join(shared)})" if shared else ""))
        for entry in own:
            print(f"  {entry['name']} = {_literal(entry['default'])}")
            print(f"      {as_called(entry['summary'])} ({_details(entry, shared)})")


def _details(entry: Entry, shared: Sequence[str]) -> str:
    needs = f"needs {' and '.join(entry['needs'])}" if entry["needs"] else ""
    users = f"read by {', '.join(entry['readers'])}" if entry["readers"] != shared else ""
    return "; ".join(filter(None, (entry["type"], entry["range"], needs, users)))


def _entries(registry: Mapping[str, Any], kind: str) -> list[Entry]:
    return [
        {"name": item.name, "summary": item.summary + _origin(kind, item.name), "reference": item.reference}
        for item in registry.values()
    ]


def _classes() -> list[Entry]:
    return [
        {"name": name, "summary": full + _origin("environment", name), "reference": full}
        for name, full in CLASSES.items()
    ]


def _origin(kind: str, name: str) -> str:
    return f" ({ORIGINS[kind, name]})" if (kind, name) in ORIGINS else ""


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " | ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is not None:
        return str(kind)
    return {int: "whole number", float: "number", str: "text", bool: "true | false"}.get(kind, str(kind))


def _literal(value: Any) -> str:
    return "" if value is None else json.dumps(value) if not isinstance(value, str) else value
