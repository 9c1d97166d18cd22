"""Reads expert traces from tables and trajectory stores (pools), and the turns of any of these files.

Every defect is reported with file and line. For traces without tool definitions, such as those of tau-bench, these can
be inferred from the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_agents.chat.history import with_text_arguments
from rl_agents.chat.messages import assistant_message, message_calls
from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import open_table
from rl_agents.data.trajectory import Step
from rl_agents.errors import InputError, report_once
from rl_agents.store.files import POOL_FILE
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Exchange
from rl_agents.tools.calls import Tool, read_response, read_tools
from rl_agents.tools.strict_json import json_type, read_json_file
from rl_agents.traces.formats import FIELDS, Trace, read_trace, task_of, unpacked
from rl_agents.traces.padding import nulls, unpadded
from rl_agents.traces.store import TURNS_FILE, is_turn_file, read_turns
from rl_agents.traces.turns import Extraction, Turn, extract_turns

SQLITE = b"SQLite format 3\0"
#: Most bytes of a file of tool definitions.
MAX_TOOL_FILE = 1 << 26


def pool_in(path: Path) -> Path | None:
    """Return the pool at a path or in its folder; None if there is none."""
    if path.is_dir():
        return path / POOL_FILE if (path / POOL_FILE).is_file() else None
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return path if file.read(len(SQLITE)) == SQLITE else None


def pool_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (session, trace in OpenAI's chat form) of every session that did not fail.

    The trace of a gateway's session is its final conversation as the client saw it, with its tools. The trace of an
    episode of the built-in loop is a dialogue of observations and actions, after the chat that its group began with.
    Rewards are the sessions' returns.

    Raises:
        InputError: not a pool, or one of a newer version.
    """
    chats: dict[tuple[int, int], Mapping[str, Any]] = {}
    with PoolReader(path) as reader:
        for stored in reader.stored():
            session, group = stored.session.id, (stored.session.iteration, stored.session.group_id)
            chats[group] = chat = stored.session.facts.get("chat") or chats.get(group, {})
            if stored.session.failed or stored.session.kind not in ("episode", "gateway") or not stored.steps:
                continue
            trajectory = reader.trajectory(stored)
            answered = {e.call: e for e in reader.exchanges(session) if e.state == "finished"}
            last = trajectory.steps[-1].call
            record = _conversation(last, answered) if last in answered else _dialogue(trajectory.steps, chat)
            yield session, {"id": session, "reward": stored.total, **record}


