"""Sessions of a pool as expert traces: what a run, or a gateway's agents, did becomes what PivotRL learns from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_agents.store.files import POOL_FILE
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Exchange

SQLITE = b"SQLite format 3\0"


def pool_in(path: Path) -> Path | None:
    """Return the pool that a path is, or that lies in its folder; None: neither."""
    if path.is_dir():
        return path / POOL_FILE if (path / POOL_FILE).is_file() else None
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return path if file.read(len(SQLITE)) == SQLITE else None


def pool_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (session, trace in the form of OpenAI's chats) of every session that was not excluded and did not fail.

    A gateway's session is the conversation that had the last word, as its client saw it, with its tools. An episode of
    the built-in loop is a dialogue of observations and actions. Rewards are the sessions' returns, decisions applied.

    Raises:
        InputError: no pool, or one that a newer version wrote.
    """
    with PoolReader(path) as reader:
        for stored in reader.stored(Where(failed=False, excluded=False)):
            session = stored.session.id
            if stored.session.kind not in ("episode", "gateway") or not stored.steps:
                continue
            trajectory = reader.trajectory(stored)
            answered = {e.call: e for e in reader.exchanges(session) if e.state == "finished"}
            last = trajectory.steps[-1].call
            record = _conversation(last, answered) if last in answered else _dialogue(trajectory.steps)
            yield session, {"id": session, "reward": stored.total, **record}


def _dialogue(steps: Sequence[Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for step in steps:
        messages += [{"role": "user", "content": step.observation}, {"role": "assistant", "content": step.action}]
    return {"messages": messages}


def _conversation(last: int, answered: Mapping[int, Exchange]) -> dict[str, Any]:
    """Return what a call's client had said and been told up to its answer."""
    calls: list[int] = []
    while last:
        calls.append(last)
        last = int(answered[last].request["follows"])
    header: Mapping[str, Any] = {}
    messages: list[dict[str, Any]] = []
    for call in reversed(calls):
        request = answered[call].request
        header = request if "tools" in request else header
        messages += [_sent(message) for message in request["messages"]] + [_answer(answered[call].answer)]
    return {"messages": [*header.get("system", ()), *messages], "tools": header.get("tools", [])}


def _answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer["content"]}
    if answer["thoughts"]:
        message["reasoning_content"] = answer["thoughts"]
    if answer["tool_calls"]:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in answer["tool_calls"]
        ]
    return message


def _sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of ours in OpenAI's form, whose arguments are text."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)
