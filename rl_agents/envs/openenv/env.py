"""Environments on an OpenEnv server (openenv 0.10), as a `gymnasium.Env` over text.

An environment object has a WebSocket, and so an environment of the server, of its own. The server's JSON schema of an
action says how a response becomes one: it is the value of the only field, or of the only required one; several fields
are the arguments of a tool; the tools of a tool environment are the agent's. Nothing in a message is evaluated.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rl_agents.background import begin, elsewhere
from rl_agents.envs.gymnasium_adapter import LibraryEnv, named_player, reached, seeded_tasks, task_seed
from rl_agents.envs.openenv import PAGE, SPEC
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.tool_turns import opening
from rl_agents.errors import InputError, named, number_from, report_once
from rl_agents.queues import CallQueue, queued
from rl_agents.tools.calls import Response, Tool, ToolCall, read_response, read_tool, typed
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError, feedback, render_results

#: Seconds between two looks for a server that is away, and for closing a connection.
PAUSE_S, CLOSE_S = 0.5, 2.0
MAX_BYTES, SHOWN = 1 << 24, 200
#: (observation without metadata, reward, done)
Reply = tuple[Mapping[str, Any], float, bool]


def task_ids(split: str, options: Any) -> list[str]:
    """Return ``seed-0`` and so on. Raises `InputError`: there is no such server."""
    if not options.url:
        raise InputError(f"environment openenv needs env.url=http://HOST:PORT, the address of a server ({PAGE})")
    try:
        schema_of(options.url, options.key_env, options.timeout_s)
    except ConnectionError as error:
        raise InputError(str(error)) from error
    return seeded_tasks(split, options)


starter_of = partial(named_player, SPEC)


def headers_of(key_env: str) -> dict[str, str]:
    if key_env and not os.environ.get(key_env):
        raise InputError(f"env.key_env={key_env}: the environment variable is not set")
    return {"Authorization": f"Bearer {os.environ[key_env]}"} if key_env else {}


@lru_cache(maxsize=16)  # once per process, so that a later death does not matter
def schema_of(url: str, key_env: str, timeout_s: float) -> Any:
    """Return the JSON schema of a server's actions. Raises `ConnectionError`: it has none."""
    try:
        reply = httpx.get(f"{url.rstrip('/')}/schema", headers=headers_of(key_env), timeout=timeout_s, trust_env=False)
        return reply.raise_for_status().json()["action"]
    except (httpx.HTTPError, httpx.InvalidURL, json.JSONDecodeError, LookupError, TypeError) as error:
        raise ConnectionError(f"OpenEnv server {url}: /schema: {_line(error)}") from error


def read_form(schema: Mapping[str, Any]) -> tuple[str, Tool | None]:
    """Return the field that a response fills (empty: it has calls), and the action as a tool (None: of the server)."""
    fields = {name: kind for name, kind in schema.get("properties", {}).items() if name != "metadata"}
    if not fields or "tool_name" in fields:
        return "", None
    needed = [name for name in schema.get("required", ()) if name in fields] or list(fields)
    name = re.sub(r"\W+", "_", str(schema.get("title", "action")))
    data = {"name": name, "description": schema.get("description"), "parameters": {**schema, "properties": fields}}
    return needed[0] if len(needed) == 1 else "", read_tool(data)


def text_of(observation: Mapping[str, Any], shown: list[str]) -> str:
    """Return the agent's text: a tool's result, the only field's value, or a line for each. Raises `ToolError`."""
    if "tool_name" in observation:
        error, result = observation.get("error"), observation.get("result")
        whole = result if isinstance(result, dict) else {}
        parts = whole.get("content")
        text = "\n".join(_plain(part.get("text", part)) for part in parts) if parts else _plain(result)
        if error or whole.get("is_error"):
            raise ToolError(_plain(error.get("message", error)) if error else text)
        return text
    values = {name: _plain(observation[name]) for name in shown or observation if observation.get(name) is not None}
    return "".join(values.values()) if len(values) == 1 else "\n".join(f"{k}: {v}" for k, v in values.items())


