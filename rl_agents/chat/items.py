"""Converts items of OpenAI's Responses API: reasoning, message and calls of a turn become one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.chat.messages import (
    Excluded,
    Message,
    assistant_message,
    read_calls,
    read_content,
    read_message,
    short,
    split_thoughts,
)

ITEMS = ("message", "reasoning", "function_call", "function_call_output")
#: Types that only clients send; training data do not contain them.
CUSTOM = {"custom_tool_call": "function_call", "custom_tool_call_output": "function_call_output"}


def messages_from_items(items: Sequence[Any], excluded: Excluded | None = None) -> tuple[Message, ...]:
    """Convert items to messages.

    Args:
        excluded: accept what clients send back (see `Excluded`): empty content, refusals, thoughts alone, invalid
            calls. Items of other types, such as those of a provider's own tools, are counted there.

    Raises:
        ValueError: the first problem, with the number of its item, from 1.
    """
    messages: list[Message] = []
    turn = _AssistantTurn()
    for number, item in enumerate(items, start=1):
        try:
            if not isinstance(item, Mapping):
                raise ValueError(f"{type(item).__name__}, not an object")
            kind = item.get("type") or "message"
            kind = CUSTOM.get(kind, kind) if isinstance(kind, str) and excluded is not None else kind
            said = kind == "message" and item.get("role") == "assistant"
            if kind not in ITEMS and excluded is not None:
                excluded[f"input.{short(kind)}"] += 1
            elif kind == "function_call":
                turn.call(item, excluded)
            elif said or kind == "reasoning":
                if turn.content is not None or turn.calls:
                    messages += turn.messages(excluded)
                    turn = _AssistantTurn()
                turn.say(item, excluded, aloud=said)
            else:
                messages += [*turn.messages(excluded), _plain_item(kind, item, excluded)]
                turn = _AssistantTurn()
        except ValueError as error:
            raise ValueError(f"input item {number}: {error}") from None
    return (*messages, *turn.messages(excluded))


@dataclass
class _AssistantTurn:
    """The items of an assistant's turn: thoughts, then text, then calls."""

    thoughts: str = ""
    content: str | None = None
    calls: list[Mapping[str, Any]] = field(default_factory=list)

    def say(self, item: Mapping[str, Any], excluded: Excluded | None, aloud: bool) -> None:
        if not aloud:
            self.thoughts += read_content(item.get("summary") or item.get("content"), excluded)
            return
        content = read_content(item.get("content"), excluded)
        thoughts, words = split_thoughts(content)
        if excluded is not None and thoughts and not words.strip():
            self.thoughts += thoughts  # pydantic-ai sends thoughts as a message before the text
        else:
            self.content = content

    def call(self, item: Mapping[str, Any], excluded: Excluded | None) -> None:
        name = f"{item['namespace']}.{item.get('name')}" if item.get("namespace") else item.get("name")
        named = item.get("call_id") or item.get("id") or f"call_{len(self.calls)}"
        self.calls.append({**item, "name": name, "id": named})
        if excluded is None:
            read_calls(self.calls[-1:])  # an error names its item

    def messages(self, excluded: Excluded | None) -> list[Message]:
        calls, ids, unreadable = read_calls(self.calls, excluded)
        content = "\n".join(filter(None, (self.content, unreadable)))
        spoken = self.content is not None or self.calls or (excluded is not None and self.thoughts)
        return [assistant_message(content, calls, ids, self.thoughts)] if spoken else []


def _plain_item(kind: Any, item: Mapping[str, Any], excluded: Excluded | None) -> Message:
    if kind == "function_call_output":
        return {
            "role": "tool",
            "content": read_content(item.get("output"), excluded),
            "tool_call_id": str(item.get("call_id")),
        }
    if kind != "message":
        raise ValueError(f"an item of type {kind!r}; valid: {', '.join(ITEMS)}")
    return read_message(item, excluded)
