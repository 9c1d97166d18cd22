"""From traces to turns: states, deduplication, statistics, turn files."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pivot.expert_traces import GOOD, call, changed

from rl_agents.errors import InputError
from rl_agents.rewards.verifiers import exact_match
from rl_agents.traces.desk import desk_record, desk_turns
from rl_agents.traces.files import load_turns, read_traces
from rl_agents.traces.formats import read_trace
from rl_agents.traces.store import read_turns, write_turns
from rl_agents.traces.turns import Extraction, extract_turns, statistics_table, trace_turns

TRACE = read_trace(GOOD, "f:1")


def test_a_state_is_everything_before_the_turn() -> None:
    first, second = trace_turns(TRACE)
    assert (first.kind, first.index, [m["role"] for m in first.messages]) == ("call", 0, ["system", "user"])
    assert first.text == '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert (second.kind, second.index, len(second.messages)) == ("message", 1, 4)
    assert second.text == "No rain in Rome.", "thoughts are no part of an action"
    assert first.place == "f:1: turn 0"


def test_a_turns_name_is_that_of_its_content() -> None:
    first, second = trace_turns(TRACE)
    assert (first.turn_id, second.turn_id) == ("cc448a26b554bbd8", "fdcb51fc70c8a87e"), "the same on every machine"
    again = trace_turns(read_trace(copy.deepcopy(GOOD), "elsewhere:9"))
    assert [turn.turn_id for turn in again] == [first.turn_id, second.turn_id]
    other = trace_turns(read_trace(changed("messages", 1, "content", value="Rain in Oslo?"), "f:1"))
    assert not {turn.turn_id for turn in other} & {first.turn_id, second.turn_id}


def test_thoughts_apart_or_inline() -> None:
    apart, inline = (extract_turns([TRACE], Extraction(thoughts=how)).turns[1] for how in ("apart", "inline"))
    assert inline.text == "<think>It says dry.</think>No rain in Rome." and apart.text == "No rain in Rome."
    assert "reasoning_content" in apart.action and "reasoning_content" not in inline.action
    for turn in (apart, inline):
        assert exact_match(turn, "No rain in Rome.") and exact_match(turn, "<think>hm</think>No rain in Rome.")
        assert not exact_match(turn, "<think>No rain in Rome.</think>Rain.")


def test_deduplication() -> None:
    other = read_trace(changed("messages", 1, "content", value="Is it dry in Rome?"), "f:2")
    assert len(extract_turns([TRACE, TRACE, other], Extraction()).turns) == 4


def test_what_is_left_out_is_counted() -> None:
    failed = changed("messages", 3, "content", value="Error: no such city")
    failed["reward"] = 1.0
    two = changed("messages", 2, "tool_calls", value=[call("weather", {"city": c}, c) for c in ("Rome", "Oslo")])
    two["messages"][3:4] = [{"role": "tool", "tool_call_id": c, "content": "dry"} for c in ("Oslo", "Rome")]
    traces = [read_trace(record, "f:1") for record in (failed, two, {**GOOD, "reward": 0.0})]
    extracted = extract_turns(traces, Extraction(drop_failed_calls=True))
    assert extracted.left_out == {"traces with a low reward": 1, "turns whose call failed": 1}
    assert [turn.kind for turn in extracted.turns] == ["message", "calls", "message"]
    assert len(extract_turns(traces, Extraction(min_reward=0.0)).turns) == 5
    calls = extract_turns(traces, Extraction(min_reward=0.0, only_calls=True))
    assert [turn.kind for turn in calls.turns] == ["call", "calls"] and calls.left_out["messages"] == 3


def test_the_statistics_add_up() -> None:
    table = statistics_table(desk_turns()).splitlines()
    counts = [int(row.split("|")[2]) for row in table[2:]]
    assert sum(counts[:-1]) == counts[-1] == len(desk_turns())


def test_a_turn_file_holds_all_of_a_turn(tmp_path: Path) -> None:
    turns = trace_turns(TRACE) + desk_turns()[:20]
    path = tmp_path / "turns.parquet"
    write_turns(path, turns)
    assert read_turns(path) == turns and load_turns(tmp_path) == turns
    assert [file.name for file in tmp_path.iterdir()] == ["turns.parquet"]


def test_files_that_hold_no_turns(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with pytest.raises(InputError, match="no such file"):
        read_turns(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_turns(tmp_path / "text.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="the column 'turn_id' is missing"):
        read_turns(tmp_path / "other.parquet")
    write_turns(tmp_path / "turns.parquet", trace_turns(TRACE))
    table = pyarrow.parquet.read_table(tmp_path / "turns.parquet").to_pydict()
    pyarrow.parquet.write_table(pyarrow.table({**table, "action": ["{", "{}"]}), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"bad\.parquet: row 1 is damaged"):
        read_turns(tmp_path / "bad.parquet")


def test_inferred_tools_are_for_traces_that_have_none(tmp_path: Path) -> None:
    bare = {key: value for key, value in desk_record(0).items() if key != "tools"}
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in (bare, desk_record(1))))
    with_tools = read_traces(file, infer=True).traces
    assert [len(trace.tools) for trace in with_tools] != [0, 4] and len(with_tools[1].tools) == 4
    assert {tool.name for tool in with_tools[0].tools} <= {tool.name for tool in with_tools[1].tools}
    assert read_traces(file).traces[0].tools == ()


def test_tools_are_inferred_for_each_domain(tmp_path: Path) -> None:
    def record(task: int, prompt: str, tool: str) -> dict[str, Any]:
        call = {"id": "a", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        said = [{"role": "system", "content": prompt}, {"role": "user", "content": "go"}]
        return {"task_id": task, "trial": 0, "traj": [*said, {"role": "assistant", "tool_calls": [call]}]}

    shop = [record(1, "shop", "buy"), record(2, "shop", "sell")]
    others = [
        record(3, "You serve Ann.", "fly"),
        record(3, "You serve Ann.", "land"),
        record(4, "You serve Bo.", "run"),
    ]
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(json.dumps(one) for one in [*shop, *others]))
    found = read_traces(file, infer=True)
    names = [[tool.name for tool in trace.tools] for trace in found.traces]
    assert names == [["buy", "sell"]] * 2 + [["fly", "land", "run"]] * 3
    assert {domain: count for domain, (count, _) in found.inferred.items()} == {"shop": 2, str(file): 3}
