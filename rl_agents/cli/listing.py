"""``python run.py list``: names that the command line accepts."""

from __future__ import annotations

import itertools
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS, KEYS, Settings, readers
from rl_agents.cli.parser import Parser
from rl_agents.config.loading import Kind, preset_files
from rl_agents.config.options import keys_of
from rl_agents.envs.base import CLASSES, ENVIRONMENTS, FAMILIES
from rl_agents.errors import InputError, unknown
from rl_agents.inference.engines import ENGINES
from rl_agents.installation import as_called, presets_folder
from rl_agents.plugins import ORIGINS
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import JUDGES
from rl_agents.rewards.verifiers import VERIFIERS
from rl_agents.rollout.truncation import RULES

Entry = dict[str, Any]
PRESETS = ("recipes", "sweeps")
FIRST_KINDS = ("algorithms", "environments", "engines", "truncation_rules")
KINDS = (*FIRST_KINDS, "rewards", "verifiers", "judges", *PRESETS)

#: Besides `rl_agents.inference.engines` and `rl_agents.rollout.truncation`.
AUTO_SUMMARY = "vllm where it can run, torch for small models on CPUs; each run prints its choice and the reason"
AUTO: Entry = {"name": "auto", "summary": AUTO_SUMMARY, "reference": "docs/how-to/scale.md"}
NONE_SUMMARY = "no truncation rule: episodes end by the environment, the turn limit or the context length"
NO_TRUNCATION: Entry = {"name": "none", "summary": NONE_SUMMARY, "reference": "-"}


def build_parser() -> Parser:
    parser = Parser("list")
    parser.add_argument("what", nargs="?", metavar="WHAT", help=f"list only one kind: {', '.join(KINDS)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--keys", action="store_true", help="list the keys of --set and of recipes instead")
    parser.add_argument(
        "--algo", metavar="NAME", help="with --keys: only the keys of this algorithm, with its defaults"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of recipe files, for editors")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    if args.algo and not args.keys:
        raise InputError("--algo needs --keys")
    if args.what and (args.keys or args.schema):
        raise InputError(f"list {args.what}: --keys and --schema are no lists of one kind; leave one of them out")
    listing: Any = settings_keys(args.algo) if args.keys else schema() if args.schema else listed(args.what, args.json)
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
    """Return the entries of one kind, or of all kinds except presets (only `FIRST_KINDS` for programs).

    Raises `InputError`: unknown kind.
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
    """Return the package's recipes or sweeps; the summary is the first sentence of the file's comment."""
    found = []
    for name, path in preset_files(kind).items():
        comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        text = re.sub(r"\s*\n?# *", " ", comment[0] if comment else "").strip()
        found.append(
            {"name": name, "summary": re.split(r"(?<=\.)\s+", text)[0], "reference": f"tune_configs/{kind}/{path.name}"}
        )
    return found


def schema() -> dict[str, Any]:
    """Return the JSON schema of a recipe file; an environment's keys are ``env.KEY``."""
    properties = {name: key.schema() for name, key in KEYS.items()}
    choices: dict[str, Iterable[str]] = {
        "algo": ALGORITHMS,
        "reward": REWARDS,
        "judge": JUDGES,
        "engine": ["auto", *ENGINES],
    }
    choices["truncation"] = [entry["name"] for entry in catalogue()["truncation_rules"]]
    for name, listed in choices.items():
        properties[name]["enum"] = list(listed)
    # or PREFIX:REST
    properties["env"]["anyOf"] = [{"enum": list(ENVIRONMENTS)}, {"pattern": ":"}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recipe of rl_agents",
        "type": "object",
        "properties": properties,
        "patternProperties": {"^env[.]": {}},
        "additionalProperties": False,
        "allOf": [_of_environment(name, spec.options) for name, spec in ENVIRONMENTS.items()],
    }


def _of_environment(name: str, options: type) -> dict[str, Any]:
    """Return the schema rule for the keys ``env.KEY`` of environment ``name``."""
    own = {f"env.{key.name}": key.schema() for key in keys_of(options).values()}
    return {
        "if": {"properties": {"env": {"const": name}}, "required": ["env"]},
        "then": {
            "properties": own,
            "propertyNames": {"anyOf": [{"not": {"pattern": "^env[.]"}}, {"enum": list(own)}]},
        },
    }


def catalogue() -> dict[str, list[Entry]]:
    """Return all entries by kind, each with name, summary and reference."""

    return {
        "algorithms": _entries(ALGORITHMS, "algorithm"),
        "environments": [*_entries(ENVIRONMENTS, "environment"), *_classes(), *_entries(FAMILIES, "family")],
        "engines": [AUTO, *_entries(ENGINES, "engine")],
        "truncation_rules": [NO_TRUNCATION, *_entries(RULES, "truncation rule")],
        "rewards": _entries(REWARDS, "reward"),
        "verifiers": _entries(VERIFIERS, "verifier"),
        "judges": _entries(JUDGES, "judge"),
    }


def settings_keys(algo: str | None = None) -> list[Entry]:
    """Return every key of a run, by section, with its declaration.

    ``readers`` are the algorithms that read it; empty for a key of every run, and with ``algo``.

    Args:
        algo: only keys that this algorithm reads, with its defaults.

    Raises `InputError`: unknown algorithm.
    """
    if algo is not None and algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)
    settings = Settings()
    if algo is not None:
        settings.set_defaults({"algo": algo, **ALGORITHMS[algo].defaults_of(settings)})
    return [
        {
            "name": key.name,
            "section": key.section,
            "type": _type_name(key.kind),
            "default": getattr(settings, key.name),
            "summary": key.help,
            "range": key.range,
            "needs": [str(need) for need in key.needs],
            "readers": users if algo is None else [],
        }
        for key in KEYS.values()
        if not (users := readers(key.name)) or algo in (None, *users)
    ]


def print_keys(entries: Sequence[Entry]) -> None:
    """Print keys by section; a section's title names the algorithms if all of its keys share them."""
    for section, group in itertools.groupby(entries, key=lambda entry: entry["section"]):
        own = list(group)
        shared = own[0]["readers"] if all(entry["readers"] == own[0]["readers"] for entry in own) else []
        print(f"\n{section}" + (f" ({', '.join(shared)})" if shared else ""))
        for entry in own:
            print(f"  {entry['name']} = {_literal(entry['default'])}")
            print(f"      {as_called(entry['summary'])} ({_details(entry, shared)})")
    print("\nenv.KEY: keys of the environment (docs/environments)")


def _details(entry: Entry, shared: Sequence[str]) -> str:
    needs = f"needs {' and '.join(entry['needs'])}" if entry["needs"] else ""
    return "; ".join(filter(None, (entry["type"], entry["range"], needs, _users(entry["readers"], shared))))


def _users(readers: Sequence[str], shared: Sequence[str]) -> str:
    """Return which algorithms read a key, or do not if these are fewer; empty if the title has them."""
    others = [name for name in ALGORITHMS if name not in readers]
    if readers == shared:
        return ""
    return f"not read by {', '.join(others)}" if len(others) < len(readers) else f"read by {', '.join(readers)}"


def _entries(registry: Mapping[str, Any], kind: str) -> list[Entry]:
    return [
        {"name": item.name, "summary": item.summary + _origin(kind, name), "reference": item.reference}
        for name, item in registry.items()
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
