"""Agents in an interpreter of their own, many sessions in one process: ``env.agent_python``.

A framework takes seconds to import, so its process lives as long as the runner and plays session after session, side by
side (`rl_agents.gateway.agent_interpreter_child`). It is started below `rl_agents.gateway.process_supervisor_child`, as
commands are, and so never outlives the runner. A session whose time is over is cancelled. A process that does not even
do that is stuck: it is killed with all that it started, and the next session gets a new one. Sessions of a process that
ended have failed. All of this runs on the loop of `rl_agents.background`, whatever loops its callers have.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rl_agents.background import elsewhere, wait
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import CHILD, GRACE_S, AgentEnd, Given, Output, kill_tree, one_line
from rl_agents.gateway.results import AgentResult, read_result

#: Where environments step: a judge that they wait for looks names up on the loop's own threads.
_STEPS = ThreadPoolExecutor(64, "agent-steps")
HOST_CHILD = str(Path(__file__).with_name("agent_interpreter_child.py"))
#: Seconds to import a framework, to cancel a session (the child waits 2), and to take a message.
START_S, STOP_S, SEND_S = 300.0, 5.0, 5.0
#: Longest message.
MAX_LINE = 1 << 26
Message = dict[str, Any]


class World(Protocol):
    """The environment that an agent's task names, played on this side."""

    def act(self, text: str | None) -> tuple[str, bool]:
        """Return the next observation, and whether that was the end; None starts the episode."""

    def result(self) -> AgentResult | None:
        """Return what the episode has brought so far; None where it never began."""


@dataclass(frozen=True, slots=True)
class HostedAgent:
    """An agent that is a coroutine function ``(task, client) -> result`` in a file, for another interpreter.

    Attributes:
        world: makes a session's environment, which ``client.reset()`` and ``client.step(text)`` play. Its result is
            the agent's, unless the agent returns one.
    """

    python: str
    file: str
    function: str
    world: Callable[[Given], World]

    async def run(self, given: Given, timeout_s: float) -> AgentEnd:
        """See `Agent.run`. The time begins when the process is there.

        Raises:
            InputError: the agent cannot be imported in its interpreter.
        """
        return await elsewhere(self._run(given, timeout_s))

    async def _run(self, given: Given, timeout_s: float) -> AgentEnd:
        host = await host_of(self.python, self.file, self.function)
        session = Session(host, self.world(given))
        try:
            async with asyncio.timeout(timeout_s):
                return await session.play(given)
        except TimeoutError:
            await session.stop()
            return AgentEnd(session.world.result(), timed_out=True)
        finally:
            session.leave()


class Session:
    def __init__(self, host: Host, world: World) -> None:
        self.host, self.world = host, world
        self._number, self._ended = next(host.numbers), False
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        host.sessions[self._number] = self._inbox
        if host.over:
            self._inbox.put_nowait({"error": host.over})

    async def play(self, given: Given) -> AgentEnd:
        client = {
            "base_url": given.base_url, "anthropic_url": given.anthropic_url, "api_key": given.key,
            "session": given.session, "seed": given.seed,
        }  # fmt: skip
        await self.host.send({"play": self._number, "task": dict(given.task), "client": client})
        while True:
            message = await self._inbox.get()
            if "ask" not in message:
                self._ended = True
                return self._account(message)
            context, loop = contextvars.copy_context(), asyncio.get_running_loop()
            told = await loop.run_in_executor(_STEPS, context.run, self._told, message["text"])
            await self.host.send({"told": self._number, **told})

    async def stop(self) -> None:
        """Cancel it; where nothing comes back, end the process."""
        await self.host.send({"stop": self._number})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while not self._ended:
                    self._ended = "ask" not in await self._inbox.get()
        if not self._ended:
            await self.host.kill("it was stuck, and was killed")

    def leave(self) -> None:
        """Forget about it; an agent that still runs is told to stop."""
        del self.host.sessions[self._number]
        if not self._ended:
            self.host.write({"stop": self._number})

    def _told(self, text: str | None) -> Message:
        try:
            return {"answer": self.world.act(text)}
        except Exception as error:  # environments raise what they like
            return {"error": one_line(f"the environment: {type(error).__name__}: {error}")}

    def _account(self, message: Message) -> AgentEnd:
        if "error" in message:
            return AgentEnd(self.world.result(), error=one_line(message["error"]))
        try:
            returned = message["result"]
            return AgentEnd(self.world.result() if returned is None else read_result(returned))
        except ValueError as error:
            return AgentEnd(error=f"its result cannot be used: {error}")


