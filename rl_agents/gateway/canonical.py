"""When two messages are the same: clients send back what they were answered in forms of their own.

They drop thoughts, write a call's arguments anew (other spaces, order of keys, 1 for 1.0), strip spaces, send None for
no content, or give calls other ids. None of that makes another history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Message, message_calls
from rl_agents.tools.calls import Tool, ToolCall, read_response
from rl_agents.tools.strict_json import canonical
from rl_agents.tools.thoughts import read_thoughts


def split_header(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the system messages that a history begins with, and the rest."""
    first = next((number for number, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return tuple(messages[:first]), tuple(messages[first:])


def header_key(system: Iterable[Message], tools: Iterable[Tool]) -> str:
    """Return the key of what every prompt of a conversation begins with: system messages and tools."""
    return canonical([[_text(message) for message in system], [tool.to_openai() for tool in tools]])


def message_key(message: Message, thoughts: bool) -> str:
    """Return the key of a message; ``thoughts``: an assistant's thoughts tell messages apart, too."""
    if message["role"] != "assistant":
        return canonical([message["role"], _text(message)])
    said = str(message.get("reasoning_content") or "") if thoughts else ""
    return _assistant_key(_text(message), message_calls(message), said)


def answer_keys(content: str, thoughts: str, calls: Sequence[ToolCall], raw: str, as_sent: bool) -> tuple[str, ...]:
    """Return the keys of all messages that a client may make of an answer, the one that it was shown first.

    Args:
        content, thoughts, calls: what the client was shown.
        raw: all that was sampled, as text: clients may parse it on their own.
        as_sent: thoughts tell messages apart.
    """
    spoken = read_thoughts(raw).words.strip()
    parsed = read_response(spoken)
    forms: list[tuple[str, Sequence[ToolCall]]] = [(content.strip(), calls), (spoken, ())]
    if calls:
        forms.append(("", calls))
    if parsed.calls and not parsed.problem:
        forms += [(parsed.content, parsed.calls), ("", parsed.calls)]
    said = thoughts if as_sent else ""
    return tuple(dict.fromkeys(_assistant_key(text, found, said) for text, found in forms))


def call_ids(message: Message) -> tuple[str, ...]:
    return tuple(str(call["id"]) for call in message.get("tool_calls", ()))


def _assistant_key(text: str, calls: Sequence[ToolCall], thoughts: str) -> str:
    return canonical(["assistant", text, [[c.name, _plain(c.arguments)] for c in calls], thoughts.strip()])


def _text(message: Mapping[str, Any]) -> str:
    return str(message.get("content") or "").strip()


def _plain(value: Any) -> Any:
    """Whole numbers have one form: JavaScript writes 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
