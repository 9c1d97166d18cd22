"""What goes from an environment's process to its runner: plain data as JSON, which is neither unpickled nor evaluated.

Texts, numbers, lists, tuples, dicts, sets, bytes, None and numpy's arrays (as lists) and numbers arrive as they are.
What else an ``info`` holds stays where it is: `Unsent` arrives in its place, which nobody misses unless it is looked
at. Snapshots and generators' states are sealed: their bytes go through the runner and back, and are opened where the
environment itself runs, which is code that is trusted there.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Bytes of an answer at most.
MAX_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Sealed:
    """Something of an environment's that only its own kind looks into."""

    data: bytes

    @classmethod
    def of(cls, value: Any) -> Sealed | None:
        """Seal; None stays None. Raises what pickling raises."""
        return None if value is None else cls(pickle.dumps(value))


def opened(value: Any) -> Any:
    """Return what is sealed, or ``value`` if it is not. Only where the environment itself runs in this process."""
    return pickle.loads(value.data) if isinstance(value, Sealed) else value


@dataclass(frozen=True, slots=True)
class Unsent:
    """Stands for what is no plain data; ``what``: its type."""

    what: str


def encode(value: Any) -> bytes:
    """Write a value.

    Raises:
        ValueError, RecursionError: it is nested too deeply, or holds itself.
    """
    return json.dumps(_plain(value)).encode()


def decode(data: bytes) -> Any:
    """Read what `encode` has written.

    Raises:
        ValueError: it is something else.
    """
    try:
        return _value(json.loads(data))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _plain(value: Any) -> Any:
    """Return the value in JSON's types; an object of JSON has one member there, the kind."""
    if value is None or isinstance(value, bool | int | float | str):
        return _bare(value)
    if isinstance(value, np.generic) and isinstance(value.item(), bool | int | float | str):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUO":
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    for kind, types in (("tuple", tuple), ("set", set | frozenset)):
        if isinstance(value, types):
            return {kind: [_plain(item) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Sealed):
        return {"sealed": base64.b64encode(value.data).decode()}
    return {"unsent": value.what if isinstance(value, Unsent) else f"{type(value).__module__}.{type(value).__name__}"}


def _bare(value: Any) -> Any:
    """Return the value without what a subclass has added."""
    return next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), None)


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "tuple": lambda items: tuple(map(_value, items)),
    "set": lambda items: set(map(_value, items)),
    "dict": lambda items: {_value(key): _value(item) for key, item in items},
    "bytes": base64.b64decode,
    "sealed": lambda data: Sealed(base64.b64decode(data)),
    "unsent": lambda what: Unsent(str(what)),
}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if isinstance(plain, dict):
        ((kind, inner),) = plain.items()
        return _KINDS[kind](inner)
    return plain
