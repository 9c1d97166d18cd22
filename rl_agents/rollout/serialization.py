"""What goes between an environment's process and its runner.

Orders (`EnvRecipe`, `Call`) are pickled: the process trusts its runner. An `Answer` is JSON, which is neither unpickled
nor evaluated: texts, numbers, lists, dicts, None, tuples and numpy's arrays (both as lists). What else an ``info``
holds stays where it is, and only the name of its type arrives. Snapshots and generators'
states are sealed: their bytes go through the runner and back, and are opened where the environment itself runs, which
is code that is trusted there.
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

#: Bytes of an answer at most.
MAX_BYTES = 1 << 28
#: What an environment may have in addition to `reset` and `step`: methods, then attributes.
METHODS, ATTRIBUTES = ("snapshot", "restore", "render_window", "random_action"), ("answer_instruction",)
#: The keys that say how an environment is made.
KEYS = ("plugins", "env", "max_turns", "prompting", "prompting_shots", "prompting_trials")


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
class EnvRecipe:
    """How a process makes its environment.

    Attributes:
        settings: keys of the run, see `KEYS`, with the environment's own.
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
    """What a process does with its generators before a call.

    Attributes:
        drawn: where they continue, as `Generators.drawn` had it; None: at the seed.
    """

    seed: int
    drawn: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """What a process is asked: a method of the environment, or one of its `ATTRIBUTES`."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What it says.

    Attributes:
        result: plain data, or `Sealed`.
        failure: why there is no result, as an episode's ``end_cause``; ``user_error``: for the user to mend.
        drawn: the generators' states after a snapshot; sealed.
    """

    result: Any = None
    failure: str = ""
    user_error: bool = False
    drawn: Sealed | None = None

    def to_bytes(self) -> bytes:
        """Write it.

        Raises:
            ValueError, RecursionError: the result is nested too deeply, or holds itself.
        """
        result, kind = self.result, "tuple" if isinstance(self.result, tuple) else ""
        if isinstance(result, Sealed):
            result, kind = base64.b64encode(result.data).decode(), "sealed"
        drawn = None if self.drawn is None else base64.b64encode(self.drawn.data).decode()
        parts = [result, kind, self.failure, self.user_error, drawn]
        return json.dumps(parts, default=_plain, skipkeys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer:
        """Read it.

        Raises:
            ValueError: it is none.
        """
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
    """Return what JSON takes instead of a value that it does not know."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else {"unsent": f"{type(value).__module__}.{type(value).__name__}"}
