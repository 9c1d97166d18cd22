"""Tool calls in model responses: OpenAI's tool definitions, reading a response, checking a call.

`read_response` reads ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` or Qwen's XML in the same tags, once
per call, or a response that is only JSON in OpenAI's structure, one call or ``{"tool_calls": [...]}``.
`rl_agents.chat.tool_parsing` converts the calls of other families of models into this form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rl_agents.tools.shapes import CANONICAL, FoundCall, Shape, find_calls, without
from rl_agents.tools.strict_json import DECODER, canonical, check_plain, strict_json
from rl_agents.tools.thoughts import read_thoughts

MAX_RESPONSE_CHARACTERS = 262_144
MAX_CALLS = 32
MAX_SHOWN = 120

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool definition.

    Attributes:
        parameters: JSON schema of the arguments, an object; empty allows anything.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_openai(self) -> dict[str, Any]:
        """Return the definition as OpenAI's chat API and chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call: the tool's name and its arguments as JSON values."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return json.dumps({"name": self.name, "arguments": dict(self.arguments)}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Response:
    """The content of a response.

    Attributes:
        content: the text around the calls, without white space at its ends.
        calls: in the order of the response.
        problem: why the response cannot be read, one sentence for the agent; empty for a valid response.
        thoughts: without tags.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    thoughts: str = ""


def read_tool(data: Any) -> Tool:
    """Read a definition in the form of OpenAI's chat API (``function`` inside) or of its responses API (flat).

    Raises:
        ValueError: an invalid definition; the message names the problem.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a tool definition is {type(data).__name__}, not an object")
    body = data.get("function", data)
    name = body.get("name") if isinstance(body, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a tool definition without a usable name: {_shown(name)}")
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise ValueError(f"tool '{name}': parameters is {type(parameters).__name__}, not a JSON schema")
    if problem := schema_problem(parameters):
        raise ValueError(f"tool '{name}': parameters is no JSON schema: {problem}")
    return Tool(name, str(body.get("description") or ""), parameters)


def read_tools(data: Any) -> tuple[Tool, ...]:
    """Read a list of definitions; see `read_tool`.

    Raises:
        ValueError: not a list, an invalid definition, or a name twice.
    """
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ValueError(f"tools is {type(data).__name__}, not a list")
    tools = tuple(read_tool(item) for item in data)
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"tool '{name}' is defined twice")
    return tools


def read_response(text: str, tools: Iterable[Tool] | None = None, shapes: Sequence[Shape] = CANONICAL) -> Response:
    """Read a response. Thoughts are neither content nor calls (`rl_agents.tools.thoughts`).

    Args:
        tools: that the model may call. A response that is only JSON is a call only if it names one of them, and
            parameters that are written as text get the types of their schema. None: unknown, any name.
        shapes: the accepted forms of calls.
    """
    if len(text) > MAX_RESPONSE_CHARACTERS:
        return Response("", problem=f"the response is longer than {MAX_RESPONSE_CHARACTERS} characters")
    schemas = None if tools is None else {tool.name: tool.parameters for tool in tools}
    try:
        if calls := _read_bare(text.strip(), schemas):
            return Response(*calls)
    except ValueError as error:
        return Response(text.strip(), problem=str(error))
    said = read_thoughts(text, shapes)
    if not said.ends and not said.words.strip():
        return Response("", problem="the reasoning does not end: </think> is missing", thoughts=said.thoughts)
    found, problem = find_calls(said.words, shapes)
    content = without(said.words, found).strip()
    loose = (shape for shape in shapes if shape.closing and shape.closing in content)
    problem = problem or next((f"a {shape.opening} without its {shape.closing}" for shape in loose), "")
    try:
        if problem:
            raise ValueError(problem)
        bare = None if found else _read_bare(content, schemas)
        return Response(*(bare or (content, _calls(found, schemas or {}))), thoughts=said.thoughts)
    except ValueError as error:
        return Response(content, problem=str(error), thoughts=said.thoughts)


