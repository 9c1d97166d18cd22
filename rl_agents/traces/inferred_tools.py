"""Tool definitions read off demonstrated calls, for traces that come without any (tau-bench's)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rl_agents.chat.messages import message_calls
from rl_agents.tools.calls import Tool
from rl_agents.traces.formats import Trace

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


def infer_tools(traces: Iterable[Trace]) -> tuple[Tool, ...]:
    """Return one definition per called tool: its arguments, their JSON types, and which of them every call gives.

    Descriptions are empty: what a tool does stands in the traces' system messages at best.
    """
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for trace in traces:
        for message in trace.messages:
            for call in message_calls(message):
                calls.setdefault(call.name, []).append(call.arguments)
    return tuple(Tool(name, "", _schema(calls[name])) for name in sorted(calls))


def _schema(seen: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = sorted({name for arguments in seen for name in arguments})
    properties = {name: {"type": _types([a[name] for a in seen if name in a])} for name in names}
    required = [name for name in names if all(name in arguments for arguments in seen)]
    return {"type": "object", "properties": properties, "required": required}


def _types(values: list[Any]) -> str | list[str]:
    found = sorted({_TYPES.get(type(value), "null") for value in values})
    if "number" in found and "integer" in found:
        found.remove("integer")
    return found[0] if len(found) == 1 else found
