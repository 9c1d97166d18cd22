"""Streams read back: server-sent events as objects, and what a client has when it adds them up."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]


def events_of(stream: bytes) -> list[Event]:
    """Split a stream into its events; a name, where there is one, equals its event's type."""
    found = []
    assert stream.isascii()
    for block in stream.decode().split("\n\n")[:-1]:
        *names, data = block.split("\n")
        assert data.startswith("data: ") and len(names) <= 1
        if data == "data: [DONE]":
            continue
        event = json.loads(data.removeprefix("data: "))
        assert not names or names[0] == f"event: {event['type']}"
        found.append(event)
    return found


def fold_chat(events: list[Event]) -> Event:
    """Add up chunks as OpenAI's SDK does."""
    choices: dict[int, Event] = {}
    for event in events:
        for part in event["choices"]:
            empty: Event = {"role": "assistant", "content": None, "refusal": None}
            choice = choices.setdefault(part["index"], {"index": part["index"], "message": empty, "logprobs": None})
            message, delta = choice["message"], part["delta"]
            for name in ("content", "reasoning_content"):
                if delta.get(name) is not None:
                    message[name] = (message.get(name) or "") + delta[name]
            for called in delta.get("tool_calls", ()):
                assert called["index"] == len(message.setdefault("tool_calls", []))
                message["tool_calls"].append({key: value for key, value in called.items() if key != "index"})
            choice["finish_reason"] = part["finish_reason"]
    head = {name: value for name, value in events[0].items() if name not in ("choices", "usage")}
    assert all({**event, **head} == event for event in events)
    ordered = [choices[index] for index in sorted(choices)]
    return {**head, "object": "chat.completion", "choices": ordered, "usage": events[-1]["usage"]}


def fold_response(events: list[Event]) -> Event:
    """Check that the items add up to the last response, and return that."""
    items: list[Event] = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append(json.loads(json.dumps(event["item"])))
        elif kind == "response.content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif kind == "response.reasoning_summary_part.added":
            items[event["output_index"]]["summary"].append(event["part"])
        elif kind == "response.output_text.delta":
            items[event["output_index"]]["content"][0]["text"] += event["delta"]
        elif kind == "response.reasoning_summary_text.delta":
            items[event["output_index"]]["summary"][0]["text"] += event["delta"]
        elif kind == "response.function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "response.output_item.done":
            assert items[event["output_index"]] == {**event["item"], "status": "in_progress"}
            items[event["output_index"]] = event["item"]
    last = events[-1]["response"]
    assert last["output"] == items and {event["response"]["id"] for event in events if "response" in event} == {
        last["id"]
    }
    assert events[-1]["type"] == f"response.{last['status']}"
    return last


def fold_message(events: list[Event]) -> Event:
    """Add up a message's blocks."""
    message: Event = dict(events[0]["message"])
    blocks: list[Event] = []
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            for name, key in (("text", "text"), ("thinking", "thinking"), ("signature", "signature")):
                block.update({key: block[key] + delta[name]} if name in delta else {})
            block["json"] += delta.get("partial_json", "")
        elif kind == "message_delta":
            message |= {**event["delta"], "usage": event["usage"]}
    for block in blocks:
        text = block.pop("json")
        block.update({"input": json.loads(text)} if block["type"] == "tool_use" else {})
    assert events[-1]["type"] == "message_stop"
    return {**message, "content": blocks}


FOLDS: dict[str, Callable[[list[Event]], Event]] = {
    "chat_completions": fold_chat,
    "responses": fold_response,
    "messages": fold_message,
}
