"""Chat messages in one form, to which all trace formats are converted and which chat templates render.

A message is a dictionary as in OpenAI's chat API with two differences: content is text, and the arguments of a tool
call are a JSON object instead of JSON text. Assistant messages may have thoughts as ``reasoning_content``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_agents.tools.calls import Tool, ToolCall, read_call, write_response
from rl_agents.tools.thoughts import read_thoughts

Message = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")
#: Other names of roles.
ALIASES = {"developer": "system"}
#: Keys under which servers return an assistant's thoughts.
THOUGHTS = ("reasoning_content", "reasoning")
#: Types of content parts with text, and the key of the text.
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "summary_text": "text"}
LAX_PARTS = {"refusal": "refusal", "reasoning_text": "text"}
#: Parts that contain text, like a document whose source is text.
NESTED = ("search_result", "compaction", "tool_result")
#: Parts of a client's messages that the model does not get, counted by name. With a counter, a reader accepts what the
#: providers' APIs accept. Without one it is strict, for training data.
Excluded = Counter[str]


def read_message(data: Any, excluded: Excluded | None = None) -> Message:
    """Check a message in OpenAI's format and return it in the form of this module.

    Args:
        excluded: accept what clients send back, including empty content, refusals and invalid calls.

    Raises:
        ValueError: the problem.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a message is {type(data).__name__}, not an object")
    if "role" not in data:
        raise ValueError("a message without role")
    role = ALIASES.get(data["role"], data["role"]) if isinstance(data["role"], str) else data["role"]
    if role not in ROLES:
        raise ValueError(f"unknown role {data['role']!r}; valid: {', '.join(ROLES)}")
    message: Message = {"role": role, "content": read_content(data.get("content"), excluded)}
    if role == "assistant":
        if excluded is not None and not message["content"] and isinstance(data.get("refusal"), str):
            message["content"] = data["refusal"]
        _read_assistant(data, message, excluded)
    elif role == "tool":
        if excluded is None and not (isinstance(data.get("tool_call_id"), str) and data["tool_call_id"]):
            raise ValueError("a tool result without tool_call_id")
        message["tool_call_id"] = str(data.get("tool_call_id") or "")
    elif excluded is None and not message["content"].strip():
        raise ValueError(f"empty content in a {role} message")
    return message


def read_content(content: Any, excluded: Excluded | None = None) -> str:
    """Return content as text: its parts, separated by line breaks.

    Args:
        excluded: also read refusals and thoughts, and replace images and similar parts by a note.

    Raises:
        ValueError: content of another type.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"content is {type(content).__name__}, not text")
    return "\n".join(text for part in content if (text := _part_text(part, excluded)))


def _part_text(part: Any, excluded: Excluded | None) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    kind = kind if isinstance(kind, str) else type(kind).__name__
    valid = TEXT_PARTS if excluded is None else TEXT_PARTS | LAX_PARTS
    text = part.get(valid[kind]) if kind in valid else None
    if isinstance(text, str):
        return text
    if excluded is None or kind in valid or not isinstance(part, Mapping | str):
        raise ValueError(f"a content part of type {kind!r}; only text is read")
    if isinstance(part, str):
        return part
    source = part.get("source") if kind == "document" else part if kind in NESTED else None
    source = source if isinstance(source, Mapping) else {}
    inner = source.get("data") if source.get("type") == "text" else source.get("content")
    if isinstance(inner, str | list):
        return read_content(inner, excluded)
    excluded[f"content.{short(kind)}"] += 1
    return f"[{short(kind)} excluded: the model reads text only]"


def read_calls(items: Sequence[Any], excluded: Excluded | None = None) -> tuple[list[ToolCall], list[str], str]:
    """Return an answer's calls, their ids, and invalid calls as text.

    Args:
        items: each in a form of `read_call`, or a call of a custom tool (``name`` and ``input``, a text).
        excluded: None: an invalid call is an error.

    Raises:
        ValueError: the problem of the first invalid call.
    """
    calls: list[ToolCall] = []
    ids: list[str] = []
    texts: list[str] = []
    for number, item in enumerate(items):
        try:
            named = isinstance(item, Mapping) and (item.get("call_id") or item.get("id"))
            if not named and excluded is None:
                raise ValueError("a tool call without id")
            calls.append(_custom_call(item) or read_call(item))
            ids.append(str(named or f"call_{number}"))
        except ValueError:
            if excluded is None or not isinstance(item, Mapping):
                raise
            excluded["calls.unreadable"] += 1
            body = item.get("function", item)
            body = body if isinstance(body, Mapping) else {}
            arguments = body.get("arguments", body.get("input"))
            shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            texts.append(f"{body.get('name')}({shown})")
    return calls, ids, "\n".join(texts)


def _custom_call(item: Any) -> ToolCall | None:
    body = item.get("custom", item) if isinstance(item, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(body.get("input"), str) or "arguments" in body:
        return None
    return ToolCall(body["name"], {"input": body["input"]}) if isinstance(body.get("name"), str) else None


def short(name: Any) -> str:
    """Return a client's word in a form that is safe to report."""
    return "".join(letter for letter in str(name) if letter.isalnum() or letter in "._-")[:60]


