"""The forms in which expert traces come: OpenAI chat, NeMo-Gym rows, tau-bench histories.

- **chat**: ``{"messages": [...], "tools": [...]}``, with ``id`` and ``reward`` where known.
- **NeMo-Gym**: ``{"responses_create_params": {"input": [...], "tools": [...]}, ...}`` in the form of OpenAI's
  responses API. With ``expected_action`` (or ``expected_answer``, terminal rows) it is one turn; else ``response``
  holds the rest of a whole trace.
- **tau-bench**: ``{"task_id": ..., "trial": ..., "reward": ..., "traj": [...]}``; it defines no tools.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.chat.messages import Message, assistant_message, check_dialogue, read_content, read_message
from rl_agents.errors import nearest
from rl_agents.tools.calls import Tool, ToolCall, read_call, read_tools

FORMATS = {"messages": "chat", "responses_create_params": "nemo_gym", "traj": "tau_bench"}


@dataclass(frozen=True, slots=True)
class Trace:
    """One expert dialogue.

    Attributes:
        trace_id: as its file names it, else FILE:LINE.
        source: FILE:LINE.
        messages: from the first to the last; see `rl_agents.chat.messages`.
        tools: what the agent could call; empty when the file does not say.
        reward: what the whole trace earned; None when the file does not say.
        single: only the last assistant turn is a demonstration (a NeMo-Gym row with its expected action).
        harness: how terminal actions are written (``terminus_1``, ``terminus_2``, ``codex``, ...); empty elsewhere.
    """

    trace_id: str
    source: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    reward: float | None = None
    single: bool = False
    harness: str = ""


def read_trace(record: Any, source: str, tools: Sequence[Tool] = ()) -> Trace:
    """Read one record of any of the three forms.

    Args:
        source: FILE:LINE.
        tools: definitions for traces that have none.

    Raises:
        ValueError: what is wrong with it.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"a trace is {type(record).__name__}, not an object")
    form = next((form for key, form in FORMATS.items() if key in record), None)
    if form is None:
        wanted = " or ".join(f"'{key}'" for key in FORMATS)
        near = next((nearest(str(key), FORMATS) for key in record if nearest(str(key), FORMATS).startswith("did")), "")
        raise ValueError(f"no {wanted} in it{f'; {near}' if near else ''}")
    reader = {"chat": _read_chat, "nemo_gym": _read_nemo_gym, "tau_bench": _read_tau_bench}[form]
    trace: Trace = reader(record, source, tuple(tools))
    check_dialogue(trace.messages, trace.tools)
    return trace


def _read_chat(record: Mapping[str, Any], source: str, tools: tuple[Tool, ...]) -> Trace:
    own = read_tools(record["tools"]) if record.get("tools") else tools
    name = record.get("id", record.get("trace_id"))
    messages = _messages(record["messages"], "messages")
    return Trace(_name(name, source), source, messages, own, _reward(record.get("reward")))


def _read_tau_bench(record: Mapping[str, Any], source: str, tools: tuple[Tool, ...]) -> Trace:
    messages, trial = _messages(record["traj"], "traj"), record.get("trial")
    task = record.get("task_id")
    name = None if task is None else f"{task}" if trial is None else f"{task}/{trial}"
    return Trace(_name(name, source), source, messages, tools, _reward(record.get("reward")))


def _read_nemo_gym(record: Mapping[str, Any], source: str, tools: tuple[Tool, ...]) -> Trace:
    params = record["responses_create_params"]
    if not isinstance(params, Mapping):
        raise ValueError(f"responses_create_params is {type(params).__name__}, not an object")
    items = params.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise ValueError(f"responses_create_params.input is {type(items).__name__}, not a list")
    own = read_tools(params["tools"]) if params.get("tools") else tools
    metadata = record["metadata"] if isinstance(record.get("metadata"), Mapping) else {}
    harness = str(record.get("harness") or metadata.get("harness") or "")
    expected = _expected_items(record, metadata)
    response = record.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    if expected is None and not isinstance(output, list):
        raise ValueError("a row with neither expected_action, expected_answer nor response.output holds no action")
    messages = _from_items([*items, *(output or [] if expected is None else expected)])
    if expected is not None and messages[-1]["role"] != "assistant":
        raise ValueError("the row's action is empty")
    # The reward of a row with an expected action is that of somebody's response to it.
    reward = None if expected is not None else _reward(record.get("reward"))
    name = record.get("id", record.get("uuid"))
    return Trace(_name(name, source), source, messages, own, reward, expected is not None, harness)


