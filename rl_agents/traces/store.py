"""Turn files: Parquet with one row per turn. Profiling and filtering add columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agents.durable import replacing
from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.traces.turns import Turn, action_name

if TYPE_CHECKING:
    import pyarrow

TURNS_FILE, PROFILE_FILE, PIVOTS_FILE = "turns.parquet", "profile.parquet", "pivots.parquet"
#: Columns with the fields of a turn as they are; messages, tools and actions are JSON text.
PLAIN = ("turn_id", "trace_id", "index", "source", "harness")
COLUMNS = (*PLAIN, "kind", "action_name", "messages", "tools", "action")


def write_turns(path: Path, turns: Sequence[Turn], further: Mapping[str, Sequence[Any]] | None = None) -> None:
    """Write turns with further columns. The file gets its name when it is complete."""
    import pyarrow

    columns = {
        **{name: [getattr(turn, name) for turn in turns] for name in (*PLAIN, "kind")},
        "action_name": [action_name(turn) for turn in turns],
        "messages": [_json(turn.messages) for turn in turns],
        "tools": [_json([tool.to_openai() for tool in turn.tools]) for turn in turns],
        "action": [_json(turn.action) for turn in turns],
    }
    write_table(path, pyarrow.table({**columns, **(further or {})}))


def write_table(path: Path, table: pyarrow.Table) -> None:
    import pyarrow.parquet as parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        parquet.write_table(table, draft, compression="zstd")


def is_turn_file(path: Path) -> bool:
    """Return whether a path is a Parquet file of turns (others may have traces)."""
    import pyarrow
    import pyarrow.parquet as parquet

    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return "turn_id" in parquet.read_schema(path).names
    except (pyarrow.ArrowException, OSError):
        return False


def read_table(path: Path) -> pyarrow.Table:
    """Read a table of turns. Raises `InputError`: no such file, not Parquet, or without the columns of turns."""
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
        raise InputError(f"{path}: not a turn file: the column '{missing[0]}' is missing (see `run.py pivot extract`)")
    return table


def read_turns(path: Path) -> list[Turn]:
    """Read the turns of a Parquet file. Raises `InputError`: see `read_table`, or a damaged cell."""
    tools: dict[str, tuple[Tool, ...]] = {}
    turns = []
    for number, row in enumerate(read_table(path).select(list(COLUMNS)).to_pylist(), start=1):
        try:
            if row["tools"] not in tools:
                tools[row["tools"]] = read_tools(json.loads(row["tools"]))
            turns.append(
                Turn(
                    **{name: row[name] for name in PLAIN},
                    messages=tuple(json.loads(row["messages"])),
                    tools=tools[row["tools"]],
                    action=json.loads(row["action"]),
                )
            )
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: row {number} is damaged: {error}") from None
    return turns


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
