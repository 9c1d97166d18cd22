"""Reading settings: ``--set key=value`` items, and recipe files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

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
        except (yaml.YAMLError, ValueError, RecursionError):  # `!!int x` is a ValueError
            raise InputError(f"--set {item}: the value is not valid YAML") from None
    return result


class _Loader(yaml.SafeLoader):
    """Refuses mappings in which a key stands twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key '{name.value}' stands twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def load_recipe(path: str) -> dict[str, Any]:
    """Read a recipe file: a flat YAML mapping of keys.

    Raises:
        InputError: missing file, broken YAML or a key that stands twice (with its line), or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.load(file, _Loader)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (yaml.YAMLError, ValueError, RecursionError, IsADirectoryError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        plain = isinstance(error, ValueError) and not isinstance(error, UnicodeDecodeError)
        reason = getattr(error, "problem", None) or (str(error) if plain else "not readable as text")
        raise InputError(f"{path}{where}: broken YAML: {reason}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping of keys to values is needed, found {type(data).__name__}")
    return {str(name): value for name, value in data.items()}