def assistant_message(content: str, calls: Sequence[ToolCall], ids: Sequence[str], thoughts: str = "") -> Message:
    """Return an assistant's message; thoughts inside the content are moved to ``reasoning_content``."""
    inside, content = split_thoughts(content)
    message: Message = {"role": "assistant", "content": content}
    if (thoughts or inside).strip():
        message["reasoning_content"] = thoughts or inside
    if calls:
        message["tool_calls"] = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for name, call in zip(ids, calls, strict=True)
        ]
    return message


def split_thoughts(content: str) -> tuple[str, str]:
    """Return the thoughts at the beginning of a turn, and the rest; an unclosed thought counts as text.

    >>> split_thoughts("<think>a</think> b")
    ('a', ' b')
    """
    said = read_thoughts(content)
    return (said.thoughts, said.words) if said.ends else ("", content)


def inline_thoughts(message: Message) -> Message:
    """Return a message with its thoughts in the content as ``<think>...</think>``, for templates that drop them."""
    if "reasoning_content" not in message:
        return message
    rest = {name: value for name, value in message.items() if name != "reasoning_content"}
    return {**rest, "content": f"<think>{message['reasoning_content']}</think>{message['content']}"}


def message_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return tuple(ToolCall(function["name"], function["arguments"]) for function in functions)


def action_text(message: Mapping[str, Any]) -> str:
    """Return an assistant's turn as a model writes it, without thoughts."""
    return write_response(message["content"], message_calls(message))


def check_dialogue(messages: Sequence[Message], tools: Sequence[Tool]) -> None:
    """Check that messages form a dialogue.

    Raises:
        ValueError: the first problem, with the number of its message.
    """
    if not any(message["role"] == "assistant" for message in messages):
        raise ValueError("no assistant turn")
    known = {tool.name for tool in tools}
    for number, problem in _problems(messages, known):
        raise ValueError(f"message {number}: {problem}")


def _problems(messages: Sequence[Message], known: set[str]) -> Iterator[tuple[int, str]]:
    pending: list[str] = []
    for number, message in enumerate(messages, start=1):
        role, before = message["role"], messages[number - 2]["role"] if number > 1 else ""
        if role == "tool":
            if message["tool_call_id"] not in pending:
                yield number, f"a tool result without call (id {message['tool_call_id']!r})"
            pending = [name for name in pending if name != message["tool_call_id"]]
            continue
        if pending:
            yield number, f"the call {pending[0]!r} has no tool result"
        if role == "system" and number > 1:
            yield number, "a system message after the beginning"
        if role != "assistant":
            continue
        if before == "assistant":
            yield number, "two assistant turns in a row"
        if not message["content"].strip() and "tool_calls" not in message:
            yield number, "an assistant turn with neither content nor calls"
        for call in message.get("tool_calls", ()):
            if call["id"] in pending:  # after its result, an id may be used again, as in real traces
                yield number, f"two open calls with the id {call['id']!r}"
            if known and call["function"]["name"] not in known:
                yield number, f"unknown tool '{call['function']['name']}'; defined: {', '.join(sorted(known))}"
            pending.append(call["id"])


def _read_assistant(data: Mapping[str, Any], message: Message, excluded: Excluded | None) -> None:
    thoughts = next((data[name] for name in THOUGHTS if isinstance(data.get(name), str) and data[name].strip()), "")
    raw = data.get("tool_calls") or []
    if not isinstance(raw, list):
        raise ValueError(f"tool_calls is {type(raw).__name__}, not a list")
    calls, ids, unreadable = read_calls(raw, excluded)
    words = "\n".join(filter(None, (message["content"], unreadable)))
    message.update(assistant_message(words, calls, ids, thoughts))
