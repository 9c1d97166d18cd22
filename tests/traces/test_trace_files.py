"""Reading expert traces: three forms, and every defect by file and line."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pivot.expert_traces import GOOD, TOOL, call, changed, nemo, real_file, rows, without

from rl_agents import errors
from rl_agents.chat.items import messages_from_items
from rl_agents.chat.messages import message_calls, read_message
from rl_agents.cli import main
from rl_agents.data import tables
from rl_agents.errors import InputError
from rl_agents.tools.calls import check_call
from rl_agents.traces.files import infer_tools, read_traces
from rl_agents.traces.formats import read_trace
from rl_agents.traces.turns import Extraction, extract_turns, trace_turns

USER = {"role": "user", "content": "x"}
SAID = {"role": "assistant", "content": "y"}


def messages(*items: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD, "messages": list(items)}


def inserted(place: int, item: dict[str, Any]) -> dict[str, Any]:
    record = copy.deepcopy(GOOD)
    record["messages"].insert(place, item)
    return record


def line(record: Any) -> bytes:
    return json.dumps(record).encode()


DEFECTS: list[tuple[bytes, str]] = [
    (b'{"messages": [}', "not JSON: Expecting value (column 15)"),
    (line(GOOD)[:-20], "not JSON: "),
    (b"[1, 2]", "a trace is list, not an object"),
    (line({"mesages": []}), "or 'conversations' or 'prompt' in it; did you mean 'messages'?"),
    (line(messages()), "messages is empty"),
    (line({**GOOD, "messages": "hello"}), "messages is str"),
    (line(changed("messages", 1, value="hello")), "message 2: a message is str"),
    (line(without("messages", 1, "role")), "message 2: a message without role"),
    (line(changed("messages", 3, "role", value="function")), "message 4: unknown role 'function'"),
    (line(changed("messages", 1, "content", value="  ")), "message 2: empty content in a user message"),
    (line(changed("messages", 1, "content", value=7)), "message 2: content is int, not text"),
    (line(changed("messages", 1, "content", value=[{"type": "image_url"}])), "a content part of type 'image_url'"),
    (line(changed("messages", 4, "content", value=[{"type": "refusal", "refusal": "No."}])), "part of type 'refusal'"),
    (line(changed("messages", 4, "content", value="")), "message 5: an assistant turn with neither content nor calls"),
    (line(inserted(5, SAID)), "message 6: two assistant turns in a row"),
    (line(changed("messages", 3, "tool_call_id", value="c9")), "message 4: a tool result without call (id 'c9')"),
    (line(without("messages", 3, "tool_call_id")), "message 4: a tool result without tool_call_id"),
    (line(without("messages", 3)), "message 4: the call 'c1' has no tool result"),
    (line(changed("messages", 2, "tool_calls", 0, value=call("wether", {}))), "message 3: unknown tool 'wether'"),
    (line(changed("messages", 2, "tool_calls", 0, value=call("weather", "{city"))), "'weather' are not JSON"),
    (line(changed("messages", 2, "tool_calls", 0, value=call("weather", [1]))), "'weather' are list, not an object"),
    (line(without("messages", 2, "tool_calls", 0, "id")), "message 3: a tool call without id"),
    (line(changed("messages", 2, "tool_calls", value=[call("weather", {"city": "Rome"})] * 2)), "two open calls"),
    (line(inserted(2, {"role": "system", "content": "z"})), "message 3: a system message after the beginning"),
    (line(messages(USER)), "no assistant turn"),
    (line(changed("tools", value=[TOOL, TOOL])), "tool 'weather' is defined twice"),
    (line(changed("tools", 0, "function", "parameters", value={"type": 3})), "is no JSON schema"),
    (line(changed("reward", value="high")), "reward is 'high', not a finite number"),
    (line(GOOD).replace(b'"Rain in Rome?"', b'"\\ud83d"'), "lone surrogate"),
    (line(GOOD).replace(b'"id": "good"', b'"id": "good", "id": "bad"'), "the key 'id' occurs twice"),
    (line(changed("reward", value=float("nan"))), "NaN is not JSON"),
    (line(GOOD).replace(b"Rome", "Zürich".encode("latin-1")), "not UTF-8 (byte 0xfc at column "),
    (b'{"messages": ' + b"[" * 100 + b"]" * 100 + b"}", "deeper than 64"),
    (b'{"x": "' + b"a" * 5000 + b'"}', "a line of more than "),
    (line({"responses_create_params": {"input": []}}), "holds no action"),
    (line({"responses_create_params": {"input": [{"type": "image"}]}, "expected_action": {"type": "message"}}),
     "input item 1: an item of type 'image'"),
    (line({"responses_create_params": {"input": []}, "expected_action": {"type": "dance"}}), "of type 'dance'"),
]  # fmt: skip


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 4096)


def test_every_defect_is_named_with_its_line(tmp_path: Path, short_lines: None) -> None:
    assert len(DEFECTS) >= 20
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join([line(GOOD), *(text for text, _ in DEFECTS), line(GOOD), b"", line(GOOD)]))
    found = read_traces(file)
    assert [trace.source for trace in found.traces] == [f"{file}:{n}" for n in (1, len(DEFECTS) + 2, len(DEFECTS) + 4)]
    assert len(found.defects) == len(DEFECTS)
    for number, (defect, (_, problem)) in enumerate(zip(found.defects, DEFECTS, strict=True), start=2):
        assert str(defect).startswith(f"{file}:{number}: ") and problem in str(defect)
        assert len(str(defect).splitlines()) == 1


def test_good_traces_are_kept_only_when_the_user_says_so(tmp_path: Path, short_lines: None, capsys) -> None:
    file, output = tmp_path / "traces.jsonl", tmp_path / "out"
    file.write_bytes(b"\n".join([line(GOOD), *(text for text, _ in DEFECTS)]))
    argv = ["pivot", "extract", "--traces", str(file), "--output", str(output)]
    assert main(argv) == 2 and not output.exists()
    error = capsys.readouterr().err.splitlines()
    assert len(error) == len(DEFECTS) + 1 and error[0].startswith(f"{file}:2: not JSON")
    assert f"{len(DEFECTS)} of {len(DEFECTS) + 1} traces are defective; --skip-bad" in error[-1]
    assert main([*argv, "--skip-bad"]) == 0
    said = capsys.readouterr()
    assert f"2 turns from 1 traces; excluded: {len(DEFECTS)} defective traces" in said.out
    assert len(said.err.splitlines()) == len(DEFECTS)


def test_the_good_trace(tmp_path: Path) -> None:
    trace = read_trace(GOOD, "f:1")
    assert [tool.name for tool in trace.tools] == ["weather"] and trace.reward is None
    assert message_calls(trace.messages[2])[0].arguments == {"city": "Rome"}
    assert trace.messages[4]["reasoning_content"] == "It says dry."
    thinking = changed("messages", 4, "content", value="<think>hm</think>\nNo rain.")
    del thinking["messages"][4]["reasoning_content"]
    assert read_trace(thinking, "f:1").messages[4] == {
        "role": "assistant", "content": "\nNo rain.", "reasoning_content": "hm",
    }  # fmt: skip
    reused = messages(*GOOD["messages"][:4], *GOOD["messages"][2:])
    assert len(read_trace(reused, "f:1").messages) == 7, "an id may be used again after its result"


def test_nulls_that_fill_up_rows_are_removed_and_counted(tmp_path: Path, monkeypatch, capsys) -> None:
    """As the package datasets writes it: all arguments and all properties have the keys of all."""
    monkeypatch.setattr(errors, "_reported", set())
    null, text = None, {"type": "string", "enum": None}
    other = {"description": None, "properties": {"city": None, "days": {"type": ["integer", "null"], "enum": None}}}
    parameters = [{"properties": {"city": text, "days": None}, "type": "object", "required": ["city"]}, other]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": part}}
        for name, part in zip(("weather", "wait"), parameters, strict=True)
    ]
    given = {"weather": {"city": "Rome", "days": null, "x": null}, "wait": {"city": null, "days": null, "x": null}}
    calls = [call(name, "", f"c{number}") for number, name in enumerate(given, start=1)]
    for each in calls:
        each["function"]["arguments"] = given[each["function"]["name"]]  # an object
    record = changed("messages", 2, "tool_calls", value=calls)
    record["messages"].insert(4, {**record["messages"][3], "tool_call_id": "c2"})
    file = tmp_path / "padded.jsonl"
    file.write_bytes(line({**record, "tools": tools}) + b"\n" + line(GOOD))
    padded, plain = read_traces(file).traces
    weather, wait = message_calls(padded.messages[2])
    assert weather.arguments == {"city": "Rome"} and wait.arguments == {"days": None}, "the schema allows this one"
    assert [check_call(each, padded.tools) for each in (weather, wait)] == ["", ""]
    assert padded.tools[0].parameters["properties"] == {"city": {"type": "string"}}
    assert capsys.readouterr().err == (
        f"[rl_agents] {file}: 9 nulls that fill up arguments and tool definitions are removed\n"
    )
    city = {"type": "string", "default": null}  # a valid schema
    kept = changed("tools", 0, "function", "parameters", "properties", value={"city": city})
    assert read_trace(kept, "f:1").tools[0].parameters["properties"] == {"city": city}
    assert plain == read_trace(GOOD, plain.source)


def test_a_list_instead_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    file.write_text(
        "\ufeff" + json.dumps([GOOD, {"traj": GOOD["messages"], "reward": 0.5, "task_id": 7, "trial": 2}], indent=1)
    )
    found = read_traces(file)
    assert [(trace.trace_id, trace.reward) for trace in found.traces] == [("good", None), ("7 (trial 2)", 0.5)]
    assert found.traces[1].source.endswith(f":{1 + json.dumps(GOOD, indent=1).count(chr(10)) + 2} (item 2)")
    file.write_text(json.dumps([without("id"), without("id")]))
    assert len({trace.trace_id for trace in read_traces(file).traces}) == 2, "test turns are chosen by trace"
    file.write_text(json.dumps([GOOD])[:-1] + ", {")
    found = read_traces(file)
    assert len(found.traces) == 1 and "the rest is not read" in str(found.defects[0])
    file.write_text(json.dumps([GOOD])[:-1])
    assert "it ends in the middle" in str(read_traces(file).defects[0])


def test_files_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_traces(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="no traces in it"):
        read_traces(tmp_path / "empty.jsonl")
    (tmp_path / "latin.json").write_bytes(b'[\n{"a": "\xe9"}]')
    with pytest.raises(InputError, match=r"latin.json: not UTF-8 \(byte 0xe9\)"):
        read_traces(tmp_path / "latin.json")


def test_a_nemo_gym_row_with_its_action_is_one_turn() -> None:
    row = {
        "id": 3,
        "responses_create_params": {
            "input": [
                {"role": "user", "content": "Rain?"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "look"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
                {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Rome"}'},
                {"type": "function_call_output", "call_id": "a", "output": "dry"},
            ],
            "tools": [{"type": "function", **TOOL["function"], "strict": True}],
        },
        "expected_action": {"type": "message", "content": "No."},
        "reward": 0.0,
    }
    trace = read_trace(row, "f:1")
    assert trace.single and trace.reward is None, "the reward is that of somebody's response"
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert trace.messages[1]["reasoning_content"] == "look" and trace.messages[1]["content"] == "One moment."
    (turn,) = extract_turns([trace], Extraction()).turns
    assert (turn.text, turn.index, len(turn.messages)) == ("No.", 1, 3)


def test_what_only_clients_may_say_is_no_turn_of_a_trace() -> None:
    """Thoughts alone, thoughts as a message before the words, a refusal beside the content."""
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert messages_from_items([USER, reasoning]) == (USER,)
    thought = {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    assert messages_from_items([{"role": "assistant", "content": "<think>Hm.</think>"}, SAID]) == (thought, SAID)
    assert read_message({"role": "assistant", "content": None, "refusal": "No."})["content"] == ""


def test_real_tau_bench_histories() -> None:
    found = read_traces(real_file("tau_bench", "historical_trajectories", "gpt-4o-airline.json"))
    assert (len(found.traces), len(found.defects)) == (200, 0)
    solved = [trace for trace in found.traces if trace.reward == 1.0]
    turns = [turn for trace in solved for turn in trace_turns(trace)]
    kinds = [turn.kind for turn in turns]
    assert (len(solved), len(turns), kinds.count("call")) == (84, 829, 347), "as counted in the data's description"
    tools = {tool.name: tool for tool in infer_tools(found.traces)}
    assert len(tools) == 14
    schema = tools["book_reservation"].parameters
    assert schema["properties"]["passengers"] == {"type": "array"} and "user_id" in schema["required"]


@pytest.mark.parametrize(
    ("folder", "kinds"),
    [
        ("single_step_tool_use_with_argument_comparison", ["call", "message", "call", "message", "call"]),
        ("swe_pivot", ["call"] * 5),
        ("terminal_multi_harness", ["message", "call", "call", "calls", "call"]),
        ("terminus_judge", ["message"] * 5),
    ],
)
def test_real_nemo_gym_rows(folder: str, kinds: list[str]) -> None:
    file = nemo(folder)
    found = read_traces(file)
    assert not found.defects and all(trace.single for trace in found.traces)
    turns = extract_turns(found.traces, Extraction()).turns
    assert [turn.kind for turn in turns] == kinds
    for turn, row in zip(turns, rows(file), strict=True):
        action = row.get("expected_action", {})
        if action.get("type") == "function_call":
            assert turn.calls[0].arguments == json.loads(action["arguments"])


def test_real_nemo_gym_rollouts_are_whole_traces() -> None:
    file = real_file("nemo_gym", "responses_api_agents_anyterminal_agent_data", "example_rollouts_hermes.jsonl")
    found = read_traces(file)
    assert not found.defects and {trace.reward for trace in found.traces} <= {0.0, 1.0}
    assert all(len(trace.messages) > 5 and not trace.single for trace in found.traces)
