"""Messages between an environment's process and its runner.

Requests (`EnvRecipe`, `Call`) are pickled, because the process trusts its runner. An `Answer` is JSON, which is neither
unpickled nor evaluated: texts, numbers, lists, dicts, None, tuples and numpy's arrays (both as lists). Of other objects
in an ``info`` only the name of the type is sent. Snapshots and generators' states are sealed: the runner passes their
bytes on, and they are opened only in the environment's process, which trusts its own data.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_agents.config import Settings

#: Maximum bytes of an answer.
MAX_BYTES = 1 << 28
#: Optional methods and attributes of environments, in addition to `reset` and `step`.
METHODS, ATTRIBUTES = ("snapshot", "restore", "render_window", "random_action"), ("answer_instruction",)
#: The keys that determine how an environment is created.
KEYS = ("plugins", "env", "max_turns", "prompting")


@dataclass(frozen=True, slots=True)
class Sealed:
    """Pickled data of an environment that only environments of its kind open."""

    data: bytes

    @classmethod
    def of(cls, value: Any) -> Sealed | None:
        """Seal a value; None stays None. Raises what pickling raises."""
        return None if value is None else cls(pickle.dumps(value))


def opened(value: Any) -> Any:
    """Open a sealed value; return others unchanged. Only for a process in which the environment itself runs."""
    return pickle.loads(value.data) if isinstance(value, Sealed) else value


@dataclass(frozen=True, slots=True)
class EnvRecipe:
    """How a process creates its environment.

    Attributes:
        settings: the run's keys in `KEYS`, and the environment's own.
    """

    settings: Mapping[str, Any]
    path: tuple[str, ...]
    folder: str

    @classmethod
    def of(cls, settings: Settings) -> EnvRecipe:
        own = {f"env.{name}": value for name, value in settings.env_options.items()}
        keys = {name: getattr(settings, name) for name in KEYS}
        return cls({**keys, **own}, tuple(sys.path), os.getcwd())


@dataclass(frozen=True, slots=True)
class Order:
    """The state that a process gives its generators before a call.

    Attributes:
        drawn: from `Generators.drawn`; None: the seed's.
    """

    seed: int
    drawn: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method of the environment, or a read of one of its `ATTRIBUTES`."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a process.

    Attributes:
        result: plain data, or `Sealed`.
        failure: why there is no result, as an episode's ``end_cause``.
        user_error: the failure is an `InputError`.
        drawn: the generators' states after a snapshot.
    """

    result: Any = None
    failure: str = ""
    user_error: bool = False
    drawn: Sealed | None = None

    def to_bytes(self) -> bytes:
        """Serialize; raises ValueError or RecursionError if the result is nested too deeply, or contains itself."""
        result, kind = self.result, "tuple" if isinstance(self.result, tuple) else ""
        if isinstance(result, Sealed):
            result, kind = base64.b64encode(result.data).decode(), "sealed"
        drawn = None if self.drawn is None else base64.b64encode(self.drawn.data).decode()
        parts = [result, kind, self.failure, self.user_error, drawn]
        return json.dumps(parts, default=_plain, skipkeys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer:
        """Parse; raises ValueError for other data."""
        try:
            result, kind, failure, user_error, drawn = json.loads(data)
            if kind == "sealed":
                result = Sealed(base64.b64decode(result))
            result = tuple(result) if kind == "tuple" else result
            drawn = None if drawn is None else Sealed(base64.b64decode(drawn))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return cls(result, str(failure), user_error is True, drawn)


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else {"unsent": f"{type(value).__module__}.{type(value).__name__}"}
