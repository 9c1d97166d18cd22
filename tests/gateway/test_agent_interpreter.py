"""Agents in an interpreter of their own: many sessions in one process, and what ends them."""

import asyncio
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from gateway.test_process_supervisor import gone

from rl_agents.envs.base import task_ids
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import TaskWorld, load_agent
from rl_agents.errors import InputError
from rl_agents.gateway import agent_interpreter
from rl_agents.gateway.process_supervisor import AgentClient, AgentEnd
from rl_agents.gateway.results import AgentResult


def game(**task) -> dict:
    """The first training game, as blackbox tells an agent of it."""
    first = task_ids("guess_numbers", "train", {})[0]
    return {"id": first, "env": "guess_numbers", "options": {"prompt": "compact"}, "max_turns": 3, **task}


@pytest.fixture
def agent_of(tmp_path: Path):
    """Makes an agent of a coroutine's source; every test has a file, and so a process, of its own."""

    def make(source: str):
        file = tmp_path / "agent.py"
        file.write_text("import asyncio, os, subprocess, sys, time\n" + textwrap.dedent(source))
        return load_agent(BlackboxOptions(agent=f"{file}:agent", agent_python=sys.executable))

    yield make
    agent_interpreter.close_hosts()


def given(number: int = 0, **task) -> AgentClient:
    return AgentClient(f"s{number}", "key", "http://127.0.0.1:9", {"id": f"task-{number}", **task}, 70 + number)


def play(agent, *sessions: AgentClient, timeout_s: float = 60.0) -> list[AgentEnd]:
    return asyncio.run(played(agent, *sessions, timeout_s=timeout_s))


async def played(agent, *sessions: AgentClient, timeout_s: float = 60.0) -> list[AgentEnd]:
    return await asyncio.gather(*(agent.run(session, timeout_s) for session in sessions))


def rewards(ends: list[AgentEnd]) -> list[float | None]:
    return [end.result.reward for end in ends]


def test_sessions_side_by_side_in_one_process_that_stays(agent_of):
    agent = agent_of("""
        begun = []
        async def agent(task, client):
            begun.append(client.session)
            while len(begun) < task["until"]:  # one after the other, they would wait for ever
                await asyncio.sleep(0.01)
            assert client.base_url == client.anthropic_url + "/v1" == f"http://127.0.0.1:9/s/{client.session}/v1"
            return {"reward": client.seed, "metrics": {"process": os.getpid()}}
    """)
    play(agent, given(until=1))
    ends = play(agent, *(given(n, until=21) for n in range(20)))  # another event loop, the same process
    assert rewards(ends) == [70 + n for n in range(20)]
    assert len({end.result.metrics["process"] for end in ends + play(agent, given(until=1))}) == 1


def test_numbers_of_a_library_are_numbers(agent_of):
    agent = agent_of("""
        import numpy as np
        async def agent(task, client):
            if task["id"] == "task-1":
                return {1, 2}
            return {"reward": np.array(0.5, "float32"), "success": np.bool_(True), "metrics": {"x": np.float32(2)}}
    """)
    ends = play(agent, given(), given(1))
    assert ends[0].result == AgentResult(0.5, True, metrics={"x": 2.0})
    assert ends[1].error == "TypeError: set is not JSON"


def test_the_world_is_played_on_this_side_and_gives_the_result(agent_of):
    agent = agent_of("""
        async def agent(task, client):
            first = await client.reset()
            assert first.startswith("3 of 4"), first
            seen, done = await client.step("<think> x </think> <interact> 1 2 3 </interact>")
            assert not done
            for number in range(2):
                seen, done = await client.step("nothing")
            assert done
    """)
    (end,) = play(agent, given(0, **game()))
    assert not end.error and (end.result.reward, end.result.success, end.result.truncated) == (0.0, False, True)
    assert end.result.metrics["turns"] == 3 and end.result.references


def test_an_episode_that_the_agent_leaves_is_closed(agent_of):
    agent = agent_of("""
        async def agent(task, client):
            await client.reset()
            return 0.5
    """)
    closed = threading.Event()

    class Watched(TaskWorld):
        def close(self):
            closing, self._env.close = self._env.close, closed.set
            super().close()
            closing()

    (end,) = play(replace(agent, world=Watched), given(0, **game()))
    assert end.result.reward == 0.5 and closed.wait(60)


def test_what_an_agent_does_wrong_is_said_in_one_line(agent_of):
    agent = agent_of("""
        async def agent(task, client):
            match task["id"]:
                case "task-0": raise KeyError("no such\\n door")
                case "task-1": sys.exit("enough")
                case "task-2": return {"reward": object()}
                case "task-3": return {"reward": "much"}
                case "task-4": await client.step("too early")
                case "task-5": await client.reset()
                case "task-6": await client.reset()
                case "task-7": return 0.5
    """)
    ends = play(agent, *map(given, range(6)), AgentClient("s6", "k", "u", game(id="task-6"), 1), given(7))
    kinds = ["KeyError", "SystemExit", "TypeError", "its result cannot be used"]
    assert [end.error.partition(":")[0] for end in ends[:4]] == kinds
    assert ends[0].error.endswith(" (agent.py:5)") and ends[1].error.endswith(" (agent.py:6)")
    assert "call client.reset() before" in ends[4].error and "names no environment" in ends[5].error
    assert "unknown" in ends[6].error and all("\n" not in end.error for end in ends)
    assert ends[7].result.reward == 0.5  # the process has survived all that


