"""Histories in a form that a chat template can render: order of results, arguments, system messages, turns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from rl_agents.chat.messages import Message, action_text

SHORT_ID = 9
#: Where a template accepts system messages; it refuses or omits others.
SystemPlaces = Literal["anywhere", "first", "nowhere"]


def in_call_order(messages: Sequence[Message]) -> list[Message]:
    """Sort the results of an answer's calls in the order of its calls, since some templates do not render ids."""
    found: list[Message] = []
    places: dict[str, int] = {}
    for results, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        run = list(group)
        if results:
            run.sort(key=lambda message: places.get(message["tool_call_id"], len(places)))
        else:
            places = {call["id"]: place for place, call in enumerate(run[-1].get("tool_calls", ()))}
        found += run
    return found


def with_text_arguments(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    found = [dict(message) for message in messages]
    for message in found:
        for called in (calls := [dict(call) for call in message.get("tool_calls", ())]):
            text = json.dumps(called["function"]["arguments"], ensure_ascii=False)
            called["function"] = {**called["function"], "arguments": text}
        message |= {"tool_calls": calls} if calls else {}
    return found


def with_short_ids(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages whose tool calls have ids of nine letters and digits, as Mistral's templates require.

    >>> with_short_ids([{"role": "tool", "tool_call_id": "call_1", "content": "7"}])[0]["tool_call_id"]
    '74196fe72'
    """
    found = [dict(message) for message in messages]
    for message in found:
        if "tool_call_id" in message:
            message["tool_call_id"] = _short_id(message["tool_call_id"])
        if "tool_calls" in message:
            message["tool_calls"] = [{**call, "id": _short_id(str(call["id"]))} for call in message["tool_calls"]]
    return found


def _short_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:SHORT_ID]


def system_moved(messages: Sequence[Message], places: SystemPlaces) -> list[Message]:
    """Return messages with system messages only where the template accepts them: one at the beginning, or none.

    System messages at the beginning are joined; later ones become user messages.
    """
    if places == "anywhere" or all(message["role"] != "system" for message in messages):
        return list(messages)
    first = next((number for number, message in enumerate(messages) if message["role"] != "system"), len(messages))
    header = "\n\n".join(message["content"] for message in messages[:first])
    rest = [{**message, "role": "user"} if message["role"] == "system" else message for message in messages[first:]]
    if not first:
        return rest
    if places == "first":
        return [{"role": "system", "content": header}, *rest]
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": f"{header}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": header}, *rest]


def plain_turns(messages: Sequence[Message]) -> list[Message]:
    """Return a history that every template can render: calls and results as text, alternating users and assistants.

    For invalid histories: results without calls, two answers in a row, no user message at the beginning.
    """
    found: list[Message] = []
    for message in messages:
        role = "user" if message["role"] == "tool" else message["role"]
        content = action_text(message) if role == "assistant" else message["content"]
        if found and found[-1]["role"] == role:
            found[-1] = {"role": role, "content": f"{found[-1]['content']}\n\n{content}".strip()}
            continue
        if role == "assistant" and all(earlier["role"] == "system" for earlier in found):
            found.append({"role": "user", "content": ""})
        found.append({"role": role, "content": content})
    return found if found and found[-1]["role"] != "system" else [*found, {"role": "user", "content": ""}]
