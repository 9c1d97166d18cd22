"""Options: data classes whose fields are declared by `key`, each once, beside the code that reads it.

Runs, environments, verifiers, servers and sweeps all take their keys this way: a field says type, default, range,
meaning and what else must be chosen for it to have an effect; reading, checking, documentation and the command line
follow from the declaration.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cache
from typing import Any, Literal, TypeVar

from rl_agents.errors import InputError, unknown

Options = TypeVar("Options")


def key(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    also: float | None = None,
    needs: str | tuple[str, ...] = (),
) -> Any:
    """Declare an option.

    Args:
        default: its default; lists and mappings are copied.
        help: one line for people.
        at_least, above, at_most, below: range of a number (of every item of a list).
        also: a number outside that range which is allowed, such as 0 for off.
        needs: what gives the key an effect, all of it: ``"name"`` (true, not 0 and not empty), ``"name=a|b"`` (one of
            these values) or ``"name!=a|b"``, and ``"... or ..."`` where one of several suffices. Choosing the key
            without it is an error.
    """
    wanted = (needs,) if isinstance(needs, str) else needs
    bounds = {"at_least": at_least, "above": above, "at_most": at_most, "below": below, "also": also}
    metadata = {"help": help, **bounds, "needs": wanted}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def option_types(cls: type) -> Mapping[str, Any]:
    """Return the types of an options class by key, in the order of declaration."""
    return _option_types(typing.cast(Any, cls))


def forget_types() -> None:
    """A class has got further keys."""
    _option_types.cache_clear()


@cache
def _option_types(cls: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def read_options(
    cls: type[Options],
    data: Mapping[str, Any],
    *,
    prefix: str = "",
    kind: str = "key",
    chosen: Iterable[str] | None = None,
) -> Options:
    """Build an options object from plain values.

    Args:
        data: values by key, the prefix left out; absent ones take their defaults.
        prefix: written before keys in messages, such as ``env.``.
        kind: what messages call a key, such as ``option of environment alfworld``.
        chosen: keys that somebody chose, so that they must have an effect; by default all of ``data``.

    Raises:
        InputError: an unknown key (the nearest is named), a wrong type, a value out of range, or a key without effect.
    """
    types_by_key = option_types(cls)
    for name in data:
        if name not in types_by_key:
            raise unknown(kind, f"{prefix}{name}", [f"{prefix}{known}" for known in types_by_key])
    made = cls(**{name: coerce(f"{prefix}{name}", value, types_by_key[name]) for name, value in data.items()})
    check_ranges(made, prefix)
    check_needs(made, data if chosen is None else chosen, prefix)
    return made


def coerce(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``; numbers that YAML reads as text (1e-4) are accepted, infinities are not.

    Raises:
        InputError: it cannot be read so.
    """
    if typing.get_origin(kind) is Literal:
        value = {False: "off", True: "on"}[value] if isinstance(value, bool) else value  # as YAML reads these words
        if value not in typing.get_args(kind):
            raise InputError(f"{name}='{value}': valid: {', '.join(map(str, typing.get_args(kind)))}")
        return value
    if typing.get_origin(kind) is list:
        of_texts = typing.get_args(kind)[0] is str
        if of_texts and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]  # --set env.tools=a,b
        if not isinstance(value, list | tuple):
            raise InputError(f"{name}='{value}': a list is needed, such as {'[a, b]' if of_texts else '[0.9, 0.95]'}")
        return [coerce(name, item, typing.get_args(kind)[0]) for item in value]
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in typing.get_args(kind):
            return None
        lists = [k for k in typing.get_args(kind) if typing.get_origin(k) is list]
        if lists and isinstance(value, list | tuple):
            return coerce(name, value, lists[0])
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if kind is bool:
        value = {"on": True, "yes": True, "off": False, "no": False}.get(str(value).lower(), value)
        if not isinstance(value, bool):
            raise InputError(f"{name}='{value}': true or false is needed")
        return value
    if kind == dict[str, str]:
        return _pairs(name, value)
    if typing.get_origin(kind) is dict and not isinstance(value, Mapping):
        raise InputError(f"{name}='{value}': a mapping is needed, such as {{name: value}}")
    if kind is Any and isinstance(value, int | float) and not isinstance(value, bool):
        return value.real  # without the text that a recipe's numbers remember
    return value if kind is Any or typing.get_origin(kind) is dict else _scalar(name, value, kind)


