"""Reading a request's fields: types of those that matter are checked, the rest is sorted and reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Excluded, Message, short
from rl_agents.web.errors import ApiError, bad_request

MAX_COUNT = 128
MAX_STOPS = 64
MAX_STOP_CHARACTERS = 256
MAX_SHOWN = 300


class Fields:
    """A request's object; every method takes a field out of it, and null is as good as a missing field.

    The object comes from `rl_agents.tools.strict_json`: its depth is bounded, its text is text.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        if not isinstance(data, Mapping):
            raise bad_request("the body is not a JSON object", code="invalid_json")
        self._rest = {name: value for name, value in data.items() if value is not None}

    def take(self, name: str) -> Any:
        """Return a field of any type; None where it is missing."""
        return self._rest.pop(name, None)

    def text(self, name: str, required: bool = False) -> str:
        """Return a text; empty where it is missing.

        Raises:
            ApiError: another type, or missing although required.
        """
        value = self.take(name)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise self._wrong(name, value, "a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def whole(self, name: str, most: int | None = None, least: int = 1) -> int | None:
        """Return a whole number from ``least`` on; None where it is missing."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= (most or value):
            raise self._wrong(name, value, f"a whole number from {least} " + (f"to {most}" if most else "on"))
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        """Return a number from ``low`` to ``high``; None where it is missing."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._wrong(name, value, f"a number from {low:g} to {high:g}")
        return value

    def stops(self, name: str) -> tuple[str, ...]:
        """Return the strings that end an answer: one or a list."""
        value = self.take(name)
        stops = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(isinstance(stop, str) for stop in stops):
            raise self._wrong(name, value, f"a string or a list of at most {MAX_STOPS} strings")
        if not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in stops):
            raise bad_request(f"{name}: a stop string has 1 to {MAX_STOP_CHARACTERS} characters", name)
        return tuple(dict.fromkeys(stops))

    def items(self, name: str) -> list[Any]:
        """Return a list; empty where it is missing."""
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value or []

    def object(self, name: str) -> dict[str, Any]:
        """Return an object; empty where it is missing."""
        value = self.take(name)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(name, value, "an object")
        return dict(value or {})

    def refuse(self, name: str, why: str) -> None:
        """Refuse a request that has this field, unless it says nothing.

        Raises:
            ApiError: with ``why``.
        """
        if self.take(name):
            raise bad_request(f"{name}: {why}", name, "unsupported_value")

    def several(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of the named fields that are there, as the client sent them."""
        return {name: self._rest.pop(name) for name in names if name in self._rest}

    def left(self, excluded: Excluded) -> None:
        """Count what nobody has taken."""
        excluded.update(map(short, self._rest))
        self._rest.clear()

    @staticmethod
    def _wrong(name: str, value: Any, wanted: str) -> ApiError:
        if value is None:
            return bad_request(f"'{name}' is missing: {wanted} is needed", name, "missing_field")
        return bad_request(f"{name}: {wanted} is needed (got {shown(value)})", name)


def shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def problem(field: str, error: ValueError, place: str = "") -> ApiError:
    """Turn a reader's complaint into a refusal that names the field."""
    text = " ".join(str(error).split())
    text = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
    return bad_request(f"{place or field}: {text}", field)


def note_dropped(excluded: Excluded, name: str, items: Iterable[Any], known: Iterable[str]) -> None:
    """Count the fields of messages that nobody reads, as ``messages.name``."""
    kept = set(known)
    for item in items:
        if isinstance(item, Mapping):
            names = (key for key, value in item.items() if value is not None and key not in kept)
            excluded.update(f"{name}.{short(key)}" for key in names)


def system_first(instructions: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages after a system message, if there are instructions."""
    first: Sequence[Message] = [{"role": "system", "content": instructions}] if instructions else []
    return (*first, *messages)
