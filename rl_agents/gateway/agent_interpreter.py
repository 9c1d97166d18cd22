"""Agents in a separate Python interpreter, many sessions in one process: ``env.agent_python``.

Importing a framework takes seconds, so its process lives as long as the runner and runs sessions concurrently
(`rl_agents.gateway.agent_interpreter_child`). It is started below `rl_agents.gateway.process_supervisor_child`, like
commands, and so never outlives the runner. A session that exceeds its time is canceled. A process that does not react
is stuck: it is killed with all its descendants, and the next session gets a new one. If a process ends, its sessions
fail. Everything here runs on the event loop of `rl_agents.background`, independent of the callers' loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rl_agents.background import elsewhere, wait
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import GRACE_S, AgentClient, AgentEnd, Output, kill_tree, one_line, supervised
from rl_agents.gateway.results import AgentResult

#: Threads for environment steps. The loop's own threads must stay free, since a judge may need them for name lookup.
_STEPS = ThreadPoolExecutor(64, "agent-steps")
HOST_CHILD = str(Path(__file__).with_name("agent_interpreter_child.py"))
#: Seconds to import a framework, to cancel a session (the child waits 2), and to accept a message.
START_S, STOP_S, SEND_S = 300.0, 5.0, 5.0
#: Longest message in bytes.
MAX_LINE = 1 << 26
#: What an agent gets of its `AgentClient`.
CLIENT = ("base_url", "anthropic_url", "api_key", "session", "seed", "group", "peers")
Message = dict[str, Any]


class AgentEnvironment(Protocol):
    """The environment of an agent's task, which runs in this process."""

    def act(self, text: str | None) -> tuple[str, bool]:
        """Return the next observation and whether the episode has ended; None starts the episode."""

    def result(self) -> AgentResult | None:
        """Return the result so far; None if the episode never began."""

    def close(self) -> None:
        """Close the environment of an episode that the agent left before its end."""


@dataclass(frozen=True, slots=True)
class HostedAgent:
    """An agent that is a coroutine function ``(task, client) -> result`` in a file, for another interpreter.

    Attributes:
        world: makes a session's environment for ``client.reset()`` and ``client.step(text)``. Its result is the
            agent's, unless the agent returns one.
    """

    python: str
    file: str
    function: str
    world: Callable[[AgentClient], AgentEnvironment]

    async def run(self, given: AgentClient, timeout_s: float) -> AgentEnd:
        """See `Agent.run`. The time begins when the process is ready.

        Raises:
            InputError: the agent cannot be imported in its interpreter.
        """
        world = self.world(given)
        return _agent_end(await elsewhere(self._message(given, world, timeout_s)), world)

    def ask(self, task: Mapping[str, Any], timeout_s: float) -> Any:
        """Return what the function returns for a task that needs no model.

        Raises:
            InputError: it cannot be imported, it raises, or its time is over.
        """
        given = AgentClient("", "", "", task, 0)
        message = wait(self._message(given, self.world(given), timeout_s))
        if message is None:
            raise InputError(f"{self.python} gave no answer within {timeout_s:g} s")
        if "error" in message:
            raise InputError(one_line(message["error"]))
        return message["result"]

    async def _message(self, given: AgentClient, world: AgentEnvironment, timeout_s: float) -> Message | None:
        """Return the message at the end of a session; None: its time was over."""
        session = HostedSession(await host_of(self.python, self.file, self.function), world)
        try:
            async with asyncio.timeout(timeout_s):
                return await session.message(given)
        except TimeoutError:
            await session.stop()
            return None
        finally:
            session.leave()


