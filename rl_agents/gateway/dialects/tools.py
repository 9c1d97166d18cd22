"""Definitions of tools in three dialects: what the agent runs is offered, what the provider would run is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Excluded, short
from rl_agents.gateway.calls import ToolForm
from rl_agents.gateway.dialects.fields import problem
from rl_agents.tools.calls import Tool, read_tools

#: A custom tool takes any text: its one argument.
TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
#: Anthropic's own tools that the agent runs, by the beginning of their type; its models know their arguments.
CLIENT_TOOLS = {
    "bash_": ("Runs a command in a shell.", {"command": "string", "restart": "boolean"}),
    "text_editor_": (
        "Views and edits files; command: view, create, str_replace, insert.",
        {"command": "string", "path": "string", "file_text": "string", "old_str": "string", "new_str": "string",
         "insert_line": "integer", "insert_text": "string", "view_range": "array"},
    ),
    "memory_": (
        "Keeps files between conversations; command: view, create, str_replace, insert, delete, rename.",
        {"command": "string", "path": "string", "file_text": "string", "old_str": "string", "new_str": "string",
         "insert_line": "integer", "insert_text": "string", "view_range": "array", "old_path": "string",
         "new_path": "string"},
    ),
}  # fmt: skip


def offered_tools(
    items: Sequence[Any], functions: Sequence[str], excluded: Excluded
) -> tuple[tuple[Tool, ...], dict[str, ToolForm]]:
    """Return the tools that an answer may call, and how calls are written of those that are no plain functions.

    Args:
        functions: values of ``type`` that are functions of the client's own; a tool without type is one.

    Raises:
        ApiError: names the tool that cannot be read.
    """
    bodies: dict[str, Any] = {}
    forms: dict[str, ToolForm] = {}
    for body, form in _definitions(items, functions, excluded):
        name = body.get("name") if isinstance(body, Mapping) else None
        if isinstance(name, str) and name in bodies:
            excluded["tools.twice"] += 1
            continue
        bodies[name if isinstance(name, str) else f"#{len(bodies)}"] = body
        if form is not None and isinstance(name, str):
            forms[name] = form
    try:
        return read_tools(list(bodies.values())), forms
    except ValueError as error:
        raise problem("tools", error) from None


def _definitions(
    items: Sequence[Any], functions: Sequence[str], excluded: Excluded, namespace: str = ""
) -> Iterator[tuple[Any, ToolForm | None]]:
    """Yield definitions as OpenAI's flat form has them, and their forms; those in a namespace get its name."""
    for item in items:
        kind = item.get("type") or functions[0] if isinstance(item, Mapping) else functions[0]
        body = item.get("function") or item.get("custom") or item if isinstance(item, Mapping) else item
        if kind == "namespace" and not namespace and isinstance(item.get("tools"), list):
            yield from _definitions(item["tools"], functions, excluded, str(item.get("name")))
        elif kind in functions or not isinstance(body, Mapping):
            yield _named(body, False, namespace)
        elif kind == "custom":
            yield _named({**body, "parameters": TEXT}, True, namespace)
        elif known := next((known for start, known in CLIENT_TOOLS.items() if str(kind).startswith(start)), None):
            properties = {name: {"type": type_} for name, type_ in known[1].items()}
            schema = {"type": "object", "properties": properties}
            yield {"name": item.get("name"), "description": known[0], "parameters": schema}, None
        else:
            excluded[f"tools.{short(kind)}"] += 1


def _named(body: Any, custom: bool, namespace: str) -> tuple[Any, ToolForm | None]:
    if not isinstance(body, Mapping) or not (custom or namespace):
        return body, None
    name = body.get("name")
    form = ToolForm(str(name), custom, namespace)
    return ({**body, "name": f"{namespace}.{name}"} if namespace else body), form


def tool_wishes(items: Sequence[Any]) -> dict[str, Any]:
    """Return ``tools.strict`` where a tool asks for arguments that are made to fit its schema."""
    bodies = [item.get("function", item) for item in items if isinstance(item, Mapping)]
    strict = any(isinstance(body, Mapping) and body.get("strict") is True for body in bodies)
    return {"tools.strict": True} if strict else {}
