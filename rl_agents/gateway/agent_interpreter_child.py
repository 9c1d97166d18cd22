"""Runs many sessions of one agent in a separate interpreter, which imports the agent once.

    PYTHON agent_interpreter_child.py FD FILE FUNCTION

It imports only the standard library, since rl_agents is not installed in that interpreter. FD is a socket to
`rl_agents.gateway.agent_interpreter`; both sides write one JSON object per line:

    to here                                       from here
                                                  {"ready": true} or {"failed": "one line"}
    {"run": 3, "task": {...}, "client": {...}}    {"end": 3, "result": {...}} or {"end": 3, "error": "one line"}
    {"stop": 3}                                   {"end": 3, ...}
    {"observed": 3, "answer": ...} or "error"     {"step": 3, "text": "the argument of step()"}; null: reset()
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # this folder, since its modules have names like server, which the agent's libraries import too

import asyncio
import difflib
import importlib.util
import inspect
import json
import os
import socket
import sysconfig
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Beginnings of the files that are not the agent's own.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARIES = tuple(path + os.sep for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")), PACKAGE))
#: Concurrent calls of ``asyncio.to_thread``, for frameworks without coroutines.
THREADS = 256
#: Longest message in bytes.
MAX_LINE = 1 << 26
#: Seconds that a canceled agent has to end.
STOP_S = 2.0


class Client:
    """Gives an agent access to the model and to the environment of its task.

    Attributes:
        base_url, anthropic_url, api_key: for OpenAI's or Anthropic's clients.
        session: the session's name.
        seed: for agents that draw random numbers.
        group, peers: name and size of the group of episodes that are compared.
    """

    base_url: str
    anthropic_url: str
    api_key: str
    session: str
    seed: int
    group: str
    peers: int

    def __init__(self, host: Host, number: int, given: dict[str, Any]) -> None:
        self.__dict__.update(given)
        self._host, self._number = host, number

    async def reset(self) -> str:
        """Start the task and return the first observation."""
        return (await self._host.step(self._number, None))[0]

    async def step(self, text: str) -> tuple[str, bool]:
        """Act with a complete response of the model; return the next observation, and whether the episode ended."""
        observation, done = await self._host.step(self._number, text)
        return observation, done


class Host:
    def __init__(self, agent: Any, writer: asyncio.StreamWriter) -> None:
        self.agent, self.writer = agent, writer
        self.running: dict[int, asyncio.Task[None]] = {}
        self.steps: dict[int, asyncio.Future[Any]] = {}

    def send(self, **message: Any) -> None:
        self.writer.write(json.dumps(message, default=_item).encode() + b"\n")

    async def step(self, number: int, text: str | None) -> Any:
        if number in self.steps:
            raise RuntimeError("client.step() is already running; take one step at a time")
        answer = self.steps[number] = asyncio.get_running_loop().create_future()
        self.send(step=number, text=text)
        try:
            return await answer
        finally:
            del self.steps[number]

    def take(self, message: dict[str, Any]) -> None:
        if "run" in message:
            number = message["run"]
            self.running[number] = asyncio.ensure_future(self.report(number, message["task"], message["client"]))
        elif "stop" in message and message["stop"] in self.running:
            self.running[message["stop"]].cancel()
        elif "observed" in message:
            answer = self.steps.get(message["observed"])
            if answer is not None and not answer.done():
                if "error" in message:
                    answer.set_exception(RuntimeError(message["error"]))
                else:
                    answer.set_result(message["answer"])

    async def report(self, number: int, task: dict[str, Any], given: dict[str, Any]) -> None:
        """Run the agent once and report how it ended."""
        running = asyncio.ensure_future(self.run(task, Client(self, number, given)))
        try:
            said = await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=STOP_S)
            said = {"error": "it was stopped"}
        self.running.pop(number, None)
        self.send(end=number, **said)

    async def run(self, task: dict[str, Any], client: Client) -> dict[str, Any]:
        try:
            said = {"result": await self.agent(task, client)}
            json.dumps(said, default=_item)
        except (Exception, SystemExit) as error:  # SystemExit would end the whole process
            return {"error": described(error)}
        return said


def _item(value: Any) -> Any:
    """Return the number in an array or tensor of one item, for `json.dumps`."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def described(error: BaseException) -> str:
    """Return the type, the message and the deepest line of the agent's own code, like `rl_agents.errors.described`."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [place for place in places if not place[0].startswith((*LIBRARIES, "<"))]
    if isinstance(error, SystemExit) and not own:  # a refusal of our own
        return str(error)
    place = f" ({os.path.basename(own[-1][0])}:{own[-1][1]})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def load(file: str, name: str) -> Any:
    """Import the agent; it can import modules of its folder, like a script."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location(os.path.basename(file)[: -len(".py")], file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    agent = getattr(module, name, None)
    if not inspect.iscoroutinefunction(agent):
        there = [other for other, value in vars(module).items() if inspect.iscoroutinefunction(value)]
        close = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"write async def {name}(task, client)"
        sys.exit(f"there is no coroutine function '{name}' in it: {hint}")
    return agent


async def main(descriptor: int, file: str, name: str) -> None:
    """Run sessions until the runner closes the socket."""
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_LINE)
    try:
        host = Host(load(file, name), writer)
    except (Exception, SystemExit) as error:
        writer.write(json.dumps({"failed": described(error)}).encode() + b"\n")
        await writer.drain()
        return
    host.send(ready=True)
    while line := await reader.readline():
        host.take(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
    os._exit(0)  # threads may still wait for a model