def _pairs(name: str, value: Any) -> dict[str, str]:
    """Read texts by name: a mapping, or ``a:b,c:d`` as one writes it on a command line."""
    if isinstance(value, str):
        parts = [part.partition(":") for part in value.split(",") if part.strip()]
        value = {own.strip(): other.strip() for own, _, other in parts}
    if not isinstance(value, Mapping) or not all(isinstance(other, str) and other for other in value.values()):
        raise InputError(f"{name}='{value}': NAME:COLUMN pairs are needed, such as question:prompt,answer:gold")
    return {str(own): str(other) for own, other in value.items()}


def _scalar(name: str, value: Any, kind: Any) -> Any:
    needed = {int: "a whole number", float: "a number", str: "text"}[kind]
    try:
        if isinstance(value, bool | list | dict) or value is None:
            raise ValueError
        if kind is str:
            return str(value)
        number = float(value)
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return int(number) if kind is int else number
    except (TypeError, ValueError):
        raise InputError(f"{name}='{value}': {needed} is needed") from None


def check_ranges(options: Any, prefix: str = "") -> None:
    """Check every number against the range of its key.

    Raises:
        InputError: the first one outside.
    """
    for item in dataclasses.fields(options):
        value, bounds = getattr(options, item.name), item.metadata
        for number in value if isinstance(value, list) else [value]:
            _check_range(f"{prefix}{item.name}={value}", number, bounds)


def _check_range(shown: str, number: Any, bounds: Mapping[str, Any]) -> None:
    if not isinstance(number, int | float) or number == bounds["also"]:
        return
    for name, (holds, said) in BOUNDS.items():
        if bounds[name] is not None and not holds(number, bounds[name]):
            text = "not be negative" if said.format(bounds[name]) == "at least 0" else f"be {said.format(bounds[name])}"
            raise InputError(f"{shown}: must {text}" + ("" if bounds["also"] is None else f", or {bounds['also']}"))


#: Kinds of bounds: whether a number keeps one, and how people say it.
BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "at_least": (operator.ge, "at least {}"),
    "above": (operator.gt, "above {}"),
    "at_most": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
}


def range_text(bounds: Mapping[str, Any]) -> str:
    """Return the range in a key's metadata as people would say it; empty when all numbers are allowed.

    >>> range_text(key(0.0, "bound", above=1, also=0).metadata)
    'above 1, or 0'
    """
    text = " and ".join(said.format(bounds[name]) for name, (_, said) in BOUNDS.items() if bounds[name] is not None)
    return text if bounds["also"] is None else f"{text}, or {bounds['also']}"


def check_needs(options: Any, chosen: Iterable[str], prefix: str = "") -> None:
    """Refuse chosen keys that have no effect beside the other values.

    Raises:
        InputError: the first one, with what would give it an effect.
    """
    wanted = {item.name: item.metadata["needs"] for item in dataclasses.fields(options)}
    for name in sorted(set(chosen) & wanted.keys()):
        if missing := unmet(wanted[name], options):
            raise InputError(f"key '{prefix}{name}' has no effect without {prefix}{spoken(missing)}")


def unmet(needs: Iterable[str], options: Any) -> str:
    """Return the first need that ``options`` do not meet; empty when they meet all."""
    return next((need for need in needs if not any(_is_met(part, options) for part in need.split(" or "))), "")


def _is_met(need: str, options: Any) -> bool:
    name, equals, values = need.partition("=")
    if not equals:
        return bool(getattr(options, name))
    here = plain_text(getattr(options, name.removesuffix("!"))) in values.split("|")
    return not here if name.endswith("!") else here


def plain_text(value: Any) -> str:
    """Return a value as YAML would write it.

    >>> plain_text(True), plain_text(0.0), plain_text("t3")
    ('true', '0', 't3')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def spoken(need: str) -> str:
    """Return a need as people would say it."""
    return need.replace("!=", " other than ").replace("|", " or ")
