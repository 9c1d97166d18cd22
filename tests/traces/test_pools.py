"""Pools as expert traces: a gateway's conversations with their tools, and dialogues of the built-in loop."""

import asyncio
from pathlib import Path

import pytest
from gateway.models import ADD, Rig, opening, reply, result, system, user

from rl_agents.algorithms import Settings
from rl_agents.cli.gateway import ended_trajectory
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.traces.files import load_turns, read_traces
from rl_agents.trainer.run_store import RunPool

SUM = '<think>sum</think><tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


def gateway_session(path: Path) -> None:
    """An agent that was asked to add, called its tool, and gave the answer; a retry of its own was left behind."""

    async def play(pool: PoolWriter) -> None:
        rig = Rig({"1 and 2": SUM, "first": "none", "3": "It is 3."}, pool, max_response_tokens=200)
        task = [system("be brief"), user("add 1 and 2")]
        await rig.ask(system("be brief"), user("first try"))
        called = await rig.ask(*task, tools=(ADD,))
        told = [*task, reply(called), result(called.tool_calls[0].id, "3")]
        await rig.ask(*told, tools=(ADD,))
        rig.gateway.reward("s", 1.0)
        trajectory = ended_trajectory(opening("s"), await rig.trace())
        pool.add(*session_records(trajectory, "s", kind="gateway"))

    with PoolWriter(path) as pool:
        asyncio.run(play(pool))


def test_a_conversation_comes_back_as_its_client_saw_it(tmp_path: Path) -> None:
    gateway_session(tmp_path / "pool.sqlite")
    read = read_traces(tmp_path / "pool.sqlite")
    assert not read.defects
    (trace,) = read.traces
    assert (trace.trace_id, trace.source, trace.reward) == ("s", f"{tmp_path / 'pool.sqlite'}:s", 1.0)
    assert [tool.name for tool in trace.tools] == ["add"]
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    asked = trace.messages[2]
    assert asked["reasoning_content"] == "sum"
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert trace.messages[4]["content"] == "It is 3."


def test_turns_of_a_run_s_folder_without_what_failed(tmp_path: Path) -> None:
    step = Step([1, 2], [3], [-0.1], 0, "stop", "the room", "the room", "go north", 1.0, call=0)
    good = Trajectory("t", 0, 0, 1, [step], terminated=True, end_cause="terminated", success=True)
    broken = Trajectory("t", 0, 1, 2, [step], end_cause="env_error: x", failed=True)
    with PoolWriter(tmp_path / "pool.sqlite") as pool:
        for name, trajectory in (("good", good), ("broken", broken)):
            pool.add(*session_records(trajectory, name))
    (turn,) = load_turns(tmp_path)
    assert turn.trace_id == "good"


def test_an_episode_begins_with_the_chat_and_the_tools_of_its_group(tmp_path: Path) -> None:
    chat = {"messages": [system("be brief"), user("add 1 and 2")], "tools": [ADD.to_openai()]}
    acted = [Step([1], [2], [-0.1], 0, "stop", "a note for people", "", SUM, call=1)]
    acted.append(Step([1, 2, 3], [4], [-0.1], 0, "stop", "3", "", "It is 3.", 1.0, call=2))
    played = [Trajectory("t", 0, member, member, acted, True, facts={"chat": dict(chat)}) for member in range(2)]
    pool = RunPool(tmp_path / "pool.sqlite", Settings.from_dict({"num_env_runners": 0}))
    pool.add_calls(played)
    pool.add_sessions(0, played)
    pool.close()
    first, second = read_traces(tmp_path / "pool.sqlite").traces
    assert (first.messages, first.tools) == (second.messages, second.tools)
    assert [tool.name for tool in first.tools] == ["add"]
    assert [message["role"] for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert first.messages[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert (first.messages[2]["reasoning_content"], first.messages[3]["content"]) == ("sum", "3")
    with PoolReader(tmp_path / "pool.sqlite") as reader:
        assert [sorted(session.facts) for session in reader.sessions()] == [["chat"], []]


def test_a_pool_without_sessions_is_told(tmp_path: Path) -> None:
    PoolWriter(tmp_path / "pool.sqlite").close()
    with pytest.raises(InputError, match="no traces in it"):
        read_traces(tmp_path / "pool.sqlite")