class OpenEnv(LibraryEnv):
    """See the module. ``valid``: every action fits the server's form. ``metrics``: ``turns``, ``invalid_actions``."""

    def __init__(self, options: Any, max_turns: int) -> None:
        self.options, self.max_turns, self._where = options, max_turns, f"OpenEnv server {options.url}"
        self._socket: ClientConnection | None = None

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        """Start ``options["task_id"]``, or a train task drawn with ``seed``; raises `InputError`, or as `_ask` does."""
        self._task = self.draw(seed, options, lambda: task_ids("train", self.options))
        self._turns, self._invalid, self._return, self._done = 0, 0, 0.0, False
        observation, _, _ = await self._began({**self.options.kwargs, "seed": task_seed(self._task)})
        text = "\n\n".join(filter(None, (self.options.prompt, text_of(observation, self.options.shown))))
        if not text.strip():
            raise InputError(f"{self._where}: the first observation is empty: set env.prompt, or other env.shown")
        if self._field:
            return text, self._info(True)
        text, chat = opening([{"role": "user", "content": text}], self._toolbox.definitions)
        return text, {**self._info(True), **chat}

    async def step(self, action: str) -> StepResult:  # type: ignore[override]
        """Send the actions of a response, one after the other; raises as `_ask` does."""
        self._reward, self._accepted = 0.0, True
        results = await self._toolbox.run(self._read(action))
        valid = self._accepted and all(result.fits for result in results)
        self._turns, self._invalid = self._turns + 1, self._invalid + (not valid)
        self._return += self._reward
        done = self._done or not results  # the agent of a tool environment has nothing more to do
        reply = results[0].content if self._field else render_results(results)
        return reply, self._reward, done, not done and self._turns >= self.max_turns, self._info(valid)

    def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(Exception):
                begin(socket.close()).result(2 * CLOSE_S)

    def _read(self, action: str) -> Response:
        if not self._tool or not self._field:
            response = read_response(action, self._toolbox.tools)
            problem = response.problem or f"call the tool {self._tool.name}" if self._tool else ""
            return response if response.calls or not problem else Response("", problem=problem)
        words = read_thoughts(action).words.strip()
        value = typed(words, self._tool.parameters["properties"][self._field])
        return Response(words, (ToolCall(self._tool.name, {self._field: value}),), "" if words else "an empty response")

    def _info(self, valid: bool) -> dict[str, Any]:
        success = reached(self._return, self.options.success_return)
        metrics = {"turns": float(self._turns), "invalid_actions": float(self._invalid)}
        return {"task_id": self._task, "success": success, "valid": valid, "metrics": metrics}

    async def _act(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._done:
            raise ToolError("not run: the episode has ended")
        sent = arguments if self._tool else {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}
        observation, reward, self._done = await elsewhere(self._ask("step", sent))
        self._reward += reward
        return text_of(observation, self.options.shown)

    async def _began(self, sent: Mapping[str, Any]) -> Reply:
        """Reset the server's environment; wait for a server that is away, at most ``env.wait_s``."""
        wait_s, since = self.options.wait_s, time.monotonic()
        with queued(CallQueue(self._where), wait_s + 2 * self.options.timeout_s):
            while True:
                try:
                    return await elsewhere(self._opened(sent))
                except ConnectionError as error:
                    if time.monotonic() - since > wait_s:
                        raise
                    report_once(f"{error}; waiting up to {wait_s:g} s (env.wait_s)")
                    await asyncio.sleep(PAUSE_S)

    async def _opened(self, sent: Mapping[str, Any]) -> Reply:
        """Reset, in a new session if there is none."""
        keys = self.options
        if self._socket is None:
            schema = await asyncio.to_thread(schema_of, keys.url, keys.key_env, keys.timeout_s)
            try:
                self._socket = await connect(
                    f"ws{keys.url.rstrip('/')[4:]}/ws", additional_headers=headers_of(keys.key_env), proxy=None,
                    open_timeout=keys.timeout_s, close_timeout=CLOSE_S, ping_timeout=None, max_size=MAX_BYTES,
                )  # fmt: skip
            except (OSError, EOFError, WebSocketException) as error:
                raise ConnectionError(f"{self._where}: no connection: {_line(error)}") from error
            with named(f"{self._where}: /schema"):
                self._field, self._tool = read_form(schema)
            if self._tool is None:
                listed, _, _ = await self._ask("step", {"type": "list_tools"})
                with named(f"{self._where}: its tools cannot be used"):
                    tools = [read_tool({**tool, "parameters": tool["input_schema"]}) for tool in listed["tools"]]
            else:
                tools = [self._tool]
            self._toolbox = Toolbox([BoundTool(tool, partial(self._act, tool.name)) for tool in tools])
        return await self._ask("reset", sent)

    async def _ask(self, kind: str, sent: Mapping[str, Any]) -> Reply:
        """Send ``reset`` or ``step``.

        Raises:
            ConnectionError: the connection is lost, or all sessions of the server are in use.
            ToolError: the action does not fit; the message names its fields.
            RuntimeError: the environment raised, or there is no answer in time.
        """
        # Without an answer the socket is given up: a late one would be read as that to the next question.
        where, socket, self._socket = f"{self._where}: {kind}", self._socket, None
        if socket is None:
            raise ConnectionError(f"{where}: no connection")
        try:
            async with asyncio.timeout(self.options.timeout_s):
                with suppress(ConnectionClosed):  # the reason may be there to be read
                    await socket.send(json.dumps({"type": kind, "data": dict(sent)}))
                reply = await socket.recv()
            self._socket = socket
        except TimeoutError:
            raise RuntimeError(f"{where}: no answer within {self.options.timeout_s:g} s (env.timeout_s)") from None
        except (OSError, WebSocketException) as error:
            raise ConnectionError(f"{where}: the connection is lost: {_line(error)}") from error
        finally:
            if self._socket is None:
                begin(socket.close())
        try:
            message = json.loads(reply)
            data = message["data"]
            if message["type"] != "error":
                observation = {name: value for name, value in data["observation"].items() if name != "metadata"}
                return observation, number_from(self._ask, data.get("reward") or 0), bool(data.get("done"))
            code, text = data.get("code"), str(data.get("message"))[:SHOWN]
            wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in data.get("errors") or ()]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise RuntimeError(f"{where}: the answer is {ascii(reply)[:SHOWN]}") from error
        if code == "VALIDATION_ERROR" and kind == "step":
            self._accepted = False
            raise ToolError(feedback("; ".join(wrong) or text))
        if code == "CAPACITY_REACHED":
            raise ConnectionError(f"{where}: {text}: start it with a larger max_concurrent_envs")
        raise RuntimeError(f"{where}: {text} ({code})")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:SHOWN] or type(error).__name__


make = OpenEnv