class HostedSession:
    def __init__(self, host: AgentProcess, world: AgentEnvironment) -> None:
        self.host, self.world = host, world
        self._number, self._ended = next(host.numbers), False
        self._step: Future[Message] | None = None
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        host.sessions[self._number] = self._inbox
        if host.over:
            self._inbox.put_nowait({"error": host.over})

    async def message(self, given: AgentClient) -> Message:
        """Return the message at the session's end."""
        fields = {name: getattr(given, name) for name in CLIENT}
        await self.host.send({"run": self._number, "task": dict(given.task), "client": fields})
        while True:
            message = await self._inbox.get()
            if "step" not in message:
                self._ended = True
                return message
            self._step = _STEPS.submit(contextvars.copy_context().run, self._observed, message["text"])
            observed = await asyncio.wrap_future(self._step)
            await self.host.send({"observed": self._number, **observed})

    async def stop(self) -> None:
        """Cancel the session; if the process does not react, kill it."""
        await self.host.send({"stop": self._number})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while not self._ended:
                    self._ended = "step" not in await self._inbox.get()
        if not self._ended:
            await self.host.kill("it was stuck, and was killed")

    def leave(self) -> None:
        """Remove the session, close its environment, and stop its agent if it is still running."""
        del self.host.sessions[self._number]
        if self._step is not None:  # which may still be running
            self._step.add_done_callback(lambda _: _STEPS.submit(self.world.close))
        if not self._ended:
            self.host.write({"stop": self._number})

    def _observed(self, text: str | None) -> Message:
        try:
            return {"answer": self.world.act(text)}
        except Exception as error:  # environments may raise anything
            return {"error": one_line(f"the environment: {type(error).__name__}: {error}")}


class AgentProcess:
    """A process that runs sessions.

    Attributes:
        sessions: the inboxes of sessions, by number.
        over: why it has ended; empty: it is running.
    """

    def __init__(self, python: str, file: str, function: str) -> None:
        self.sessions: dict[int, asyncio.Queue[Message]] = {}
        self.numbers, self.over = itertools.count(1), ""
        self._words = [python, HOST_CHILD, file, function]
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        #: Why the agent cannot be imported; empty: it is imported.
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Wait until the agent is imported.

        Raises:
            InputError: it cannot be imported.
        """
        try:
            problem = await asyncio.wait_for(asyncio.shield(self._ready), START_S)
        except TimeoutError:
            problem = f"it was not imported within {START_S:g} s"
            await self.kill(problem)
        if problem:
            raise InputError(problem)

    def write(self, message: Message) -> None:
        """Send a message without waiting for room in the buffer."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def send(self, message: Message) -> None:
        """Send a message; the caller's time limit detects a stuck process, which does not read."""
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

    async def _run(self) -> None:
        """Start the process and distribute its messages until it ends."""
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
        with contextlib.suppress(OSError, ValueError):  # it has ended, or sent an invalid message
            while line := await reader.readline():
                message = json.loads(line)
                if "ready" in message or "failed" in message:
                    self._ready.set_result(one_line(message.get("failed", "")))
                elif inbox := self.sessions.get(message.get("step") or message.get("end")):
                    inbox.put_nowait(message)
        self._writer.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), GRACE_S + 7.0)
        except TimeoutError:
            kill_tree(self._process.pid)
            code = await self._process.wait()
        await asyncio.wait({draining}, timeout=GRACE_S)
        last = output.last_line() or "no output"
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
            argv = [python, child, str(theirs.fileno()), *agent]
            self._process = await supervised(
                argv, GRACE_S, stderr=asyncio.subprocess.STDOUT, pass_fds=[theirs.fileno()]
            )
        return ours


def _agent_end(message: Message | None, world: AgentEnvironment) -> AgentEnd:
    if message is None:
        return AgentEnd(world.result(), timed_out=True)
    if "error" in message:
        return AgentEnd(world.result(), error=one_line(message["error"]))
    if message["result"] is not None:
        return AgentEnd.of(message["result"])
    try:
        return AgentEnd(world.result())
    except ValueError as error:
        return AgentEnd(error=f"its result cannot be used: {error}")


_hosts: dict[tuple[str, str, str], AgentProcess] = {}


async def host_of(python: str, file: str, function: str) -> AgentProcess:
    """Return the running host of an agent, or start one.

    Raises:
        InputError: the agent cannot be imported.
    """
    name = (python, file, function)
    host = _hosts.get(name)
    if host is None or host.over:
        host = _hosts[name] = AgentProcess(*name)
    try:
        await host.wait()
    except InputError as error:
        raise InputError(f"env.agent={file}:{function} in {python}: {error}") from None
    return host


def close_hosts() -> None:
    """End idle hosts, since a framework takes 100 to 300 MB."""

    async def close() -> None:
        for name in [name for name, host in _hosts.items() if not host.sessions]:
            await _hosts.pop(name).kill("no session uses it")

    if _hosts:
        wait(close())
