"""Read settings: ``--set key=value`` items, recipe files, and recipes and sweeps of the package by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from rl_agents.config.aliases import canonical
from rl_agents.errors import InputError, similar
from rl_agents.installation import presets_folder


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """Parse ``--set key=value`` items; values are read as YAML.

    Raises `InputError`: an item without ``=``, a value that is not YAML, or a key with two values.
    """
    result: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {item}: write it as key=value")
        try:
            value = yaml.load(text, _Loader) if text else ""
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # `!!int x` is a ValueError
            problem = error.problem if isinstance(error, yaml.constructor.ConstructorError) else ""
            raise InputError(f"--set {item}: the value is not valid YAML{problem and f': {problem}'}") from None
        if (name := name.strip()) in result and result[name] != value:
            raise InputError(f"--set gives {name} twice: {result[name]} and {value}")
        result[name] = value
    return canonical(result)


def merge_flags(items: Iterable[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``--set`` items with flags that set keys; None and False mean that a flag is not given.

    Raises `InputError`: both give a key different values; or as `parse_assignments`.
    """
    keys = parse_assignments(items)
    for name, value in flags.items():
        if value is None or value is False:
            continue
        if name in keys and keys[name] != value:
            raise InputError(f"{name} is given twice: by its flag ({value}) and by --set {name}={keys[name]}")
        keys[name] = value
    return keys


def refuse_keys(keys: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    """Raise `InputError` if one of ``names`` is among ``keys``."""
    for name in names:
        if name in keys:
            raise InputError(f"--set {name}={keys[name]}: {why}")


class _Written:
    """A number that keeps its text for text keys: ``str`` returns 007, ``==`` compares seven."""

    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, number: Any, text: str) -> Any:
        """Return ``number`` itself if it is written as ``text``."""
        if str(number) == text:
            return number
        kept = cls(number)  # type: ignore[call-arg]
        kept.text = text
        return kept


class _WrittenInt(_Written, int): ...


class _WrittenFloat(_Written, float): ...


class _Loader(yaml.SafeLoader):
    """Reads plain scalars by YAML 1.2's core schema, in which ``on`` and ``12:30`` are text and ``007`` is seven.

    Rejects mappings with equal keys, of which YAML would take the last, and keys without a value.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag.endswith(":merge"):
                continue
            key = self.construct_object(name)
            problem = f"key '{name.value}' occurs twice" if key in seen else ""
            if isinstance(value, yaml.ScalarNode) and not value.value and value.style is None:
                problem = f"'{name.value}' has no value; write a space after the colon, or null"
            if problem:
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=name.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_int(self, node: Any) -> Any:
        text = self.construct_scalar(node)
        return _WrittenInt.of(int(text, 0 if text[:2] in ("0o", "0x") else 10), text)

    def construct_float(self, node: Any) -> Any:
        return _WrittenFloat.of(self.construct_yaml_float(node), self.construct_scalar(node))


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or `_Loader` would read as something else, and writes numbers as they were written."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_float)
for kind, pattern, first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
     "-+.0123456789"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
):  # fmt: skip
    for reader in (_Loader, _Dumper):
        reader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{pattern})$"), list(first))


def _as_written(dumper: yaml.SafeDumper, number: _WrittenInt | _WrittenFloat) -> yaml.ScalarNode:
    kind = "int" if isinstance(number, int) else "float"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", number.text)


_Dumper.add_representer(_WrittenInt, _as_written)
_Dumper.add_representer(_WrittenFloat, _as_written)


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return ``data`` as YAML, from which `load_recipe` reads equal data."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def load_recipe(path: str) -> dict[str, Any]:
    """Read a flat YAML mapping of keys, without aliases.

    Raises `InputError`: an unreadable file, broken YAML or a key that occurs twice (with its line), or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.load(file, _Loader)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        plain = isinstance(error, ValueError) and not isinstance(error, UnicodeDecodeError)
        reason = getattr(error, "problem", None) or (str(error) if plain else "not readable as UTF-8 text")
        raise InputError(f"{path}{where}: broken YAML: {reason}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping of keys to values is needed, found {type(data).__name__}")
    return canonical({str(name): value for name, value in data.items()})


def load_config(path: Path) -> dict[str, Any]:
    """Read a run's config.yaml.

    Raises `InputError`: as `load_recipe`, or the file was emptied, so that the run would continue with defaults.
    """
    data = load_recipe(str(path))
    if "algo" not in data:
        raise InputError(f"{path}: damaged: it contains no algo")
    return data


Kind = Literal["recipes", "sweeps"]
SUFFIXES = (".yaml", ".yml")


def preset_files(kind: Kind = "recipes") -> dict[str, Path]:
    """Return the package's recipes or sweeps by name, sorted."""
    return {path.stem: path for path in sorted((presets_folder() / kind).glob("*.yaml"))}


def preset_path(text: str, kind: Kind = "recipes") -> str:
    """Return the file that ``text`` names: a path, or a recipe or sweep of the package by name or as in the docs.

    An existing file takes precedence. ``tune_configs/recipes/NAME.yaml`` is the package's if there is no such file.

    Raises `InputError`: neither; the nearest name is suggested.
    """
    path, known = Path(text), preset_files(kind)
    bare = path.stem if path.suffix in SUFFIXES else path.name
    ours = path.parent in (Path("."), Path("tune_configs") / kind) and bare in known
    if path.is_file() or (path.exists() and not ours):
        return text
    if ours:
        return str(known[bare])
    hint = similar(bare, known)
    if path.suffix in SUFFIXES or path.parent != Path("."):
        raise InputError(f"{text}: no such file" + (f", and no {kind[:-1]} of that name; {hint}" if hint else ""))
    raise InputError(f"unknown {kind[:-1]} '{text}': {hint or f'`run.py list {kind}` shows all'}")


def load_preset(text: str) -> dict[str, Any]:
    """Read a recipe by path or name. Raises `InputError`: as `preset_path` and `load_recipe`."""
    return load_recipe(preset_path(text))
