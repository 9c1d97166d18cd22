"""Reading settings: values by type, ``--set key=value`` items, and recipe files."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

import yaml

from rl_agents.errors import InputError


def context_window(context: str) -> int | None:
    """Return n of ``window(n)``, or None for ``append``.

    Raises:
        InputError: neither of both.
    """
    if context == "append":
        return None
    match = re.fullmatch(r"window\((\d+)\)", context)
    if not match:
        raise InputError(f"context='{context}': valid: append, window(n)")
    return int(match[1])


def coerce(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``; numbers that YAML reads as text (1e-4) are accepted."""
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise InputError(f"{name}='{value}': valid: {', '.join(map(str, typing.get_args(kind)))}")
        return value
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{name}='{value}': a list is needed, such as [0.9, 0.95]")
        return [coerce(name, item, typing.get_args(kind)[0]) for item in value]
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if kind is bool:
        if not isinstance(value, bool):
            raise InputError(f"{name}='{value}': true or false is needed")
        return value
    try:
        if kind is int and (isinstance(value, bool) or float(value) != int(float(value))):
            raise ValueError
        return int(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError):
        needed = {int: "a whole number", float: "a number", str: "text"}[kind]
        raise InputError(f"{name}='{value}': {needed} is needed") from None


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """Parse ``--set key=value`` items; values are read as YAML.

    Raises:
        InputError: an item without ``=`` or a value that is not YAML.
    """
    result: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {item}: write it as key=value")
        try:
            result[name.strip()] = yaml.safe_load(text) if text else ""
        except yaml.YAMLError:
            raise InputError(f"--set {item}: the value is not valid YAML") from None
    return result


def load_recipe(path: str) -> dict[str, Any]:
    """Read a recipe file: a flat YAML mapping of keys.

    Raises:
        InputError: missing file, broken YAML (with its line), or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError, IsADirectoryError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "not readable as text"
        raise InputError(f"{path}{where}: broken YAML: {reason}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping of keys to values is needed, found {type(data).__name__}")
    return {str(name): value for name, value in data.items()}
