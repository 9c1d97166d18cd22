"""Anthropic's content blocks as messages: one message of theirs may be several of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Excluded, Message, assistant_message, read_calls, read_content, short
from rl_agents.gateway.dialects.fields import problem, shown

ROLES = ("user", "assistant", "system")
FAILED = "Error: "
#: A block of Claude Code's system prompt that the provider reads and no model does; it can differ in every request.
BILLING = "x-anthropic-billing-header:"


def system_text(value: Any, excluded: Excluded) -> str:
    """Return the system prompt.

    Raises:
        ApiError: it is no text.
    """
    blocks = value if isinstance(value, list) else [value]
    kept = [block for block in blocks if not _is_billing(block)]
    if len(kept) < len(blocks):
        excluded["system.billing_header"] += 1
    try:
        return read_content(kept if isinstance(value, list) else value, excluded)
    except ValueError as error:
        raise problem("system", error) from None


def _is_billing(block: Any) -> bool:
    return isinstance(block, Mapping) and str(block.get("text")).startswith(BILLING)


def messages_from_blocks(items: Sequence[Any], excluded: Excluded) -> tuple[Message, ...]:
    """Turn messages into ours.

    Raises:
        ApiError: the first problem, with its place.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        try:
            messages += _read(item, excluded)
        except ValueError as error:
            raise problem("messages", error, f"messages[{number}]") from None
    if messages[-1]["role"] == "assistant":
        excluded["messages.prefill"] += 1  # the answer does not continue it: it is a turn of its own
    return tuple(messages)


def _read(item: Any, excluded: Excluded) -> list[Message]:
    if not isinstance(item, Mapping):
        raise ValueError(f"a message is {type(item).__name__}, not an object")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise ValueError(f"unknown role {shown(role)}; valid: {', '.join(ROLES)}")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ValueError(f"content is {type(content).__name__}, not text or a list of blocks")
    if role == "assistant":
        return [_assistant(blocks, excluded)]
    if role == "system":
        return [{"role": "system", "content": read_content(blocks, excluded)}]
    return _results_and_words(blocks, excluded)


def _results_and_words(blocks: Sequence[Any], excluded: Excluded) -> list[Message]:
    """Read a user's message: results of tools first, each as a message of its own, then the words."""
    results = [_result(block, excluded) for block in blocks if _kind(block) == "tool_result"]
    words = [block for block in blocks if _kind(block) != "tool_result"]
    return [*results, *([{"role": "user", "content": read_content(words, excluded)}] if words or not results else [])]


def _result(block: Mapping[str, Any], excluded: Excluded) -> Message:
    """Read a tool's result; that it failed is said in its text, since no chat template has a place for it."""
    content = read_content(block.get("content"), excluded)
    if block.get("is_error") is True and not content.lower().startswith("error"):
        content = FAILED + content
    return {"role": "tool", "content": content, "tool_call_id": str(block.get("tool_use_id") or "")}


def _assistant(blocks: Sequence[Any], excluded: Excluded) -> Message:
    """Read an assistant's message, without what the provider's own tools did and without encrypted thoughts."""
    thoughts: list[str] = []
    words: list[Any] = []
    uses: list[Mapping[str, Any]] = []
    for block in blocks:
        kind = _kind(block)
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            uses.append({"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")})
        elif kind == "redacted_thinking" or str(kind).endswith(("_tool_use", "_tool_result")):
            excluded[f"content.{short(kind)}"] += 1
        else:
            words.append(block)
    calls, ids, unreadable = read_calls(uses, excluded)
    content = "\n".join(filter(None, (read_content(words, excluded), unreadable)))
    return assistant_message(content, calls, ids, "".join(thoughts))


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else None
