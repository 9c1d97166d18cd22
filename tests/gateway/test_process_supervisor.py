"""Agents' processes: what they are given, what they leave, and that nothing of them lives on."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from rl_agents import errors
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import CHILD, AgentClient, AgentEnd, CommandAgent, FunctionAgent
from rl_agents.gateway.results import AgentResult, last_result, read_result

GIVEN = AgentClient("s1", "secret", "http://127.0.0.1:1", {"id": "a b/1", "question": "why 'so'?"}, 7)


def run_code(code: str, timeout_s: float = 60.0, grace_s: float = 0.5, arguments: str = "") -> AgentEnd:
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(textwrap.dedent(code))} {arguments}"
    return asyncio.run(CommandAgent(tuple(shlex.split(command)), grace_s).run(GIVEN, timeout_s))


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends within some time; a zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def read_pids(path: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        words = path.read_text().split() if path.exists() else []
        if len(words) >= count:
            return [int(word) for word in words]
        time.sleep(0.02)
    raise AssertionError("the agent did not start")


#: An agent with a child in its group and one in a session of its own, orphaned on purpose; none of them wants to end.
FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    os.write(note, f"{{os.getpid()}}\\n".encode())
    time.sleep(600)
os.write(note, f"{{os.getpid()}}\\n".encode())
time.sleep(600)
"""


def test_agent_is_given_addresses_key_task_and_seed():
    end = run_code(
        """
        import json, os, sys
        names = ["OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY",
                 "RL_AGENTS_SESSION", "RL_AGENTS_SEED"]
        said = [*(os.environ[n] for n in names), json.loads(os.environ["RL_AGENTS_TASK"])["question"], *sys.argv[1:]]
        print(json.dumps({"reward": 1, "references": said, "metrics": {"stdin": len(sys.stdin.read())}}))
        """,
        arguments="{task} '{task_id}' {seed} x{session}y {base_url}",
    )
    openai, anthropic = "http://127.0.0.1:1/s/s1/v1", "http://127.0.0.1:1/s/s1"
    given = [openai, openai, "secret", anthropic, "secret", "s1", "7", "why 'so'?"]
    assert end.error == "" and end.result is not None
    assert end.result.references == [*given, json.dumps(GIVEN.task), "a b/1", "7", "xs1y", openai]
    assert end.result.metrics == {"stdin": 0.0}


def test_the_gateway_is_asked_without_a_proxy_and_sets_have_one_order(monkeypatch):
    code = """
        import json, os
        print(json.dumps({"references": [os.environ["NO_PROXY"], os.environ["no_proxy"], *{"a", "b", "c", "d", "e"}]}))
    """
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first, second = run_code(code), run_code(code)
    assert first == second and first.result is not None
    assert first.result.references[:2] == ["example.org,127.0.0.1,localhost"] * 2


def test_last_result_counts(monkeypatch, capsys):
    end = run_code("""
        print('{"reward": 0.25}')
        print('{"reward": 0.5, "success": true, "metrics": {"em": 1}}')
        print('{"level": "info", "message": "bye"}')
        print("[1]")
        print("done", end="")
    """)
    assert end == AgentEnd(AgentResult(0.5, True, metrics={"em": 1.0}))
    assert last_result(b'{"reward": 3}\n{"reward": ' + b"[" * 200_000 + b"}\n") == {"reward": 3}
    for output, number in (("0", 0.0), (" 1.5e-1 \\n\\n", 0.15), ("3\\ndone", None), ("nan", None), ("1 2", None)):
        assert run_code(f"print('{output}')") == (AgentEnd() if number is None else AgentEnd(AgentResult(number)))
    crashed = run_code("print('episode'); print(3); raise SystemExit(1)")  # the number is no reward then
    assert crashed == AgentEnd(error="exit code 1: 3")
    assert read_result({"reward": np.float32(0.5), "success": np.bool_(True)}) == AgentResult(0.5, True)
    monkeypatch.setattr(errors, "_reported", set())
    assert read_result(torch.tensor(0.0)) == AgentResult(0.0)
    metrics = {"a": torch.tensor(1.0), "b": np.array(2), "c": float("inf")}
    for _ in range(2):
        found = read_result({"reward": torch.tensor([0.5]), "success": torch.tensor(True), "metrics": metrics})
        assert found == AgentResult(0.5, True, metrics={"a": 1.0, "b": 2.0})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("the agent's result: the metric 'c' is float inf, not a finite number; it is excluded")


