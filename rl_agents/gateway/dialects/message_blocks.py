"""Anthropic's content blocks as messages: one message of theirs may be several of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Message, assistant_message, read_content
from rl_agents.gateway.dialects.fields import problem, shown
from rl_agents.tools.calls import ToolCall, read_call
from rl_agents.web.errors import bad_request

ROLES = ("user", "assistant", "system")
FAILED = "Error: "


def messages_from_blocks(items: Sequence[Any]) -> tuple[Message, ...]:
    """Turn messages into ours.

    Raises:
        ApiError: the first problem, with its place.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        try:
            messages += _read(item)
        except ValueError as error:
            raise problem("messages", error, f"messages[{number}]") from None
    if messages[-1]["role"] == "assistant":
        why = "the last one is an assistant's; answers that begin with the client's own words are not served"
        raise bad_request(f"messages: {why}", "messages", "unsupported_value")
    return tuple(messages)


def _read(item: Any) -> list[Message]:
    if not isinstance(item, Mapping):
        raise ValueError(f"a message is {type(item).__name__}, not an object")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise ValueError(f"unknown role {shown(role)}; valid: {', '.join(ROLES)}")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ValueError(f"content is {type(content).__name__}, not text or a list of blocks")
    if role == "assistant":
        return [_assistant(blocks)]
    return _results_and_words(blocks) if role == "user" else [{"role": "system", "content": read_content(blocks)}]


def _results_and_words(blocks: Sequence[Any]) -> list[Message]:
    """Read a user's message: results of tools first, each as a message of its own, then the words."""
    results = [_result(block) for block in blocks if _kind(block) == "tool_result"]
    words = [block for block in blocks if _kind(block) != "tool_result"]
    return [*results, *([{"role": "user", "content": read_content(words)}] if words or not results else [])]


def _result(block: Mapping[str, Any]) -> Message:
    """Read a tool's result; that it failed is said in its text, since no chat template has a place for it."""
    if not isinstance(block.get("tool_use_id"), str) or not block["tool_use_id"]:
        raise ValueError("a tool_result without tool_use_id")
    content = read_content(block.get("content"))
    if block.get("is_error") is True and not content.lower().startswith("error"):
        content = FAILED + content
    return {"role": "tool", "content": content, "tool_call_id": block["tool_use_id"]}


def _assistant(blocks: Sequence[Any]) -> Message:
    """Read an assistant's message; thoughts that somebody encrypted are left out."""
    thoughts, words = [], []
    calls: list[ToolCall] = []
    ids: list[str] = []
    for block in blocks:
        kind = _kind(block)
        if kind == "thinking":
            thoughts.append(_thoughts(block))
        elif kind == "tool_use":
            calls.append(_call(block))
            ids.append(block["id"])
        elif kind != "redacted_thinking":
            words.append(block)
    return assistant_message(read_content(words), calls, ids, "".join(thoughts))


def _thoughts(block: Mapping[str, Any]) -> str:
    if not isinstance(block.get("thinking"), str):
        raise ValueError("a thinking block without thinking")
    return str(block["thinking"])


def _call(block: Mapping[str, Any]) -> ToolCall:
    if not isinstance(block.get("id"), str) or not block["id"]:
        raise ValueError("a tool_use without id")
    return read_call({"name": block.get("name"), "arguments": block.get("input")})


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else None