class Host:
    """A process that plays sessions.

    Attributes:
        sessions: who gets the messages of which session.
        over: why it plays no more; empty while it does.
    """

    def __init__(self, python: str, file: str, function: str) -> None:
        self.sessions: dict[int, asyncio.Queue[Message]] = {}
        self.numbers, self.over = itertools.count(1), ""
        self._words = [python, HOST_CHILD, file, function]
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        #: Why the agent cannot be imported; empty: it is.
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._play())

    async def wait(self) -> None:
        """Wait until the agent is imported.

        Raises:
            InputError: it cannot be.
        """
        try:
            problem = await asyncio.wait_for(asyncio.shield(self._ready), START_S)
        except TimeoutError:
            problem = f"it was not imported within {START_S:g} s"
            await self.kill(problem)
        if problem:
            raise InputError(problem)

    def write(self, message: Message) -> None:
        """Send a message without waiting for its way to be free."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def send(self, message: Message) -> None:
        """Send a message; a process that does not read is stuck, which its caller's time limit finds out."""
        self.write(message)
        with contextlib.suppress(OSError, TimeoutError):
            if self._writer is not None:
                await asyncio.wait_for(self._writer.drain(), SEND_S)

    async def kill(self, why: str) -> None:
        self.over = self.over or why
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"!")
            self._process.stdin.close()
        await asyncio.wait({self._task}, timeout=GRACE_S + 7.0)
        kill_tree(self._process.pid)

    async def _play(self) -> None:
        """Start the process, and hand out what it says until it ends."""
        output = Output()
        try:
            ours = await self._start()
        except OSError as error:
            self.over = f"the agents' process cannot be started: {error}"
            self._ready.set_result(self.over)
            return
        assert self._process is not None and self._process.stdout is not None
        draining = asyncio.create_task(output.drain(self._process.stdout))
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        with contextlib.suppress(OSError, ValueError):  # it is gone, or says what is no message
            while line := await reader.readline():
                message = json.loads(line)
                if "ready" in message or "failed" in message:
                    self._ready.set_result(one_line(message.get("failed", "")))
                elif inbox := self.sessions.get(message.get("ask") or message.get("end")):
                    inbox.put_nowait(message)
        self._writer.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), GRACE_S + 7.0)
        except TimeoutError:
            kill_tree(self._process.pid)
            code = await self._process.wait()
        await asyncio.wait({draining}, timeout=GRACE_S)
        last = output.last_line() or "it said nothing"
        self.over = f"the agents' process ended: {self.over or f'exit code {code}: {last}'}"
        if not self._ready.done():
            self._ready.set_result(self.over)
        for inbox in self.sessions.values():
            inbox.put_nowait({"error": self.over})

    async def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        python, child, *agent = self._words
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", CHILD, str(GRACE_S), python, child, str(theirs.fileno()), *agent,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        return ours


_hosts: dict[tuple[str, str, str], Host] = {}


async def host_of(python: str, file: str, function: str) -> Host:
    """Return this process's host of an agent; a new one where there is none that plays.

    Raises:
        InputError: the agent cannot be imported.
    """
    name = (python, file, function)
    host = _hosts.get(name)
    if host is None or host.over:
        host = _hosts[name] = Host(*name)
    try:
        await host.wait()
    except InputError as error:
        raise InputError(f"env.agent={file}:{function} in {python}: {error}") from None
    return host


def close_hosts() -> None:
    """End the processes of this one that play nothing; a framework takes 100 to 300 MB."""

    async def close() -> None:
        for name in [name for name, host in _hosts.items() if not host.sessions]:
            await _hosts.pop(name).kill("no session uses it")

    if _hosts:
        wait(close())
