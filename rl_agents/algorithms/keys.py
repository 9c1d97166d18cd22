"""The keys of all algorithms: composing the settings of a run, and who reads what."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.config.options import forget_types, option_types

Field = dataclasses.Field[Any]


def compose(recipes: Iterable[AlgorithmSpec], module: str) -> type[Settings]:
    """Return the class of a run's settings: those of the framework and the keys of all recipes, flat.

    Args:
        recipes: the algorithms.
        module: where the class will stand as ``Settings``, so that it can be pickled.

    Raises:
        TypeError: two algorithms declare a key differently.
    """
    own: dict[str, tuple[str, Any, Field]] = {}
    framework = {field.name for field in dataclasses.fields(Settings)}
    for recipe in recipes:
        types = option_types(recipe.keys)
        for field in dataclasses.fields(recipe.keys):
            entry = (field.name, types[field.name], _copy(field))
            known = own.setdefault(field.name, entry) if field.name not in framework else entry
            if (known[1], known[2].default) != (entry[1], entry[2].default):
                raise TypeError(f"{recipe.name}: key {field.name} has another type or default elsewhere")
    added = [entry for name, entry in own.items() if name not in framework]
    return dataclasses.make_dataclass("Settings", added, bases=(Settings,), namespace={"__module__": module})


def extend(settings: type[Settings], recipes: Iterable[AlgorithmSpec]) -> None:
    """Give the class of a run's settings, in place, the keys that ``recipes`` have and it lacks.

    In place, because everybody imports the class by name, and settings of another process are made of it.
    """
    fresh = compose(recipes, settings.__module__)
    known = {field.name for field in dataclasses.fields(settings)}
    for field in dataclasses.fields(fresh):
        if field.name not in known:
            settings.__annotations__[field.name] = fresh.__annotations__[field.name]
            if field.default is not dataclasses.MISSING:
                setattr(settings, field.name, field.default)
    for name in ("__dataclass_fields__", "__init__", "__repr__", "__eq__", "__match_args__"):
        setattr(settings, name, getattr(fresh, name))
    forget_types()


def _copy(field: Field) -> Field:
    """A field object belongs to one class."""
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=field.metadata)
    return dataclasses.field(default=field.default, metadata=field.metadata)


def declared(keys: type) -> dict[str, Field]:
    """Return the fields of an algorithm's keys by name."""
    return {field.name: field for field in dataclasses.fields(keys)}


def sections(recipes: Iterable[AlgorithmSpec]) -> dict[type, list[Field]]:
    """Return the data classes that declare keys, with the fields of each, in the order of listings."""
    found: dict[type, list[Field]] = {}
    for keys in (Settings, *(recipe.keys for recipe in recipes)):
        fields = declared(keys)
        for section in reversed(keys.__mro__):
            known = {field.name for own in found.values() for field in own}
            names = inspect.get_annotations(section) if dataclasses.is_dataclass(section) else {}
            if own := [fields[name] for name in names if name not in known]:
                found[section] = own
    return found


def readers(name: str, recipes: Iterable[AlgorithmSpec]) -> list[str]:
    """Return the algorithms that read a key; empty for a key that does not depend on the algorithm."""
    return [recipe.name for recipe in recipes if name in declared(recipe.keys)]
