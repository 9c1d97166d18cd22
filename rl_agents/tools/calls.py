"""Tool calls in model responses: OpenAI's tool definitions, reading a response, checking a call.

Two written forms are read: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, once per call (Hermes, Qwen),
and a response that is nothing but JSON in OpenAI's structure, one call or ``{"tool_calls": [...]}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rl_agents.tools.strict_json import canonical, strict_json
from rl_agents.tools.thoughts import read_thoughts

MAX_RESPONSE_CHARACTERS = 262_144
MAX_CALLS = 32
MAX_SHOWN = 120

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
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
    """What a response says, apart from its thoughts.

    Attributes:
        content: the text around the calls, without white space at its ends.
        calls: in the order of the response.
        problem: why the response cannot be read, one sentence for the agent; empty when it can.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


def read_tool(data: Any) -> Tool:
    """Read a definition in the form of OpenAI's chat API (``function`` inside) or of its responses API (flat).

    Raises:
        ValueError: what is wrong with it.
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
    tool = Tool(name, str(body.get("description") or ""), parameters)
    _check_schema(tool)
    return tool


def read_tools(data: Any) -> tuple[Tool, ...]:
    """Read a list of definitions; see `read_tool`.

    Raises:
        ValueError: not a list, a definition that is none, or a name twice.
    """
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ValueError(f"tools is {type(data).__name__}, not a list")
    tools = tuple(read_tool(item) for item in data)
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"tool '{name}' is defined twice")
    return tools


def read_response(text: str) -> Response:
    """Read a response. Thoughts are neither content nor calls (`rl_agents.tools.thoughts`)."""
    if len(text) > MAX_RESPONSE_CHARACTERS:
        return Response("", problem=f"the response is longer than {MAX_RESPONSE_CHARACTERS} characters")
    said = read_thoughts(text)
    spoken = said.words
    if not said.ends and not spoken.strip():
        return Response("", problem="the reasoning does not end: </think> is missing")
    # Up to the last closing tag every opening one finds its end: without one the search would take quadratic time.
    end = spoken.rfind("</tool_call>") + len("</tool_call>") if "</tool_call>" in spoken else 0
    content = (_CALL.sub("", spoken[:end]) + spoken[end:]).strip()
    if "<tool_call>" in content or "</tool_call>" in content:
        return Response(content, problem="a <tool_call> without its </tool_call>")
    bodies = _CALL.findall(spoken[:end])
    try:
        if not bodies:
            return _read_structured(content)
        if len(bodies) > MAX_CALLS:
            raise ValueError(f"{len(bodies)} tool calls in one response, {MAX_CALLS} are allowed")
        return Response(content, tuple(_read_body(body) for body in bodies))
    except ValueError as error:
        return Response(content, problem=str(error))


def read_call(data: Any) -> ToolCall:
    """Read ``{"name": ..., "arguments": ...}``, or OpenAI's ``{"function": {...}}``; arguments may be JSON text.

    Raises:
        ValueError: what is wrong with it.
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
        raise ValueError(f"the call of '{name}' has no arguments; write {{}} for none")
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of '{name}' are {type(arguments).__name__}, not an object")
    return ToolCall(name, arguments)


def check_call(call: ToolCall, tools: Iterable[Tool]) -> str:
    """Return what is wrong with a call as one sentence for the agent; empty when it fits its tool's schema."""
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


def _read_structured(content: str) -> Response:
    """Read a response that is nothing but one JSON object with calls; any other text is content."""
    if not content.startswith("{") or '"name"' not in content:
        return Response(content)
    try:
        data = strict_json(content)
    except ValueError:
        return Response(content)
    if set(data) in ({"name", "arguments"}, {"name", "parameters"}):
        return Response("", (read_call(data),))
    items = data.get("tool_calls")
    if not isinstance(items, list) or not items:
        return Response(content)
    if len(items) > MAX_CALLS:
        raise ValueError(f"{len(items)} tool calls in one response, {MAX_CALLS} are allowed")
    said = data.get("content")
    return Response(said.strip() if isinstance(said, str) else "", tuple(read_call(item) for item in items))


def _read_body(body: str) -> ToolCall:
    try:
        data = strict_json(body.strip())
    except ValueError as error:
        raise ValueError(f"the text inside <tool_call> is {error}") from None
    return read_call(data)


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why an object is no JSON schema; empty when it is one."""
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema.get("$schema", ""), str):  # the libraries look it up as it is
        return "its $schema is no text"
    try:
        _validator(canonical(schema))
    except SchemaError as error:
        return str(error.message[:MAX_SHOWN])
    return ""


def _check_schema(tool: Tool) -> None:
    if problem := schema_problem(tool.parameters):
        raise ValueError(f"tool '{tool.name}': parameters is no JSON schema: {problem}")


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """Return the validator of a schema. Its registry is empty: references to other documents are never fetched.

    Raises:
        SchemaError: it is none; an ``$id`` that is no text would break the validator before that is said.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    data = json.loads(schema)
    kind = validator_for(data, default=Draft202012Validator)
    kind.check_schema(data)
    return kind(data, registry=Registry())


def _shown(value: Any) -> str:
    return ascii(value)[:MAX_SHOWN]
