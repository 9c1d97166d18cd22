"""Removes the nulls that the package datasets writes into JSON, because it gives all rows of a table one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.tools.calls import Tool, schema_types


def nulls(value: Any) -> int:
    """Return the number of null entries of objects in a JSON value."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return sum(map(nulls, parts)) + (sum(part is None for part in parts) if isinstance(value, Mapping) else 0)


def padding(record: Any) -> int:
    """Return the number of nulls in the arguments and parameters of a record or a message."""
    if isinstance(record, Mapping):
        items = record.items()
        return sum(nulls(item) if name in ("arguments", "parameters") else padding(item) for name, item in items)
    return sum(map(padding, record)) if isinstance(record, list) else 0


def unpadded_tools(tools: Any) -> Any:
    """Return tool definitions without null entries, if they have any that JSON schema does not allow."""
    return _without_nulls(tools) if nulls(_without_nulls(tools, keep=("default", "const"))) < nulls(tools) else tools


def unpadded_message(message: Any, tools: Sequence[Tool]) -> Any:
    """Return a message whose calls lack the null arguments that their tools' schemas do not allow."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(calls, list):
        return message
    schemas = {tool.name: tool.parameters for tool in tools}
    return {**message, "tool_calls": [_call(call, schemas) for call in calls]}


def _call(call: Any, schemas: Mapping[str, Any]) -> Any:
    body = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(body, Mapping) or body.get("name") not in schemas:
        return call
    body = {**body, "arguments": _arguments(body.get("arguments"), schemas[body["name"]])}
    return {**call, "function": body} if "function" in call else body


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
