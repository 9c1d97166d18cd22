"""The forms of expert traces: OpenAI chat, NeMo-Gym rows, tau-bench histories, ShareGPT, pairs.

- **chat**: ``{"messages": [...], "tools": [...]}``, optionally with ``id`` and ``reward``.
- **NeMo-Gym**: ``{"responses_create_params": {"input": [...], "tools": [...]}, ...}`` in the form of OpenAI's
  responses API. With ``expected_action`` (or ``expected_answer``, terminal rows) it is one turn. Otherwise
  ``response`` has the rest of a whole trace.
- **tau-bench**: ``{"task_id": ..., "trial": ..., "reward": ..., "traj": [...]}``, without tools.
- **ShareGPT**: ``{"conversations": [{"from": "human", "value": ...}, ...], "system": ...}``. Calls and results of tools
  remain text: there are no tools, and a tool's turn becomes a user's turn.
- **pair**: ``{"prompt": TEXT or MESSAGES, "response": TEXT}``, optionally with ``tools``.

Lists may be JSON text, as in many tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.chat.items import messages_from_items
from rl_agents.chat.messages import Message, check_dialogue, read_message
from rl_agents.errors import similar
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.tools.strict_json import strict_json

#: A record has the form of the first of these keys in it (see `_READERS`).
FORMATS = ("messages", "responses_create_params", "traj", "conversations", "prompt")
#: The keys of a record that are read.
FIELDS = (
    *FORMATS, "tools", "id", "trace_id", "uuid", "reward", "task_id", "trial", "expected_action", "expected_answer",
    "response", "metadata", "harness", "system",
)  # fmt: skip
#: What follows a task's name in the id of a trace, and is followed by the number of the trial.
_TRIAL = " (trial "
#: Keys whose values may be JSON text.
PACKED = ("messages", "tools", "traj", "conversations", "responses_create_params", "expected_action", "metadata")
#: ShareGPT's speakers -> roles.
SPEAKERS = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "function_call": "assistant", "tool": "user", "observation": "user", "function": "user",
    "function_response": "user",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """One expert dialogue.

    Attributes:
        trace_id: its id in the file, or FILE:LINE.
        source: FILE:LINE.
        messages: see `rl_agents.chat.messages`.
        tools: available tools; empty if unknown.
        reward: of the whole trace; None if unknown.
        single: only the last assistant turn is a demonstration (a NeMo-Gym row with its expected action).
        harness: form of terminal actions (``terminus_1``, ``terminus_2``, ``codex``, ...); empty for others.
    """

    trace_id: str
    source: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    reward: float | None = None
    single: bool = False
    harness: str = ""


def task_of(trace_id: str) -> str:
    """Return the id of a trace without its trial: trials of one task share it."""
    return trace_id.partition(_TRIAL)[0]


def read_trace(record: Any, source: str, tools: Sequence[Tool] = ()) -> Trace:
    """Read one record of any form.

    Args:
        source: FILE:LINE.
        tools: definitions for traces without any.

    Raises:
        ValueError: the record is not a trace.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"a trace is {type(record).__name__}, not an object")
    form = next((key for key in FORMATS if key in record), None)
    if form is None:
        wanted = " or ".join(f"'{key}'" for key in FORMATS)
        near = next(filter(None, (similar(str(key), FORMATS) for key in record)), "")
        raise ValueError(f"no {wanted} in it{f'; {near}' if near else ''}")
    trace = _READERS[form](unpacked(record), source, tuple(tools))
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
    name = None if task is None else f"{task}" if trial is None else f"{task}{_TRIAL}{trial})"
    return Trace(_name(name, source), source, messages, tools, _reward(record.get("reward")))


def _read_sharegpt(record: Mapping[str, Any], source: str, tools: tuple[Tool, ...]) -> Trace:
    turns, system = record["conversations"], record.get("system")
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise ValueError(f"conversations is {type(turns).__name__}, not a list of turns")
    messages = [{"role": "system", "content": system}] if isinstance(system, str) and system.strip() else []
    for number, turn in enumerate(turns, start=1):
        speaker = turn.get("from", turn.get("role"))
        if speaker not in SPEAKERS:
            raise ValueError(f"turn {number} is from {speaker!r}; valid: {', '.join(SPEAKERS)}")
        messages.append({"role": SPEAKERS[speaker], "content": turn.get("value", turn.get("content"))})
    name = record.get("id", record.get("trace_id"))
    return Trace(_name(name, source), source, _messages(messages, "conversations"), (), _reward(record.get("reward")))


def _read_pair(record: Mapping[str, Any], source: str, tools: tuple[Tool, ...]) -> Trace:
    prompt, response = record["prompt"], record.get("response")
    if not isinstance(response, str):
        raise ValueError(f"a prompt whose response is {type(response).__name__}, not text")
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not isinstance(asked, list):
        raise ValueError(f"prompt is {type(prompt).__name__}, neither text nor a list of messages")
    messages = _messages([*asked, {"role": "assistant", "content": response}], "prompt")
    own = read_tools(record["tools"]) if record.get("tools") else tools
    name = _name(record.get("id"), source)
    return Trace(name, source, messages, own, _reward(record.get("reward")), single=True)


def unpacked(record: Any) -> Any:
    """Return a record with the lists and objects that are JSON texts in it."""
    if not isinstance(record, Mapping):
        return record
    return {name: _unpacked(value) if name in PACKED else value for name, value in record.items()}


def _unpacked(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return strict_json(value)
        except ValueError:
            return value
    return value


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
    messages = messages_from_items([*items, *(output or [] if expected is None else expected)])
    if expected is not None and messages[-1]["role"] != "assistant":
        raise ValueError("the row's action is empty")
    # The reward of a row with an expected action belongs to another response.
    reward = None if expected is not None else _reward(record.get("reward"))
    name = record.get("id", record.get("uuid"))
    return Trace(_name(name, source), source, messages, own, reward, expected is not None, harness)


def _expected_items(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[Any] | None:
    """Return the demonstrated action of a NeMo-Gym row as items; None if it has none."""
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


_READERS: Mapping[str, Callable[[Mapping[str, Any], str, tuple[Tool, ...]], Trace]] = {
    "messages": _read_chat,
    "responses_create_params": _read_nemo_gym,
    "traj": _read_tau_bench,
    "conversations": _read_sharegpt,
    "prompt": _read_pair,
}
