"""Agents that run for one session each: a command in a separate process, or a coroutine in the runner's event loop.

A process gets the gateway's address and its session's key in the environment variables of OpenAI's and Anthropic's
clients. It is started below `rl_agents.gateway.process_supervisor_child`, which ends it and all its descendants when
its time is over, when the runner dies, or when its main process ends. Only the end of its output is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from rl_agents.errors import InputError, described, unknown
from rl_agents.gateway.results import AgentResult, last_result, read_result

CHILD = str(Path(__file__).with_name("process_supervisor_child.py"))
#: Between SIGTERM and SIGKILL.
GRACE_S = 3.0
#: Bytes kept of each output stream, and characters of them quoted in a message.
KEPT_BYTES, QUOTED = 1 << 20, 300
#: Linux's limit of one argument or environment variable.
MAX_TEXT = 131_000
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True)
class AgentClient:
    """How an agent reaches the model, and its task; a coroutine agent gets it as ``client``.

    Attributes:
        session, api_key: of the gateway's session.
        url: of the gateway, without a path: ``http://127.0.0.1:40123``.
        task: plain JSON with the key ``id``.
        seed: of the episode, for agents that draw random numbers.
        group, peers: name and size of the group of episodes that are compared. They run in one process, and begin in a
            row.
    """

    session: str
    api_key: str
    url: str
    task: Mapping[str, Any]
    seed: int
    group: str = ""
    peers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", self.group or self.session)

    @property
    def base_url(self) -> str:
        return f"{self.url}/s/{self.session}/v1"

    @property
    def anthropic_url(self) -> str:
        return f"{self.url}/s/{self.session}"

    def variables(self, outside: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the agent's process; ``outside``: those of this process."""
        direct = ",".join(filter(None, (outside.get("NO_PROXY") or outside.get("no_proxy", ""), "127.0.0.1,localhost")))
        return {
            # Sets are iterated in the order of hashes: this makes a Python agent repeatable under one seed.
            "PYTHONHASHSEED": str(self.seed % 2**32),
            **outside,
            "NO_PROXY": direct,
            "no_proxy": direct,
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "RL_AGENTS_SESSION": self.session,
            "RL_AGENTS_TASK": task_text(self.task),
            "RL_AGENTS_SEED": str(self.seed),
        }


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How an agent's run ended.

    Attributes:
        timed_out: it was ended by the time limit.
        error: another problem, one line; empty: none.
    """

    result: AgentResult | None = None
    timed_out: bool = False
    error: str = ""

    @classmethod
    def of(cls, returned: Any) -> AgentEnd:
        """Return the end of an agent with this result; None: it has none."""
        try:
            return cls(None if returned is None else read_result(returned))
        except ValueError as error:
            return cls(error=f"its result cannot be used: {error}")


class Agent(Protocol):
    """A program that calls a model itself."""

    async def run(self, given: AgentClient, timeout_s: float) -> AgentEnd:
        """Run it for one session, at most ``timeout_s`` seconds."""


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """An agent that is a command: ``python my_agent.py {task_id}``.

    The command is split into words like in a shell, but no shell runs. ``{task}`` is the task as JSON; ``{task_id}``,
    ``{seed}``, ``{session}`` and ``{base_url}`` are the other placeholders.
    """

    words: tuple[str, ...]
    grace_s: float = GRACE_S

    @classmethod
    def read(cls, command: str) -> CommandAgent:
        """Read a template.

        Raises:
            InputError: an unclosed quotation, an unknown placeholder, or no such program.
        """
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(f"env.agent_command: {error} in {command!a}") from None
        for word in words:
            for name in PLACEHOLDER.findall(word):
                if name not in PLACES:
                    raise unknown("placeholder in env.agent_command", f"{{{name}}}", [f"{{{p}}}" for p in PLACES])
        if not words:
            raise InputError("env.agent_command is empty")
        if not PLACEHOLDER.search(words[0]) and shutil.which(words[0]) is None:
            raise InputError(f"env.agent_command: there is no program '{words[0]}' here or on the PATH")
        return cls(words)

    def argv(self, given: AgentClient) -> list[str]:
        return [PLACEHOLDER.sub(lambda found: PLACES[found[1]](given), word) for word in self.words]

    async def run(self, given: AgentClient, timeout_s: float) -> AgentEnd:
        argv, variables = self.argv(given), given.variables(os.environ)
        longest = max(map(len, map(os.fsencode, (*argv, variables["RL_AGENTS_TASK"]))))
        if longest > MAX_TEXT:
            return AgentEnd(error=f"a task of {longest} bytes does not fit an environment variable ({MAX_TEXT})")
        try:
            return await _run(argv, variables, timeout_s, self.grace_s)
        except (OSError, ValueError) as error:
            return AgentEnd(error=f"cannot be started: {error}")


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """An agent that is a coroutine function ``(task, client) -> result`` in this process's event loop."""

    function: Callable[[Mapping[str, Any], AgentClient], Awaitable[Any]]

    async def run(self, given: AgentClient, timeout_s: float) -> AgentEnd:
        """See `Agent.run`. A coroutine can be interrupted only while it waits; one that computes blocks the others."""
        task = asyncio.ensure_future(self._call(dict(given.task), given))
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
            if not done:
                return AgentEnd(timed_out=True)
            return task.result()
        finally:
            await _cancelled(task)

    async def _call(self, task: Mapping[str, Any], client: AgentClient) -> AgentEnd:
        try:
            returned = await self.function(task, client)
        # SystemExit would end the whole process, and a CancelledError may be the agent's own.
        except (Exception, SystemExit, BaseExceptionGroup, asyncio.CancelledError) as error:
            current = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
                raise
            return AgentEnd(error=one_line(described(error)))
        return AgentEnd.of(returned)


