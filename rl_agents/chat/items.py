"""Converts items of OpenAI's Responses API: reasoning, message and calls of a turn become one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    turn = _AssistantTurn(excluded)
    for number, item in enumerate(items, start=1):
        try:
            if not isinstance(item, Mapping):
                raise ValueError(f"{type(item).__name__}, not an object")
            kind = item.get("type") or "message"
            kind = CUSTOM.get(kind, kind) if isinstance(kind, str) and excluded is not None else kind
            if kind not in ITEMS and excluded is not None:
                excluded[f"input.{short(kind)}"] += 1
            elif not turn.take(kind, item):
                messages += [*turn.finish(), _plain_item(kind, item, excluded)]
            elif turn.full:
                messages += turn.finish()
                turn.take(kind, item)
        except ValueError as error:
            raise ValueError(f"input item {number}: {error}") from None
    return (*messages, *turn.finish())


class _AssistantTurn:
    """Collects the items of an assistant's turn. ``full``: the last item begins another turn."""

    def __init__(self, excluded: Excluded | None) -> None:
        self._excluded = excluded
        self._clear()

    def _clear(self) -> None:
        self.thoughts, self.content, self.said, self.full = "", "", False, False
        self.calls: list[Mapping[str, Any]] = []

    def take(self, kind: str, item: Mapping[str, Any]) -> bool:
        """Add an item; return False if it does not belong to an assistant's turn."""
        lax = self._excluded is not None
        if kind == "reasoning":
            self.full = self.said or bool(self.calls)
            if not self.full:
                self.thoughts += read_content(item.get("summary") or item.get("content"), self._excluded)
            return True
        if kind == "message" and item.get("role") == "assistant":
            content = read_content(item.get("content"), self._excluded)
            thoughts, words = split_thoughts(content)
            self.full = self.said or bool(self.calls)
            if not self.full and lax and thoughts and not words.strip():
                self.thoughts += thoughts  # pydantic-ai sends thoughts as a message before the words
            elif not self.full:
                self.content, self.said = content, True
            return True
        if kind == "function_call":
            name = f"{item['namespace']}.{item.get('name')}" if item.get("namespace") else item.get("name")
            named = item.get("call_id") or item.get("id") or f"call_{len(self.calls)}"
            self.calls.append({**item, "name": name, "id": named})
            if not lax:
                read_calls(self.calls[-1:])  # an error names its item
            return True
        return False

    def finish(self) -> list[Message]:
        calls, ids, unreadable = read_calls(self.calls, self._excluded)
        content, thoughts = "\n".join(filter(None, (self.content, unreadable))), self.thoughts
        spoken = self.said or bool(self.calls) or (self._excluded is not None and bool(thoughts))
        self._clear()
        return [assistant_message(content, calls, ids, thoughts)] if spoken else []


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
