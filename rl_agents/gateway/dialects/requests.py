"""Shared parts of the dialects' requests: fields and definitions of tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from rl_agents.chat.messages import Excluded, Message, short
from rl_agents.gateway.calls import Dialect, ModelCall, ToolForm
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.web.bodies import Body
from rl_agents.web.errors import ApiError, bad_request

MAX_SHOWN = 300
#: The parameters of a custom tool, whose only argument is any text.
TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}

Limit = Annotated[int | None, Field(ge=1)]
#: Strings that end an answer: one or a list.
Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=256)]],
    Field(max_length=64),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    AfterValidator(lambda stops: list(dict.fromkeys(stops))),
]


class DialectRequest(Body):
    """Fields of every dialect. Others are accepted: a dialect takes the known ones, and the rest is counted."""

    model_config = ConfigDict(extra="allow", strict=True)
    model: str = Field(min_length=1)
    tools: list[Any] = Field([])
    stream: bool = False

    def several(self, names: Iterable[str]) -> dict[str, Any]:
        """Remove and return those of the named fields that the client sent."""
        extra = self.model_extra or {}
        return {name: extra.pop(name) for name in names if name in extra}


def model_call(
    dialect: Dialect, body: DialectRequest, tools: Sequence[Any], functions: Sequence[str], params: Mapping[str, Any],
    ignored: Excluded, **fields: Any,
) -> ModelCall:  # fmt: skip
    """Return the call of a request, with its tools; the remaining fields of the body are counted as ignored.

    Args:
        tools, functions: see `offered_tools`.
        fields: other fields of `ModelCall`.
    """
    offered, forms = offered_tools(tools, functions, ignored)
    ignored.update(map(short, body.model_extra or ()))
    params = {**params, **tool_params(tools)}
    common: dict[str, Any] = {"params": params, "ignored": ignored, "forms": forms}
    return ModelCall(dialect, body.model, tools=offered, stream=body.stream, **common, **fields)


def problem(field: str, error: ValueError, place: str = "") -> ApiError:
    """Return a reader's error as a 400 that names the field."""
    text = " ".join(str(error).split())
    text = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
    return bad_request(f"{place or field}: {text}", field)


def note_dropped(excluded: Excluded, name: str, items: Iterable[Any], known: Sequence[str]) -> None:
    """Count unknown fields of messages, as ``messages.name``."""
    for item in items:
        if isinstance(item, Mapping):
            names = (key for key, value in item.items() if value is not None and key not in known)
            excluded.update(f"{name}.{short(key)}" for key in names)


def system_first(instructions: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages after a system message, if there are instructions."""
    first: Sequence[Message] = [{"role": "system", "content": instructions}] if instructions else []
    return (*first, *messages)


def offered_tools(
    items: Sequence[Any], functions: Sequence[str], excluded: Excluded
) -> tuple[tuple[Tool, ...], dict[str, ToolForm]]:
    """Return the offered tools, and the forms of those that are not plain functions.

    Args:
        functions: values of ``type`` for the client's own functions; a tool without type is one.

    Raises:
        ApiError: names the invalid tool.
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
    """Yield definitions in OpenAI's flat format, and their forms; names in a namespace get its name as prefix."""
    for item in items:
        kind = item.get("type") or functions[0] if isinstance(item, Mapping) else functions[0]
        body = item.get("function") or item.get("custom") or item if isinstance(item, Mapping) else item
        if kind == "namespace" and not namespace and isinstance(item.get("tools"), list):
            yield from _definitions(item["tools"], functions, excluded, str(item.get("name")))
        elif kind in functions or not isinstance(body, Mapping):
            yield _named(body, False, namespace)
        elif kind == "custom":
            yield _named({**body, "parameters": TEXT}, True, namespace)
        else:
            excluded[f"tools.{short(kind)}"] += 1


def _named(body: Any, custom: bool, namespace: str) -> tuple[Any, ToolForm | None]:
    if not isinstance(body, Mapping) or not (custom or namespace):
        return body, None
    name = body.get("name")
    form = ToolForm(str(name), custom, namespace)
    return ({**body, "name": f"{namespace}.{name}"} if namespace else body), form


def tool_params(items: Sequence[Any]) -> dict[str, Any]:
    """Return ``tools.strict`` if a tool requires arguments that fit its schema."""
    bodies = [item.get("function", item) for item in items if isinstance(item, Mapping)]
    strict = any(isinstance(body, Mapping) and body.get("strict") is True for body in bodies)
    return {"tools.strict": True} if strict else {}
