"""Reading settings: ``--set key=value`` items, and recipe files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from rl_agents.config.aliases import canonical
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
            result[name.strip()] = as_written(text, yaml.load(text, _Loader)) if text else ""
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # `!!int x` is a ValueError
            problem = error.problem if isinstance(error, yaml.constructor.ConstructorError) else ""
            raise InputError(f"--set {item}: the value is not valid YAML{problem and f': {problem}'}") from None
    return canonical(result)


def as_written(text: str, value: Any) -> Any:
    """Return a number or truth value that YAML would write otherwise as the text that it is: text keys keep it.

    >>> as_written("1.10", 1.1), as_written("12:30", 750), as_written("on", True), as_written("0.5", 0.5)
    ('1.10', '12:30', 'on', 0.5)
    """
    text = text.strip()
    if isinstance(value, bool):
        return value if text.lower() in ("true", "false") else text
    return text if isinstance(value, int | float) and str(value) != text and text[:1] not in "!&" else value


class _Loader(yaml.SafeLoader):
    """Refuses mappings in which two keys are equal, of which YAML would take the last, and keys without a value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                continue
            key = self.construct_object(name)
            problem = f"key '{name.value}' stands twice" if key in seen else ""
            if node.flow_style and isinstance(value, yaml.ScalarNode) and not value.value and value.style is None:
                problem = f"'{name.value}' has no value; write a space after the colon"
            if problem:
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=name.start_mark)
            seen.add(key)
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
    return canonical({str(name): value for name, value in data.items()})
