"""Turn files: Parquet with one row per turn, which profiling and filtering extend by columns of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.traces.turns import Turn, action_name

if TYPE_CHECKING:
    import pyarrow

TURNS_FILE, PROFILE_FILE, PIVOTS_FILE = "turns.parquet", "profile.parquet", "pivots.parquet"
COLUMNS = ("turn_id", "trace_id", "index", "source", "harness", "kind", "action_name", "messages", "tools", "action")


def turn_columns(turns: Sequence[Turn]) -> dict[str, list[Any]]:
    """Return the columns of turns; messages, tools and actions are JSON text."""
    return {
        "turn_id": [turn.turn_id for turn in turns],
        "trace_id": [turn.trace_id for turn in turns],
        "index": [turn.index for turn in turns],
        "source": [turn.source for turn in turns],
        "harness": [turn.harness for turn in turns],
        "kind": [turn.kind for turn in turns],
        "action_name": [action_name(turn) for turn in turns],
        "messages": [_json(turn.messages) for turn in turns],
        "tools": [_json([tool.to_openai() for tool in turn.tools]) for turn in turns],
        "action": [_json(turn.action) for turn in turns],
    }


def write_turns(path: Path, turns: Sequence[Turn], further: Mapping[str, Sequence[Any]] | None = None) -> None:
    """Write turns with further columns; the file appears under its name when it is complete."""
    import pyarrow

    write_table(path, pyarrow.table({**turn_columns(turns), **(further or {})}))


def write_table(path: Path, table: pyarrow.Table) -> None:
    """Write a table through a hidden neighbor that is renamed."""
    import pyarrow.parquet as parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    parquet.write_table(table, hidden, compression="zstd")
    os.replace(hidden, path)


def is_turn_file(path: Path) -> bool:
    """Whether a path is a Parquet file with the columns of turns (others may hold traces)."""
    import pyarrow
    import pyarrow.parquet as parquet

    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return "turn_id" in parquet.read_schema(path).names
    except (pyarrow.ArrowException, OSError):
        return False


def read_table(path: Path) -> pyarrow.Table:
    """Read a table of turns.

    Raises:
        InputError: no such file, not Parquet, or not one of ours.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: no turn file: the column '{missing[0]}' is missing (see `run.py pivot extract`)")
    return table


def table_turns(table: pyarrow.Table, path: Path) -> list[Turn]:
    """Return the turns of a table.

    Raises:
        InputError: a cell that is not what `write_turns` writes.
    """
    tools: dict[str, tuple[Tool, ...]] = {}
    turns = []
    for number, row in enumerate(table.select(list(COLUMNS)).to_pylist(), start=1):
        try:
            if row["tools"] not in tools:
                tools[row["tools"]] = read_tools(json.loads(row["tools"]))
            turns.append(
                Turn(
                    turn_id=row["turn_id"],
                    trace_id=row["trace_id"],
                    index=int(row["index"]),
                    source=row["source"],
                    messages=tuple(json.loads(row["messages"])),
                    tools=tools[row["tools"]],
                    action=json.loads(row["action"]),
                    harness=row["harness"],
                )
            )
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: row {number} is damaged: {error}") from None
    return turns


def read_turns(path: Path) -> list[Turn]:
    """Read the turns of a Parquet file."""
    return table_turns(read_table(path), path)


def nemo_gym_row(turn: Turn) -> dict[str, Any]:
    """Return a turn as a NeMo-Gym row, the inverse of reading one: items of the responses API and expected action.

    An expected call has no place for the expert's words next to it; that is in ``metadata.expected_content``.
    """
    items: list[dict[str, Any]] = []
    for message in turn.messages:
        items += _items(message)
    expected = [item for item in _items(turn.action) if item["type"] != "reasoning"]
    calls = [item for item in expected if item["type"] == "function_call"]
    if not calls:
        action: dict[str, Any] = {"type": "message", "content": turn.action["content"]}
    elif len(calls) == 1:
        action = calls[0]
    else:
        action = {"type": "function_call_batch", "ordered": False, "calls": calls}
    tools = [{"type": "function", "strict": False, **tool.to_openai()["function"]} for tool in turn.tools]
    row: dict[str, Any] = {
        "id": f"{turn.trace_id}#{turn.index}",
        "responses_create_params": {"input": items, "tools": tools, "parallel_tool_calls": len(calls) > 1},
        "expected_action": action,
    }
    said = turn.action["content"] if calls else ""
    metadata = {name: text for name, text in (("harness", turn.harness), ("expected_content", said)) if text}
    return {**row, "metadata": metadata} if metadata else row


def _items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    role = message["role"]
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    if role != "assistant":
        return [{"type": "message", "role": role, "content": message["content"]}]
    items: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": message["reasoning_content"]}]
        items.append({"type": "reasoning", "summary": summary})
    calls = message.get("tool_calls", ())
    if message["content"] or not calls:
        content = [{"type": "output_text", "text": message["content"]}]
        items.append({"type": "message", "role": "assistant", "content": content})
    for call in calls:
        function = call["function"]
        items.append(
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": function["name"],
                "arguments": _json(function["arguments"]),
            }
        )
    return items


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
