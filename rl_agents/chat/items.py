"""Items of OpenAI's responses API as messages: reasoning, message and calls of one turn become one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Message, assistant_message, read_content, read_message, split_thoughts
from rl_agents.tools.calls import ToolCall, read_call

ITEMS = ("message", "reasoning", "function_call", "function_call_output")


def messages_from_items(items: Sequence[Any], lax: bool = False) -> tuple[Message, ...]:
    """Turn items into messages.

    Args:
        lax: accept what clients send back and no trace should hold: empty content, refusals, thoughts alone.

    Raises:
        ValueError: the first problem, with the number of its item, from 1 on.
    """
    messages: list[Message] = []
    turn = _AssistantTurn(lax)
    for number, item in enumerate(items, start=1):
        try:
            if not turn.take(item):
                messages += turn.finish()
                messages.append(_plain_item(item, lax))
            elif turn.full:
                messages += turn.finish()
                turn.take(item)
        except ValueError as error:
            raise ValueError(f"input item {number}: {error}") from None
    return (*messages, *turn.finish())


class _AssistantTurn:
    """Collects the items of an assistant's turn. ``full``: the last item that was offered begins another turn."""

    def __init__(self, lax: bool) -> None:
        self._lax = lax
        self._clear()

    def _clear(self) -> None:
        self.thoughts, self.content, self.said, self.full = "", "", False, False
        self.calls: list[ToolCall] = []
        self.ids: list[str] = []

    def take(self, item: Any) -> bool:
        """Add an item; return False when it belongs to no assistant's turn."""
        if not isinstance(item, Mapping):
            raise ValueError(f"{type(item).__name__}, not an object")
        kind = item.get("type") or "message"
        if kind == "reasoning":
            self.full = self.said or bool(self.calls)
            if not self.full:
                self.thoughts += read_content(item.get("summary") or item.get("content"), self._lax)
            return True
        if kind == "message" and item.get("role") == "assistant":
            content = read_content(item.get("content"), self._lax)
            thoughts, words = split_thoughts(content)
            self.full = self.said or bool(self.calls)
            if not self.full and self._lax and thoughts and not words.strip():
                self.thoughts += thoughts  # pydantic-ai sends thoughts as a message before the words
            elif not self.full:
                self.content, self.said = content, True
            return True
        if kind == "function_call":
            self.calls.append(read_call(item))
            self.ids.append(str(item.get("call_id") or item.get("id") or f"call_{len(self.ids)}"))
            return True
        return False

    def finish(self) -> list[Message]:
        """Return the turn as a list of one message, or of none; begin another."""
        content, calls, ids, thoughts = self.content, self.calls, self.ids, self.thoughts
        spoken = self.said or bool(calls) or (self._lax and bool(thoughts))
        self._clear()
        return [assistant_message(content, calls, ids, thoughts)] if spoken else []


def _plain_item(item: Mapping[str, Any], lax: bool) -> Message:
    kind = item.get("type") or "message"
    if kind == "function_call_output":
        if lax and not (isinstance(item.get("call_id"), str) and item["call_id"]):
            raise ValueError("a function_call_output without call_id")
        output = item.get("output")
        text = output if isinstance(output, str) else read_content(output, lax)
        return {"role": "tool", "content": text, "tool_call_id": str(item.get("call_id"))}
    if kind != "message":
        raise ValueError(f"an item of type {kind!r}; valid: {', '.join(ITEMS)}")
    return read_message(item, lax)