def test_our_modules_do_not_hide_others_of_their_name(agent_of):
    agent = agent_of("""
        import trace
        async def agent(task, client):
            return float(hasattr(trace, "Trace") and "rl_agents" not in sys.modules)
    """)
    assert rewards(play(agent, given())) == [1.0]


def test_steps_are_taken_one_at_a_time(agent_of):
    agent = agent_of("""
        async def agent(task, client):
            await client.reset()
            said = await asyncio.gather(client.step("a"), client.step("b"), return_exceptions=True)
            assert isinstance(said[1], RuntimeError) and not (await client.step("c"))[1]
            return {"metrics": {"refused": isinstance(said[1], RuntimeError)}, "references": [said[0][0]]}
    """)
    (end,) = play(agent, given(0, **game()))
    assert not end.error and end.result.metrics == {"refused": 1} and end.result.references == ["invalid no-action"]


async def test_time_is_each_sessions_own(agent_of):
    agent = agent_of("""
        async def agent(task, client):
            if task["id"] == "task-1":
                try:
                    await asyncio.sleep(600)
                finally:
                    open(__file__ + ".cancelled", "w").close()
            while task["id"] != "task-3" and not os.path.exists(__file__ + ".cancelled"):
                await asyncio.sleep(0.01)
            return os.getpid()
    """)
    await played(agent, given(3))  # the process is there
    slow = agent.run(given(1), 4.0)
    first, slow, second = await asyncio.gather(agent.run(given(0), 120), slow, agent.run(given(2), 120))
    assert slow.timed_out and not slow.error and Path(f"{agent.file}.cancelled").exists()
    assert first.result == second.result and not first.timed_out


async def test_a_stuck_process_is_killed_with_all_that_it_started(agent_of, monkeypatch):
    monkeypatch.setattr(agent_interpreter, "STOP_S", 0.3)
    agent = agent_of("""
        async def agent(task, client):
            if task["id"] == "task-0":
                child = subprocess.Popen(["sleep", "600"], start_new_session=True)
                open(__file__ + ".pids", "w").write(f"{os.getpid()} {child.pid}")
                time.sleep(600)
            await asyncio.sleep(600 if task["id"] == "task-1" else 0)
            return os.getpid()
    """)
    await played(agent, given(2))
    waits, stuck = await asyncio.gather(agent.run(given(1), 120), agent.run(given(0), 4.0))
    assert stuck.timed_out
    assert waits.error == "the agents' process ended: it was stuck, and was killed"
    pids = [int(pid) for pid in Path(f"{agent.file}.pids").read_text().split()]
    assert all(map(gone, pids))
    (again,) = await played(agent, given(2))
    assert again.result.reward not in pids


def test_a_process_that_dies_fails_its_sessions_and_is_replaced(agent_of):
    agent = agent_of("""
        begun = []
        async def agent(task, client):
            begun.append(task["id"])
            if task["id"] == "task-0":
                while "task-1" not in begun:
                    await asyncio.sleep(0.01)
                print("the roof fell in", file=sys.stderr)
                os._exit(3)
            await asyncio.sleep(600 if task["id"] == "task-1" else 0)
            return 1.0
    """)
    ends = play(agent, given(0), given(1))
    assert {end.error for end in ends} == {"the agents' process ended: exit code 3: the roof fell in"}
    assert rewards(play(agent, given(2))) == [1.0]


def test_an_agent_that_cannot_be_imported_is_bad_input(agent_of):
    for source, problem in (
        ("import no_such_framework", "ModuleNotFoundError: No module named 'no_such_framework'"),
        ("def agent(task, client): pass", "async def agent(task, client)"), ("x = 1 / 0", "zero (agent.py:2)"),
        ("async def agnet(task, client): pass", "'agent' in it: did you mean 'agnet'?"), ("os._exit(7)", "exit code 7"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"env\.agent=.*agent\.py:agent in .*python") as raised:
            play(agent_of(source), given())
        agent_interpreter.close_hosts()
        assert problem in str(raised.value) and "\n" not in str(raised.value)


def test_keys_that_name_nothing_are_bad_input(tmp_path):
    for agent, python, problem in (
        ("module:function", sys.executable, "write FILE.py:function"),
        (f"{__file__}:", sys.executable, "write FILE.py:function"),
        (f"{tmp_path}/none.py:agent", sys.executable, "there is no file"),
        (f"{__file__}:agent", f"{tmp_path}/python", "there is no such program"),
        (f"{__file__}:agent", "/bin/ls", "^env.agent_python=/bin/ls: it is no Python interpreter$"),
    ):
        with pytest.raises(InputError, match=problem):
            load_agent(BlackboxOptions(agent=agent, agent_python=python))
