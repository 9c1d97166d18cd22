"""Rows of data sets and dialogues, and Parquet files of them."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


HOTPOT = {
    "question": "Which river flows through the birthplace of Ada?",
    "supporting_facts": {"title": ["Ada", "Kelm"], "sent_id": [0, 1]},
    "context": {
        "title": ["Ada", "Kelm"],
        "sentences": [["Ada was born in Kelm."], ["Kelm is old.", " The Oder is there."]],
    },
    "reward_model": {"ground_truth": "Oder", "style": "rule"},
    "picture": b"\x00",
}


def dialogue(number: int) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": f"t{number}"})}}
    return [
        {"role": "user", "content": f"w{number} w2", "tool_calls": None, "tool_call_id": None},
        {"role": "assistant", "content": "", "tool_calls": [call], "tool_call_id": None},
        {"role": "tool", "content": "w4 w5", "tool_calls": None, "tool_call_id": "c"},
        {"role": "assistant", "content": "w6", "tool_calls": None, "tool_call_id": None},
    ]


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