PLACES: Mapping[str, Callable[[AgentClient], str]] = {
    "task": lambda given: task_text(given.task),
    "task_id": lambda given: str(given.task["id"]),
    "seed": lambda given: str(given.seed),
    "session": lambda given: given.session,
    "base_url": lambda given: given.base_url,
}


def task_text(task: Mapping[str, Any]) -> str:
    return json.dumps(dict(task), ensure_ascii=False)


class Output:
    """The last bytes of an output stream, and the last result in the discarded part."""

    def __init__(self) -> None:
        self.tail = bytearray()
        self._before: Any = None

    async def drain(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(65_536):
            self.tail += piece
            if len(self.tail) > 2 * KEPT_BYTES:
                cut = self.tail.rfind(b"\n", 0, -KEPT_BYTES) + 1 or len(self.tail) - KEPT_BYTES
                found = last_result(bytes(self.tail[:cut]))
                self._before = self._before if found is None else found
                del self.tail[:cut]

    def end(self, exit_code: int = 1) -> AgentEnd:
        """Return the end with the last result; a number may be one if the process has ended well."""
        found = last_result(bytes(self.tail), number=exit_code == 0)
        return AgentEnd.of(self._before if found is None else found)

    def last_line(self) -> str:
        lines = self.tail.decode(errors="replace").split("\n")
        return one_line(next((line for line in reversed(lines) if line.strip()), ""))


async def supervised(argv: Sequence[str], grace_s: float, **options: Any) -> asyncio.subprocess.Process:
    """Start a program below `process_supervisor_child`; ``options``: of `asyncio.create_subprocess_exec`."""
    pipe = asyncio.subprocess.PIPE
    defaults: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "start_new_session": True}
    words = (sys.executable, "-I", "-S", CHILD, str(grace_s), *argv)
    return await asyncio.create_subprocess_exec(*words, **(defaults | options))


async def _run(argv: list[str], variables: Mapping[str, str], timeout_s: float, grace_s: float) -> AgentEnd:
    process = await supervised(argv, grace_s, env=variables)
    assert process.stdout is not None and process.stderr is not None
    out, err = Output(), Output()
    ended = asyncio.ensure_future(_gathered(process, out.drain(process.stdout), err.drain(process.stderr)))
    try:
        done, _ = await asyncio.wait({ended}, timeout=timeout_s)
        if not done:
            await _end(process, ended, grace_s)
            return AgentEnd(out.end().result, timed_out=True)
        return _account(ended.result(), out, err)
    finally:
        if not ended.done():
            await _end(process, ended, 0.0)


async def _gathered(process: asyncio.subprocess.Process, *drains: Awaitable[None]) -> int:
    await asyncio.gather(*drains)
    return await process.wait()


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Future[int], grace_s: float) -> None:
    """End the process through its supervisor; if that fails, kill all of it."""
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        if grace_s <= 0:
            process.stdin.write(b"!")
        process.stdin.close()
    done, _ = await asyncio.wait({ended}, timeout=grace_s + 7.0)
    if not done:
        kill_tree(process.pid)
        await asyncio.wait({ended}, timeout=3.0)
    await _cancelled(ended)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, in any process group."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait a moment for its end; ignore its exception."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
    if task.done() and not task.cancelled():
        task.exception()


def _account(code: int, out: Output, err: Output) -> AgentEnd:
    """Return the end of a process that ended itself. Its exit code matters only without a result."""
    end = out.end(code)
    if code == 0 or end != AgentEnd():
        return end
    said = err.last_line() or out.last_line() or "no output"
    return AgentEnd(error=f"exit code {code}: {said}")


def one_line(text: str) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= QUOTED else f"{words[: QUOTED // 2]} ... {words[-QUOTED // 2 :]}"
