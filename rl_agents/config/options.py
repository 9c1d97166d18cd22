"""Options: data classes whose fields are declared by `key`, each once, next to the code that reads it.

Runs, environments, verifiers, servers and sweeps all declare their keys this way: a field has a type, a default, a
range, a help text, and the settings without which it has no effect. Pydantic checks types and ranges and generates the
JSON schema. It is imported when the first value is read, so that other commands start without it.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rl_agents.errors import InputError, unknown

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Options = TypeVar("Options")
#: Text of pydantic's bounds in listings and errors.
BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


@dataclass(frozen=True)
class Need:
    """One of the keys ``names`` is set (true, not 0, not empty) or has one of ``values``; ``other``: none of these."""

    names: tuple[str, ...]
    values: tuple[Any, ...] = ()
    other: bool = False

    def met(self, options: Any) -> bool:
        found = [getattr(options, name) for name in self.names]
        return any((value in self.values) != self.other if self.values else value for value in found)

    def __str__(self) -> str:
        relation = (" other than " if self.other else "=") if self.values else ""
        return f"{' or '.join(self.names)}{relation}{' or '.join(map(plain_text, self.values))}"


def on(*any_of: str, **values: Any) -> tuple[Need, ...]:
    """Need that one of the keys ``any_of`` is set, and that each of the others has its value, or one of a tuple."""
    wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return (*[Need(any_of)] * bool(any_of), *(Need((name,), those) for name, those in wanted.items()))


def off(**values: Any) -> tuple[Need, ...]:
    """Need that keys have other values than these."""
    return tuple(replace(need, other=True) for need in on(**values))


def unmet(needs: Iterable[Need], options: Any) -> str:
    """Return the first need that ``options`` do not meet; empty if they meet all."""
    return next((str(need) for need in needs if not need.met(options)), "")


def key(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    also: float | None = None,
    needs: str | tuple[Need, ...] = (),
    check: Callable[[Any], str] | None = None,
) -> Any:
    """Declare an option.

    Args:
        default: lists and mappings are copied.
        help: description without a full stop at the end.
        ge, gt, le, lt: range of a number (of every item of a list), as in pydantic.
        also: an allowed number outside the range, such as 0 for off.
        needs: what must hold for the key to have an effect (`on`, `off`; a name: it is set): else it must not be set.
        check: returns what is wrong with a value of the right type and range; empty: nothing.
    """
    given = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    bounds = {name: bound for name, bound in given.items() if bound is not None}
    wanted = on(needs) if isinstance(needs, str) else needs
    metadata = {"default": default, "help": help, "bounds": bounds, "also": also, "needs": wanted, "check": check}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Key:
    """A declared option: the arguments of `key`, its name and type, and the title of the class that declares it."""

    name: str
    kind: Any
    section: str
    default: Any
    help: str
    bounds: Mapping[str, Any]
    also: float | None
    needs: tuple[Need, ...]
    check: Callable[[Any], str] | None

    @property
    def range(self) -> str:
        """The range in words, such as ``above 1, or 0``; empty if all numbers are allowed."""
        text = " and ".join(BOUNDS[name].format(bound) for name, bound in self.bounds.items())
        return text if self.also is None else f"{text}, or {self.also}"

    def read(self, value: Any, prefix: str = "") -> Any:
        """Return ``value`` as the key's type; numbers that YAML reads as text (1e-4) are accepted.

        Args:
            prefix: written before the key in messages, such as ``env.``.

        Raises `InputError`: a wrong type, or out of range.
        """
        from pydantic import ValidationError

        try:
            read, problem = self._reader.validate_python(value), ""
        except ValidationError as error:
            problem = self._problem(error)
        if problem := problem or (self.check(read) if self.check else ""):
            shown = f"'{value}'" if isinstance(value, str) else value
            raise InputError(f"{prefix}{self.name}={shown}: {problem}") from None
        return read

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the key, with the help text as description."""
        needs = f" Needs {' and '.join(map(str, self.needs))}." if self.needs else ""
        return {**self._reader.json_schema(), "description": f"{self.help}.{needs}", "default": self.default}

    @cached_property
    def _reader(self) -> TypeAdapter[Any]:
        from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

        kind: Any = Annotated[self.kind, Field(**self.bounds)]
        several: Any = typing.get_origin(self.kind)
        if several is list:
            kind = several[Annotated[typing.get_args(self.kind)[0], Field(**self.bounds)]]
        if self.also is not None:
            kind = kind | Annotated[self.kind, Field(ge=self.also, le=self.also)]
        source = list[str] | str if self.kind == list[str] else kind
        return TypeAdapter(
            Annotated[kind, BeforeValidator(self._plain, json_schema_input_type=source)],
            config=ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True),
        )

    def _plain(self, value: Any) -> Any:
        """Convert text of a command line; reject booleans as numbers, which pydantic reads as 0 and 1."""
        items = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(item, bool) for item in items) and {int, float} & {self.kind, *typing.get_args(self.kind)}:
            raise ValueError("must be a number")
        if isinstance(value, bool) and typing.get_origin(self.kind) is typing.Literal:
            return "on" if value else "off"  # YAML 1.1 reads these words as booleans
        if self.kind is int and isinstance(value, float) and value.is_integer():
            return int(value)  # 1e30, which pydantic does not compare with the range
        if isinstance(value, str) and self.kind == list[str]:
            return [part.strip() for part in value.split(",") if part.strip()]  # env.tools=a,b
        if self.kind == dict[str, str]:
            return _pairs(value)
        return str(value) if isinstance(value, PurePath) else value

    def _problem(self, error: ValidationError) -> str:
        first = error.errors(include_url=False)[0]
        for name, bound in first.get("ctx", {}).items():
            if name in BOUNDS:
                also = "" if self.also is None else f", or {self.also}"
                return f"must be {BOUNDS[name].format(plain_text(bound))}{also}"
        if first["type"] == "literal_error":
            return f"valid: {', '.join(map(str, typing.get_args(self.kind)))}"
        text = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        text = text.partition(", unable to")[0].replace("Input should be", "must be")
        entry = f"entry {first['loc'][0] + 1}: " if first["loc"] and isinstance(first["loc"][0], int) else ""
        text = text.replace("dictionary", f"mapping, such as {'{env: NAME}' if entry else '{name: value}'}")
        return entry + text[0].lower() + text[1:]


