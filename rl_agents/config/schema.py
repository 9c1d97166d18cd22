"""A JSON schema of options classes, for editors that check and complete recipes: ``run.py list --schema``."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from rl_agents.config.options import option_types, range_text, spoken

Schema = dict[str, Any]
#: Our word for a bound -> JSON schema's.
BOUND_WORDS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum", "below": "exclusiveMaximum"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def properties(options: type, prefix: str = "") -> dict[str, Schema]:
    """Return the keys of an options class by name: type, range, choices, default, and help as description.

    Args:
        prefix: written before each name, such as ``env.``.
    """
    kinds = option_types(options)
    return {f"{prefix}{item.name}": _property(item, kinds[item.name]) for item in dataclasses.fields(options)}


def _property(item: dataclasses.Field[Any], kind: Any) -> Schema:
    bounds = item.metadata
    needs = f"Needs {' and '.join(spoken(need) for need in bounds['needs'])}." if bounds["needs"] else ""
    said = range_text(bounds)
    text = " ".join(filter(None, (f"{bounds['help']}.", f"{said.capitalize()}." if said else "", needs)))
    default = item.default if item.default is not dataclasses.MISSING else typing.cast(Any, item.default_factory)()
    return {"description": text, **of_type(kind, bounds), "default": default}


def of_type(kind: Any, bounds: Mapping[str, Any]) -> Schema:
    """Return the schema of a value that `rl_agents.config.options.coerce` reads as ``kind``, within ``bounds``."""
    if typing.get_origin(kind) is Literal:
        return {"enum": list(typing.get_args(kind))}
    if typing.get_origin(kind) is list:
        (inner,) = typing.get_args(kind)
        several: Schema = {"type": "array", "items": of_type(inner, bounds)}
        return {"anyOf": [several, {"type": "string"}]} if inner is str else several
    if isinstance(kind, types.UnionType):
        return {"anyOf": [of_type(part, bounds) for part in typing.get_args(kind)]}
    if kind is Any:
        return {}
    if typing.get_origin(kind) is dict or kind is dict:
        return {"type": "object"}
    names = {int: "integer", float: "number", bool: "boolean", type(None): "null"}
    if kind not in (int, float):
        return {"type": names.get(kind, ["string", "number"])}  # a text of digits is a number in YAML
    limits = {word: bounds[name] for name, word in BOUND_WORDS.items() if bounds[name] is not None}
    number = {"type": names[kind], **limits}
    return number if bounds["also"] is None else {"anyOf": [number, {"const": bounds["also"]}]}


def when(name: str, value: str, keys: Mapping[str, Schema], prefix: str) -> Schema:
    """Return the rule: where ``name`` is ``value``, the keys that begin with ``prefix`` are these."""
    others = {"not": {"pattern": f"^{prefix.replace('.', '[.]')}"}}
    return {
        "if": {"properties": {name: {"const": value}}, "required": [name]},
        "then": {"properties": dict(keys), "propertyNames": {"anyOf": [others, {"enum": list(keys)}]}},
    }


def recipe_schema(
    settings: type, choices: Mapping[str, Iterable[str]], environments: Mapping[str, type], left_out: str
) -> Schema:
    """Return the schema of a recipe file.

    Args:
        settings: the class of all keys.
        choices: names that a key of text may have, beside others (``gymnasium:ID``) where the list ends with ``...``.
        environments: the classes of the environments' own keys by environment, written ``env.KEY``.
        left_out: the field that holds those in a program.
    """
    keys = {name: found for name, found in properties(settings).items() if name != left_out}
    for name, listed in choices.items():
        keys[name] = {**keys[name], **_named(list(listed))}
    rules = [when("env", name, properties(own, "env."), "env.") for name, own in environments.items()]
    return {
        "$schema": DRAFT,
        "title": "A recipe of rl_agents",
        "type": "object",
        "properties": keys,
        "patternProperties": {"^env[.]": {}},
        "additionalProperties": False,
        "allOf": rules,
    }


def _named(names: list[str]) -> Schema:
    if names[-1] != "...":
        return {"enum": names}
    return {"anyOf": [{"enum": names[:-1]}, {"type": "string", "pattern": ":"}], "type": "string"}
