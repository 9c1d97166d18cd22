"""Data classes as plain data for JSON, without `dataclasses.asdict`'s walk through every token id."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Return data classes as dictionaries, at any depth, and containers as copies.

    A list is looked through only where its first element may hold a data class: lists are of one kind here, and those
    of numbers are long.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        flat = not value or isinstance(value[0], int | float | str | None)
        return list(value) if flat else [plain(part) for part in value]
    return value