def _pairs(value: Any) -> Any:
    """Read a mapping of text, or its form on a command line, ``a:b,c:d``."""
    if isinstance(value, str):
        parts = [part.partition(":") for part in value.split(",") if part.strip()]
        value = {own.strip(): other.strip() for own, _, other in parts}
    if not isinstance(value, Mapping) or not all(isinstance(other, str) and other for other in value.values()):
        raise ValueError("must be NAME:COLUMN pairs, such as question:prompt,answer:gold")
    return {str(own): str(other) for own, other in value.items()}


def keys_of(cls: type) -> dict[str, Key]:
    """Return the keys of an options class by name, in the order of declaration."""
    return _keys_of(typing.cast(Any, cls))


@cache
def _keys_of(cls: Any) -> dict[str, Key]:
    hints = typing.get_type_hints(cls)
    owners = {name: base for base in reversed(cls.__mro__) for name in inspect.get_annotations(base)}
    titles = {name: (base.__doc__ or "").strip().partition("\n")[0].rstrip(".") for name, base in owners.items()}
    return {
        item.name: Key(item.name, hints[item.name], section=titles[item.name], **item.metadata)
        for item in dataclasses.fields(cls)
    }


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
        data: values by key, without the prefix; absent ones take their defaults.
        prefix: written before keys in messages, such as ``env.``.
        kind: name of a key in messages, such as ``option of environment alfworld``.
        chosen: keys that were set explicitly, so that they must have an effect; by default all of ``data``.

    Raises:
        InputError: an unknown key (the nearest is named), a wrong type, a value out of range, or a key without effect.
    """
    keys = keys_of(cls)
    for name in data:
        if name not in keys:
            raise unknown(kind, f"{prefix}{name}", [f"{prefix}{known}" for known in keys])
    made = cls(**{name: keys[name].read(value, prefix) for name, value in data.items()})
    for name in sorted(keys.keys() & set(data if chosen is None else chosen)):
        if missing := unmet(keys[name].needs, made):
            raise InputError(f"key '{prefix}{name}' has no effect without {prefix}{missing}")
    return made


def plain_text(value: Any) -> str:
    """Return a value as YAML would write it.

    >>> plain_text(True), plain_text(0.0), plain_text("t3")
    ('true', '0', 't3')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