def read_call(data: Any) -> ToolCall:
    """Read ``{"name": ..., "arguments": ...}``, or OpenAI's ``{"function": {...}}``; arguments may be JSON text.

    Raises:
        ValueError: an invalid call; the message names the problem.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a tool call is {type(data).__name__}, not an object with name and arguments")
    body = data.get("function", data)
    name = body.get("name") if isinstance(body, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"a tool call without a name: {_shown(data)}")
    arguments = body.get("arguments", body.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = strict_json(arguments or "{}")
        except ValueError as error:
            raise ValueError(f"the arguments of '{name}' are {error}") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of '{name}' are {type(arguments).__name__}, not an object")
    return ToolCall(name, arguments)


def check_call(call: ToolCall, tools: Iterable[Tool]) -> str:
    """Return the problem of a call as one sentence for the agent; empty if the call fits its tool's schema."""
    known = {tool.name: tool for tool in tools}
    if call.name not in known:
        return f"there is no tool '{call.name}'; tools: {', '.join(sorted(known))}"
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    validator = _validator(canonical(known[call.name].parameters))
    try:
        error = best_match(validator.iter_errors(dict(call.arguments)))
    except (Unresolvable, RecursionError, re.error):
        return f"the schema of tool '{call.name}' is broken: a reference or pattern in it cannot be followed"
    if error is None:
        return ""
    where = f" at '{'.'.join(map(str, error.absolute_path))}'" if error.absolute_path else ""
    return f"the arguments of '{call.name}' do not fit its schema{where}: {error.message[:MAX_SHOWN]}"


def write_response(content: str, calls: Sequence[ToolCall]) -> str:
    """Write content and calls in the ``<tool_call>`` form, the inverse of `read_response`."""
    parts = [content.strip()] if content.strip() else []
    return "\n".join([*parts, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)])


def _calls(found: Iterable[FoundCall], schemas: Mapping[str, Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for written in found:
        if written.as_text:
            properties = schemas.get(written.name or "", {}).get("properties") or {}
            calls.append(
                ToolCall(written.name or "", {k: typed(v, properties.get(k)) for k, v in written.value.items()})
            )
        elif written.name:
            calls.append(read_call({"name": written.name, "arguments": written.value}))
        else:
            several = written.several and isinstance(written.value, list)
            calls += [read_call(item) for item in (written.value if several else [written.value])]
    if len(calls) > MAX_CALLS:
        raise ValueError(f"{len(calls)} tool calls in one response, {MAX_CALLS} are allowed")
    return tuple(calls)


def typed(text: str, schema: Any) -> Any:
    """Return a parameter that was written as text as a JSON value of its schema's type.

    Without a schema, a text that is valid JSON is read as JSON, because models' templates write only strings unquoted.
    """
    kinds = schema_types(schema)
    if "string" in kinds and not ("null" in kinds and text.strip() in _PYTHON_NONE):
        return text
    try:
        return strict_json(_PYTHON.get(text.strip(), text))
    except ValueError:
        return text


_PYTHON = {"True": "true", "False": "false", "None": "null"}
_PYTHON_NONE = ("null", "None")


def schema_types(schema: Any) -> set[str]:
    """Return the names of the JSON types that a schema names; empty for any."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    kinds |= {"string"} if any(isinstance(value, str) for value in schema.get("enum", ())) else set()
    return kinds.union(*(schema_types(part) for word in ("anyOf", "oneOf") for part in schema.get(word) or ()))


def _read_bare(content: str, known: Iterable[str] | None) -> tuple[str, tuple[ToolCall, ...]] | None:
    """Read a response that is only JSON with calls (Llama 3, OpenAI's structure); None for other text."""
    text = content.removeprefix("<|python_tag|>").lstrip()
    try:
        values = _json_values(text) if text.startswith("{") and '"name"' in text else []
    except (ValueError, RecursionError):
        return None
    bare = all(set(value) in ({"name", "arguments"}, {"name", "parameters"}) for value in values)
    items = values if bare else values[0].get("tool_calls") if len(values) == 1 else None
    if not isinstance(items, list) or not items:
        return None
    if len(items) > MAX_CALLS:
        raise ValueError(f"{len(items)} tool calls in one response, {MAX_CALLS} are allowed")
    calls = tuple(read_call(item) for item in items)
    if known is not None and not {call.name for call in calls} <= set(known):
        return None
    said = None if bare else values[0].get("content")
    return said.strip() if isinstance(said, str) else "", calls


def _json_values(text: str) -> list[dict[str, Any]]:
    """Read JSON objects with semicolons between them."""
    found, position = [], 0
    while position < len(text):
        value, position = DECODER.raw_decode(text, position)
        check_plain(value)
        if not isinstance(value, dict):
            raise ValueError("no object")
        found.append(value)
        position = re.compile(r"\s*;?\s*").match(text, position).end()  # type: ignore[union-attr]
    return found


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why an object is no JSON schema; empty for a valid schema."""
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema.get("$schema", ""), str):  # the libraries use it as a key
        return "its $schema is no text"
    try:
        _validator(canonical(schema))
    except SchemaError as error:
        return str(error.message[:MAX_SHOWN])
    return ""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """Return the validator of a schema. Its registry is empty: references to other documents are never fetched."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    data = json.loads(schema)
    kind = validator_for(data, default=Draft202012Validator)
    kind.check_schema(data)
    return kind(data, registry=Registry())


def _shown(value: Any) -> str:
    return ascii(value)[:MAX_SHOWN]
