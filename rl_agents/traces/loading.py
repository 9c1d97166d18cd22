"""Turns from whatever a person names: a folder or file of `pivot extract`, traces themselves, or a pool.

Traces that come without tool definitions (tau-bench's) have them read off the demonstrated calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.chat.messages import message_calls
from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool
from rl_agents.traces.files import Defect, TraceFile, read_traces
from rl_agents.traces.formats import Trace
from rl_agents.traces.store import TURNS_FILE, is_turn_file, read_turns
from rl_agents.traces.turns import Extraction, Turn, extract_turns

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


def infer_tools(traces: Iterable[Trace]) -> tuple[Tool, ...]:
    """Return one definition per called tool: its arguments, their JSON types, and which of them every call gives.

    Descriptions are empty: what a tool does stands in the traces' system messages at best.
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
    found = sorted({_TYPES.get(type(value), "null") for value in values})
    if "number" in found and "integer" in found:
        found.remove("integer")
    return found[0] if len(found) == 1 else found


@dataclass(frozen=True, slots=True)
class Reading:
    """The traces of several files, and what is wrong with the rest."""

    traces: tuple[Trace, ...]
    defects: tuple[Defect, ...]


def read_trace_files(
    names: Sequence[str | Path],
    tools: Sequence[Tool] = (),
    infer: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Reading:
    """Read the traces of several tables or pools.

    Args:
        tools: definitions for traces that have none.
        infer: define the tools of such traces by their own calls (`rl_agents.traces.loading`).
        columns: what is read -> column.

    Raises:
        InputError: one that cannot be read at all.
    """
    files: list[TraceFile] = [read_traces(name, tools, columns) for name in names]
    if infer:
        bare = [trace for file in files for trace in file.traces if not trace.tools]
        files = [read_traces(name, infer_tools(bare), columns) for name in names]
    return Reading(
        tuple(trace for file in files for trace in file.traces),
        tuple(defect for file in files for defect in file.defects),
    )


def refuse_defects(defects: Sequence[Defect], traces: int) -> None:
    """Raise `InputError` for defects; its one line names the first."""
    if defects:
        count = len(defects)
        raise InputError(
            f"{defects[0]} ({count} of {count + traces} traces {'is' if count == 1 else 'are'} defective; --skip-bad "
            "leaves such out)"
        )


def load_turns(path: Path) -> list[Turn]:
    """Return the turns of a folder or Parquet file of `pivot extract`, or extract them from a table of traces.

    Raises:
        InputError: nothing there, or anything wrong with it.
    """
    if path.is_dir() and (path / TURNS_FILE).is_file():
        path = path / TURNS_FILE
    if is_turn_file(path):
        turns = read_turns(path)
    else:
        reading = read_trace_files([path])
        refuse_defects(reading.defects, len(reading.traces))
        turns = list(extract_turns(reading.traces, Extraction()).turns)
    if not turns:
        raise InputError(f"{path}: no turns in it")
    return turns
