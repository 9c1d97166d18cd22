"""Data classes as plain data for JSON, without `dataclasses.asdict`'s deep copy of every token id."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Return data classes as dictionaries, at any depth; whatever else there is comes along uncopied.

    A list is looked through only where its first element may hold a data class: lists are of one kind here, and those
    of numbers are long.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float | str | None):
        return [plain(part) for part in value]
    return value