def _expected_items(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[Any] | None:
    """Return the demonstrated action of a NeMo-Gym row as items; None when it has none."""
    action = record.get("expected_action")
    if action is None:
        answer = record.get("expected_answer")
        if isinstance(answer, str) and "response" in record and not answer:
            return None
        return [{"role": "assistant", "content": answer}] if isinstance(answer, str) else None
    if not isinstance(action, Mapping):
        raise ValueError(f"expected_action is {type(action).__name__}, not an object")
    kind = action.get("type")
    if kind == "message":
        return [{"role": "assistant", "content": action.get("content")}]
    if kind not in ("function_call", "function_call_batch"):
        raise ValueError(f"expected_action of type {kind!r}; valid: message, function_call, function_call_batch")
    calls = [action] if kind == "function_call" else action.get("calls")
    if not isinstance(calls, list) or not calls:
        raise ValueError("expected_action.calls is not a list of calls")
    said = [{"role": "assistant", "content": metadata["expected_content"]}] if metadata.get("expected_content") else []
    return [*said, *({**call, "call_id": f"expected_{number}"} for number, call in enumerate(calls))]


def _from_items(items: Sequence[Any]) -> tuple[Message, ...]:
    """Turn items of the responses API into messages; reasoning, message and calls of one turn become one message."""
    messages: list[Message] = []
    turn = _AssistantTurn()
    for number, item in enumerate(items, start=1):
        try:
            if not turn.take(item):
                messages += turn.finish()
                messages.append(_plain_item(item))
            elif turn.full:
                messages += turn.finish()
                turn.take(item)
        except ValueError as error:
            raise ValueError(f"input item {number}: {error}") from None
    return (*messages, *turn.finish())


class _AssistantTurn:
    """Collects the items of an assistant's turn. ``full``: the last item that was offered begins another turn."""

    def __init__(self) -> None:
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
                self.thoughts += read_content(item.get("summary") or item.get("content"))
            return True
        if kind == "message" and item.get("role") == "assistant":
            self.full = self.said or bool(self.calls)
            if not self.full:
                self.content, self.said = read_content(item.get("content")), True
            return True
        if kind == "function_call":
            self.calls.append(read_call(item))
            self.ids.append(str(item.get("call_id") or item.get("id") or f"call_{len(self.ids)}"))
            return True
        return False

    def finish(self) -> list[Message]:
        """Return the turn as a list of one message, or of none; begin another."""
        content, calls, ids, thoughts = self.content, self.calls, self.ids, self.thoughts
        said = self.said
        self._clear()
        return [assistant_message(content, calls, ids, thoughts)] if said or calls else []


def _plain_item(item: Mapping[str, Any]) -> Message:
    kind = item.get("type") or "message"
    if kind == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str) else read_content(output)
        return {"role": "tool", "content": text, "tool_call_id": str(item.get("call_id"))}
    if kind != "message":
        raise ValueError(f"an item of type {kind!r}")
    return read_message(item)


def _messages(data: Any, name: str) -> tuple[Message, ...]:
    if not isinstance(data, list) or not data:
        raise ValueError(f"{name} is {'empty' if data == [] else type(data).__name__}, not a list of messages")
    found = []
    for number, item in enumerate(data, start=1):
        try:
            found.append(read_message(item))
        except ValueError as error:
            raise ValueError(f"message {number}: {error}") from None
    return tuple(found)


def _reward(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"reward is {value!r}, not a finite number")
    return float(value)


def _name(value: Any, source: str) -> str:
    return str(value) if isinstance(value, str | int) and str(value) else source.rpartition("/")[2]
