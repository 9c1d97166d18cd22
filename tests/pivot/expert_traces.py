"""Traces for tests: a small dialogue to break in many ways, and the real files where they are at hand."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED_DATA = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


GOOD: dict[str, Any] = {
    "id": "good",
    "tools": [TOOL],
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Rain in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call("weather", {"city": "Rome"})]},
        {"role": "tool", "tool_call_id": "c1", "content": "dry"},
        {"role": "assistant", "content": "No rain in Rome.", "reasoning_content": "It says dry."},
    ],
}


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """Return the good trace with one place changed."""
    record = copy.deepcopy(GOOD)
    place: Any = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return record


def without(*path: Any) -> dict[str, Any]:
    """Return the good trace with one place left out."""
    record = copy.deepcopy(GOOD)
    place: Any = record
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return record


def real_file(*parts: str) -> Path:
    """Return a file of the shared data, or skip the test."""
    path = SHARED_DATA.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"no {path} (set RL_AGENTS_SHARED_DATA)")
    return path


def nemo(folder: str, name: str = "example.jsonl") -> Path:
    return real_file("nemo_gym", f"resources_servers_{folder}_data", name)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