def test_exit_code_matters_only_without_a_result_that_can_be_used():
    assert run_code("print('{\"reward\": 1}'); raise SystemExit(3)").result == AgentResult(1.0)
    end = run_code("import sys; print('thinking'); print('no luck\\n\\n', file=sys.stderr); sys.exit(3)")
    assert end == AgentEnd(error="exit code 3: no luck")
    assert run_code("raise SystemExit(4)").error == "exit code 4: no output"
    assert run_code("pass") == AgentEnd()
    for line, problem in (
        ('{"reward": NaN}', "reward is float nan, not a finite number"),
        ('{"success": 1}', "success is int 1, not true or false"),
    ):
        assert run_code(f"print({line!r})").error == f"its result cannot be used: {problem}"


def test_output_is_bounded_and_its_end_is_kept():
    end = run_code("""
        import sys
        for _ in range(400):
            sys.stdout.write("x" * 65536)
            sys.stderr.write("y" * 65536)
        print()
        print('{"reward": 2}')
        sys.stderr.write("\\x1b[31mthe end\\udc80\\n".encode("utf-8", "surrogateescape").decode("latin-1"))
        raise SystemExit(1)
    """)
    assert end.result == AgentResult(2.0)
    end = run_code("import sys; sys.stderr.write('y' * 5_000_000); sys.exit(9)")
    assert end.error.startswith("exit code 9: yyy") and len(end.error) < 400


def test_timeout_kills_the_whole_tree(tmp_path):
    note = tmp_path / "pids"
    end = run_code(FAMILY.format(path=str(note)), timeout_s=4.0, grace_s=0.3)
    assert end.timed_out and not end.error
    pids = read_pids(note, 3)
    assert all(gone(pid) for pid in pids)


def test_timeout_lets_an_agent_say_goodbye():
    end = run_code("""
        import signal, sys, time
        def leave(*_):
            print('{"reward": 0.5}', flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        time.sleep(600)
        """, timeout_s=4.0, grace_s=60.0)  # fmt: skip
    assert end == AgentEnd(AgentResult(0.5), timed_out=True)


