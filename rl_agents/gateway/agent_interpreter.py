"""Agents in an interpreter of their own, many sessions in one process: ``env.agent_python``.

A framework takes seconds to import, so its process lives as long as the runner and plays session after session, side by
side (`rl_agents.gateway.agent_interpreter_child`). It is started below `rl_agents.gateway.process_supervisor_child`, as
commands are, and so never outlives the runner. A session whose time is over is cancelled. A process that does not even
do that is stuck: it is killed with all that it started, and the next session gets a new one. Sessions of a process that
ended have failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import (
    CHILD,
    GRACE_S,
    KEPT_BYTES,
    AgentEnd,
    Given,
    Output,
    kill_tree,
    one_line,
)
from rl_agents.gateway.results import AgentResult, read_result

HOST_CHILD = str(Path(__file__).with_name("agent_interpreter_child.py"))
#: Seconds to import a framework, to cancel a session (the child waits 2), and to take a message.
START_S, STOP_S, SEND_S = 300.0, 5.0, 5
Message = dict[str, Any]


class World(Protocol):
    """The environment that an agent's task names, played on this side."""

    def act(self, text: str | None) -> tuple[str, bool]:
        """Return the next observation, and whether that was the end; None starts the episode."""
        ...

    def result(self) -> AgentResult | None:
        """Return what the episode has brought so far; None where it never began."""
        ...


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
        host = await asyncio.to_thread(host_of, self.python, self.file, self.function)
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
    """One session of a process."""

    def __init__(self, host: Host, world: World) -> None:
        self.host, self.world = host, world
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._number = host.join(lambda message: loop.call_soon_threadsafe(self._inbox.put_nowait, message))
        self._ended = False

    async def play(self, given: Given) -> AgentEnd:
        """Let the agent play, and answer what it asks the environment."""
        client = {
            "base_url": given.base_url, "anthropic_url": given.anthropic_url, "api_key": given.key,
            "session": given.session, "seed": given.seed,
        }  # fmt: skip
        await self._send(play=self._number, task=dict(given.task), client=client)
        while True:
            message = await self._inbox.get()
            if "ask" not in message:
                self._ended = True
                return self._account(message)
            await self._send(told=self._number, **await asyncio.to_thread(self._told, message["text"]))

    async def stop(self) -> None:
        """Cancel it; where nothing comes back, end the process."""
        await self._send(stop=self._number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while not self._ended:
                    self._ended = "ask" not in await self._inbox.get()
        if not self._ended:
            await asyncio.to_thread(self.host.kill, "it was stuck, and was killed")

    def leave(self) -> None:
        """Forget about it; an agent that still runs is told to stop."""
        self.host.sessions.pop(self._number, None)
        if not self._ended:
            asyncio.get_running_loop().run_in_executor(None, lambda: self.host.send({"stop": self._number}))

    async def _send(self, **message: Any) -> None:
        await asyncio.to_thread(self.host.send, message)

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
    """A process that plays sessions; two threads read what it says.

    Attributes:
        sessions: who gets the messages of which session.
        over: why it plays no more; empty while it does.
    """

    def __init__(self, python: str, file: str, function: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_S, 0))
        with theirs:
            words = [python, HOST_CHILD, str(theirs.fileno()), file, function]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", CHILD, str(GRACE_S), *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self.sessions: dict[int, Callable[[Message], object]] = {}
        self.over, self.failed = "", ""
        self._output, self._numbers = Output(), itertools.count(1)
        self._ready, self._sending = threading.Event(), threading.Lock()
        self._reading = threading.Thread(target=self._read_output, daemon=True)
        self._reading.start()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self) -> None:
        """Wait until the agent is imported.

        Raises:
            InputError: it cannot be.
        """
        if not self._ready.wait(START_S):
            self.kill(f"it was not imported within {START_S:g} s")
        if self.failed or self.over:
            raise InputError(self.failed or self.over)

    def join(self, inbox: Callable[[Message], object]) -> int:
        """Begin a session."""
        number = next(self._numbers)
        self.sessions[number] = inbox
        if self.over:
            inbox({"error": self.over})
        return number

    def send(self, message: Message) -> None:
        """Send a message; a process that does not read is stuck, and whoever waits for its time will find out."""
        data = json.dumps(message).encode() + b"\n"
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(data)

    def kill(self, why: str) -> None:
        """End the process and all that it started."""
        self.over = self.over or why
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"!")
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S + 7.0)
        kill_tree(self._process.pid)

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if "ready" in message or "failed" in message:
                    self.failed = one_line(message.get("failed", ""))
                    self._ready.set()
                elif inbox := self.sessions.get(message.get("ask") or message.get("end")):
                    _deliver(inbox, message)
        code = self._process.wait()
        self._reading.join(GRACE_S)
        last = self._output.last_line() or "it said nothing"
        self.over = f"the agents' process ended: {self.over or f'exit code {code}: {last}'}"
        self._ready.set()
        for inbox in list(self.sessions.values()):
            _deliver(inbox, {"error": self.over})

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read1(65_536):  # type: ignore[attr-defined]
            self._output.tail = (self._output.tail + piece)[-KEPT_BYTES:]


def _deliver(inbox: Callable[[Message], object], message: Message) -> None:
    with contextlib.suppress(RuntimeError):  # its event loop is closed
        inbox(message)


_hosts: dict[tuple[str, str, str], Host] = {}
_lock = threading.Lock()


def host_of(python: str, file: str, function: str) -> Host:
    """Return this process's host of an agent; a new one where there is none that plays.

    Raises:
        InputError: the agent cannot be imported.
    """
    name = (python, file, function)
    with _lock:
        host = _hosts.get(name)
        if host is None or host.over:
            host = _hosts[name] = Host(*name)
    try:
        host.wait()
    except InputError as error:
        raise InputError(f"env.agent={file}:{function} in {python}: {error}") from None
    return host


def close_hosts() -> None:
    """End the processes of this one that play nothing; a framework takes 100 to 300 MB."""
    with _lock:
        for name in [name for name, host in _hosts.items() if not host.sessions]:
            _hosts.pop(name).kill("nobody plays any more")
