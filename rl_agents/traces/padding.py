"""Removes the nulls that the package datasets writes into JSON, because it gives all rows of a table one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.tools.calls import Tool, schema_types


def nulls(value: Any) -> int:
    """Return the number of nulls in a JSON value."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return int(value is None) + sum(map(nulls, parts))


def unpadded(value: Any, tools: Sequence[Tool] = ()) -> Any:
    """Return a trace's record without nulls that tool definitions, or the arguments of calls, do not allow.

    Args:
        tools: definitions for records without any.
    """
    return _unpadded(value, {tool.name: tool.parameters for tool in tools})


def _unpadded(value: Any, schemas: Mapping[Any, Any]) -> Any:
    if isinstance(value, list):
        return [_unpadded(item, schemas) for item in value]
    if not isinstance(value, Mapping):
        return value
    if isinstance(tools := value.get("tools"), list):
        if nulls(_without_nulls(tools, keep=("default", "const"))) < nulls(tools):  # not JSON schema
            value = {**value, "tools": (tools := _without_nulls(tools))}
        bodies = [tool.get("function", tool) for tool in tools if isinstance(tool, Mapping)]
        schemas = {body.get("name"): body.get("parameters") for body in bodies if isinstance(body, Mapping)}
    if isinstance(value.get("name"), str) and "arguments" in value:
        return {**value, "arguments": _arguments(value["arguments"], schemas.get(value["name"]))}
    return {name: item if name == "tools" else _unpadded(item, schemas) for name, item in value.items()}


def _arguments(value: Any, schema: Any) -> Any:
    if isinstance(value, list) and isinstance(schema, Mapping):
        return [_arguments(item, schema.get("items")) for item in value]
    known = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(known, Mapping):
        return value
    kept = {name: item for name, item in value.items() if item is not None or _allows_null(known.get(name))}
    return {name: _arguments(item, known.get(name)) for name, item in kept.items()}


def _allows_null(schema: Any) -> bool:
    """Return whether a property may be null; one that is not defined may not."""
    kinds = schema_types(schema)
    return isinstance(schema, Mapping) and (not kinds or "null" in kinds or None in schema.get("enum", ()))


def _without_nulls(value: Any, keep: Sequence[str] = ()) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_nulls(item, keep) for k, item in value.items() if item is not None or k in keep}
    return [_without_nulls(item, keep) for item in value] if isinstance(value, list) else value