def _dialogue(steps: Sequence[Step], chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dialogue of an episode.

    If it has tools, calls in actions become calls of the trace. Their results are one observation: that of the first.
    """
    messages, tools = list[Any](chat.get("messages", ())), chat.get("tools", [])
    known = {tool["function"]["name"] for tool in tools}
    for number, step in enumerate(step for step in steps if not step.is_summary):
        pending = messages[-1].get("tool_calls", ()) if number else ()
        if not pending and (number or not messages):
            messages.append({"role": "user", "content": step.observation})
        results = [step.observation] + [""] * len(pending)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(pending, results, strict=False)
        ]
        messages.append(_action(step.action, f"call_{number}_", known))
    return {"messages": messages, "tools": tools}


def _action(text: str, prefix: str, known: Collection[str]) -> dict[str, Any]:
    response = read_response(text)
    if response.problem or not response.calls or not {call.name for call in response.calls} <= set(known):
        return {"role": "assistant", "content": text}
    ids = [f"{prefix}{place}" for place in range(len(response.calls))]
    return assistant_message(response.content, response.calls, ids, response.thoughts)


def _conversation(last: int, answered: Mapping[int, Exchange]) -> dict[str, Any]:
    """Return the conversation of a call's client up to its answer."""
    calls: list[int] = []
    while last:
        calls.append(last)
        last = int(answered[last].request["follows"])
    header: Mapping[str, Any] = {}
    messages: list[dict[str, Any]] = []
    for call in reversed(calls):
        request = answered[call].request
        header = request if "tools" in request else header
        messages += [*with_text_arguments(request["messages"]), _answer(answered[call].answer)]
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


@dataclass(frozen=True, slots=True)
class Defect:
    """An unusable trace; ``str()`` is ``FILE:LINE: PROBLEM``."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The good traces and the defects of files, in order.

    Attributes:
        inferred: number of traces and their inferred tools, by system prompt or table.
    """

    traces: tuple[Trace, ...]
    defects: tuple[Defect, ...]
    inferred: Mapping[str, tuple[int, tuple[Tool, ...]]] = field(default_factory=dict)


def read_traces(
    *names: str | Path, tools: Sequence[Tool] = (), infer: bool = False, columns: Mapping[str, str] | None = None
) -> TraceFile:
    """Read all traces of tables and pools; see `rl_agents.traces.formats` for the forms, which may be mixed.

    Args:
        names: tables (`rl_agents.data.tables`) or pools.
        tools: definitions for traces without any.
        infer: infer the definitions for traces without any from the calls of their domain (`_domains`).
        columns: field -> column.

    Raises:
        InputError: a missing, unreadable or empty file.
    """
    traces: list[tuple[str, Trace]] = []
    defects: list[Defect] = []
    for name in names:
        found = list(iter_traces(name, tools, columns))
        if not found:
            raise InputError(f"{name}: no traces in it")
        traces += [(str(name), one) for one in found if isinstance(one, Trace)]
        defects += [one for one in found if isinstance(one, Defect)]
    domains = _domains(traces) if infer else {}
    for places in domains.values():
        inferred = infer_tools(traces[place][1] for place in places)
        for place in places:
            traces[place] = traces[place][0], replace(traces[place][1], tools=inferred)
    said = {domain: (len(places), traces[places[0]][1].tools) for domain, places in domains.items()}
    return TraceFile(tuple(trace for _, trace in traces), tuple(defects), said)


def _domains(traces: Sequence[tuple[str, Trace]]) -> dict[str, list[int]]:
    """Return the places of traces without tools, by system prompt if several tasks share it, else by table.

    A prompt of one task alone, such as one with the customer's name, does not tell what tools there are.
    """
    bare = [(place, table, trace) for place, (table, trace) in enumerate(traces) if not trace.tools]
    tasks: dict[str, set[str]] = {}
    for _, _, trace in bare:
        tasks.setdefault(_system(trace), set()).add(task_of(trace.trace_id))
    found: dict[str, list[int]] = {}
    for place, table, trace in bare:
        prompt = _system(trace)
        found.setdefault(prompt if prompt and len(tasks[prompt]) > 1 else table, []).append(place)
    return found


def _system(trace: Trace) -> str:
    first = trace.messages[0]
    return str(first["content"]) if first["role"] == "system" else ""


def iter_traces(
    name: str | Path, tools: Sequence[Tool] = (), columns: Mapping[str, str] | None = None
) -> Iterator[Trace | Defect]:
    """Yield the traces and defects of a table or pool one after another."""
    removed = 0
    for source, record in _records(name, columns):
        try:
            if isinstance(record, ValueError):
                raise record
            raw = unpacked(record)
            clean = unpadded(raw, tools)
            yield read_trace(clean, source, tools)
            removed += nulls(raw) - nulls(clean)
        except ValueError as error:
            yield Defect(source, str(error))
    if removed:
        report_once(f"{name}: {removed} nulls that fill up arguments and tool definitions are removed")


def read_tool_file(path: Path) -> tuple[Tool, ...]:
    """Read a JSON file with a list of tool definitions.

    Raises:
        InputError: a missing or broken file, or a broken definition.
    """
    try:
        return read_tools(read_json_file(path, MAX_TOOL_FILE))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _records(name: str | Path, columns: Mapping[str, str] | None) -> Iterator[tuple[str, Any]]:
    """Yield (FILE:LINE or FILE:SESSION, JSON value or a `ValueError`)."""
    if not str(name).startswith(PREFIX) and (pool := pool_in(Path(name))) is not None:
        yield from ((f"{name}:{session}", record) for session, record in pool_records(pool))
        return
    source = ""
    try:
        for row in open_table(name, columns, FIELDS, "--columns"):
            item = f" (item {row.number})" if row.kind == "item" else ""  # a whole list may be on one line
            source = f"{row.path}:{row.line}{item}"
            try:
                yield source, row.record()
            except ValueError as error:
                yield source, error
    except InputError as error:  # records after broken syntax cannot be separated
        if not source:
            raise
        path = source.rpartition(":")[0]
        yield path, ValueError(f"{str(error).removeprefix(f'{path}: ')}; the rest is not read")


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


def infer_tools(traces: Iterable[Trace]) -> tuple[Tool, ...]:
    """Return a definition of every called tool: its arguments, their JSON types, and those that all calls have.

    Descriptions are empty.
    """
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for trace in traces:
        for message in trace.messages:
            for call in message_calls(message):
                calls.setdefault(call.name, []).append(call.arguments)
    return tuple(Tool(name, "", _schema(calls[name])) for name in sorted(calls))


def _schema(seen: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = sorted({name for arguments in seen for name in arguments})
    properties = {name: {"type": _types([a[name] for a in seen if name in a])} for name in names}
    required = [name for name in names if all(name in arguments for arguments in seen)]
    return {"type": "object", "properties": properties, "required": required}


def _types(values: list[Any]) -> str | list[str]:
    found = sorted({_TYPES.get(json_type(value), "null") for value in values})
    if "number" in found and "integer" in found:
        found.remove("integer")
    return found[0] if len(found) == 1 else found


def refuse_defects(defects: Sequence[Defect], traces: int) -> None:
    """Raise `InputError` if there are defects; the message has the first one."""
    if defects:
        count = len(defects)
        raise InputError(
            f"{defects[0]} ({count} of {count + traces} traces {'is' if count == 1 else 'are'} defective; --skip-bad "
            "skips them)"
        )


def load_turns(path: Path) -> list[Turn]:
    """Return the turns of a folder or Parquet file of `pivot extract`, or extract them from a table of traces.

    Raises:
        InputError: a missing, wrong or empty file.
    """
    if path.is_dir() and (path / TURNS_FILE).is_file():
        path = path / TURNS_FILE
    if is_turn_file(path):
        turns = read_turns(path)
    else:
        reading = read_traces(path)
        refuse_defects(reading.defects, len(reading.traces))
        turns = list(extract_turns(reading.traces, Extraction()).turns)
    if not turns:
        raise InputError(f"{path}: no turns in it")
    return turns