def test_what_outlives_its_agent_is_killed(tmp_path):
    note = tmp_path / "pids"
    end = run_code(f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note = os.open({str(note)!r}, os.O_WRONLY | os.O_CREAT)
                os.write(note, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        while not os.path.exists({str(note)!r}) or not os.path.getsize({str(note)!r}):
            time.sleep(0.01)
        print('{{"reward": 1}}')
    """)
    assert end.result == AgentResult(1.0)
    assert gone(read_pids(note, 1)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found on Linux alone")
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM"])
def test_agents_do_not_survive_the_death_of_their_runner(tmp_path, signal_name):
    note = tmp_path / "pids"
    code = f"""
import asyncio, sys
from rl_agents.gateway.process_supervisor import CommandAgent, AgentClient
agent = CommandAgent((sys.executable, "-c", {FAMILY.format(path=str(note))!r}), 0.3)
asyncio.run(agent.run(AgentClient("s", "k", "http://x", {{"id": "1"}}, 0), 600.0))
"""
    runner = subprocess.Popen([sys.executable, "-c", code])
    pids = read_pids(note, 3)
    guards = [child.pid for child in psutil.Process(runner.pid).children()]
    os.kill(runner.pid, getattr(signal, signal_name))
    runner.wait()
    assert all(gone(pid) for pid in [*pids, *guards])


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
@pytest.mark.parametrize("grace_s", ["0.0", "0.01"])
def test_agent_that_is_ended_before_it_has_begun_is_killed(grace_s):
    words = [sys.executable, "-I", "-S", CHILD, grace_s, "sleep", "100"]
    for _ in range(5):
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        try:
            assert started.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
        finally:
            started.kill()


def test_agent_does_not_survive_the_one_who_guards_it(tmp_path):
    note = tmp_path / "pids"
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", CHILD, "0.1", sys.executable, "-c",
         f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"],
        stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    (pid,) = read_pids(note, 1)
    guard.kill()
    guard.wait()
    guard.stdin.close()
    assert gone(pid)


async def test_cancelling_ends_the_agent_at_once(tmp_path):
    note = tmp_path / "pids"
    agent = CommandAgent((sys.executable, "-c", FAMILY.format(path=str(note))), 600.0)  # which it is not given
    task = asyncio.create_task(agent.run(GIVEN, 600.0))
    while not note.exists() or len(note.read_text().split()) < 3:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(gone(pid) for pid in read_pids(note, 3))


def test_hundreds_of_launches_leak_nothing():
    process = psutil.Process()
    others = set(process.children(recursive=True))  # of other tests in this process, such as Ray's
    agents = [CommandAgent(("/bin/sh", "-c", code)) for code in ("echo '{\"reward\": 1}'", "exit 3", "sleep 60 & exit")]
    slow = CommandAgent(("/bin/sleep", "60"), 0.1)

    async def batch(size: int) -> None:
        runs = [agent.run(GIVEN, 120.0) for agent in agents for _ in range(size)]
        ends = await asyncio.gather(*runs, slow.run(GIVEN, 0.5))
        assert [end.error[:11] for end in ends] == [""] * size + ["exit code 3"] * size + [""] * size + [""]

    async def measure() -> tuple[int, int]:
        await batch(1)
        await asyncio.sleep(0.2)
        before = process.num_fds(), process.num_threads()
        for _ in range(4):
            await batch(5)
        for _ in range(600):
            if process.num_threads() <= before[1] and process.num_fds() <= before[0]:
                break
            await asyncio.sleep(0.05)
        return process.num_fds() - before[0], process.num_threads() - before[1]

    descriptors, threads = asyncio.run(measure())
    assert descriptors <= 0 and threads <= 0
    assert not set(process.children(recursive=True)) - others


def test_commands_that_cannot_be_used():
    with pytest.raises(InputError, match="there is no program 'pyhton'"):
        CommandAgent.read("pyhton agent.py")
    end = asyncio.run(CommandAgent(("/nonexistent/agent",)).run(GIVEN, 60.0))
    assert end.error == "exit code 127: cannot start /nonexistent/agent: No such file or directory"
    for command, problem in (
        ("", "env.agent_command is empty"), ("sh 'x", "No closing quotation"),
        ("sh {tsk}", r"unknown placeholder in env.agent_command '\{tsk\}': did you mean '\{task\}'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=problem):
            CommandAgent.read(command)


def test_templates_are_read_without_a_shell_and_tasks_fit_a_variable(tmp_path):
    mark = tmp_path / "mark"
    agent = CommandAgent.read(f"/bin/echo '{{\"reward\": 1}}' ; touch {mark} `touch {mark}`")
    assert agent.argv(GIVEN)[1:4] == ['{"reward": 1}', ";", "touch"]
    asyncio.run(agent.run(GIVEN, 60.0))
    assert not mark.exists()

    def run(*more: str, **task: str) -> str:
        given = AgentClient("s", "k", "http://x", {"id": "\0", **task}, 0)
        return asyncio.run(CommandAgent(("/bin/true", *more)).run(given, 60.0)).error

    assert "does not fit an environment variable" in run(text="é" * 70_000)
    assert run() == "", "JSON writes a zero byte in other characters"
    assert run("{task_id}").startswith("cannot be started: ")


def run_function(function, timeout_s: float = 5.0) -> AgentEnd:
    return asyncio.run(FunctionAgent(function).run(GIVEN, timeout_s))


def returning(value):
    async def agent(task, client):
        return value

    return agent


def test_coroutine_is_given_the_client_and_returns_a_result():
    async def agent(task, client):
        assert client.base_url == GIVEN.base_url and client.api_key == "secret" and client.seed == 7
        return {"reward": 0.5, "metrics": {"letters": len(task["question"])}}

    assert run_function(agent) == AgentEnd(AgentResult(0.5, metrics={"letters": 9.0}))
    assert run_function(returning(0.25)) == AgentEnd(AgentResult(0.25))
    assert run_function(returning(None)) == AgentEnd()


def test_coroutine_that_fails_hangs_or_returns_nonsense():
    cleaned = []

    async def hangs(task, client):
        try:
            await asyncio.sleep(600)
        finally:
            cleaned.append(True)

    def raising(error):
        async def fails(task, client):
            raise error

        return fails

    assert run_function(raising(KeyError("door"))).error.startswith("KeyError: 'door' (test_process_supervisor.py:")
    assert run_function(raising(SystemExit(2))).error.startswith("SystemExit: 2 (")
    assert run_function(hangs, 0.1) == AgentEnd(timed_out=True) and cleaned == [True]
    nonsense = "its result cannot be used: the result is str 'fine', not a finite number"
    assert run_function(returning("fine")).error == nonsense
