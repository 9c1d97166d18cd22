"""Question answering with the tools of MCP servers, as a `gymnasium.Env` over text.

An episode has at most eight turns: calls of tools, up to four concurrent ones in a turn, and an answer, which alone is
rewarded. An episode is as reproducible as the servers' tools.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_agents.data.tables import fingerprint
from rl_agents.envs.mcp import SPEC, McpOptions
from rl_agents.envs.mcp.tasks import load_tasks
from rl_agents.envs.questions import Question, exact_match, f1, from_kept
from rl_agents.envs.stateful import EpisodeState, StepResult, observations
from rl_agents.envs.tool_turns import ToolEnv, tool_help
from rl_agents.errors import InputError, unknown
from rl_agents.tools.calls import Response
from rl_agents.tools.mcp_client import McpClient, McpTool
from rl_agents.tools.mcp_servers import read_servers
from rl_agents.tools.toolbox import BoundTool, Toolbox, render_results

#: Calls in one turn; further ones are not run.
MAX_CALLS = 4
#: Seconds until a server must have listed its tools.
START_TIMEOUT_S = 30.0

_SYSTEM = """\
You answer questions with the help of tools.

Whenever you have learned something new, first reason about it inside <think> and </think>. Then either call tools, up \
to {max_calls} calls in one turn, and read in the next turn what they return; or, once you know the answer, write it \
inside <answer> and </answer>, as short as possible. You have {max_turns} turns, the answer included."""
_MALFORMED = "Your last response was not valid: {problem}. Call tools, or answer inside <answer> and </answer>."
ANSWER_NOW = "No further tool call is possible. Write your answer now, inside <answer> and </answer>."


#: Clients of this process and the numbers of their environments, by servers and limits.
_clients: dict[tuple[object, ...], tuple[McpClient, int]] = {}
_lock = threading.Lock()


class Connection:
    """An environment's share of the servers of a file, which end when the last environment closes its connection.

    The servers start at once; await `client.opened()`.
    """

    def __init__(self, options: McpOptions) -> None:
        path = Path(options.servers).expanduser()
        limits = options.call_timeout_s, START_TIMEOUT_S, options.call_concurrency
        self._key = (fingerprint([path]) if options.share == "process" else object(), *limits)
        with _lock:
            self.client, users = _clients.get(self._key) or (McpClient(read_servers(path), *limits), 0)
            _clients[self._key] = self.client, users + 1

    def close(self) -> None:
        with _lock:
            client, users = _clients.pop(self._key)
            if users > 1:
                _clients[self._key] = client, users - 1
                return
        client.close()  # waits for the servers, so the lock must not be held


ANSWER_NOTE = "answered"


@dataclass(frozen=True, slots=True)
class ToolState(EpisodeState):
    """The agent's state in an episode; the tools may have their own.

    Attributes:
        seen: the different results, each with its call.
        calls, failed: number of calls that were run, and of those that failed.
        answer: empty before the answer.
    """

    question: Question
    seen: frozenset[str] = frozenset()
    calls: int = 0
    failed: int = 0
    answer: str = ""


class McpEnv(ToolEnv[ToolState, McpOptions]):
    """Call tools of MCP servers, then answer a question."""

    observation_space = observations(1 << 21)
    registered = SPEC
    awaited = True
    answer_instruction = ANSWER_NOW
    #: Only the servers know the states of their tools, so branching repeats the actions.
    snapshot = None  # type: ignore[assignment]
    restore = None  # type: ignore[assignment]

    def __init__(self, options: McpOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        if not self.options.servers:
            raise InputError('environment mcp needs env.servers=FILE, a JSON file {"mcpServers": {NAME: {...}}}')
        read_servers(Path(self.options.servers).expanduser())  # checks the file and starts none of them
        self._tasks = load_tasks(self.options)
        self._system = _SYSTEM.format(max_calls=MAX_CALLS, max_turns=self.max_turns)
        self._connection: Connection | None = None
        self._toolbox: Toolbox | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``. The first reset starts the servers.

        Returns:
            A coroutine that returns observation and info.
        """
        return self._opened(from_kept(self._tasks.find(self._draw_task(seed, options))))

    async def _opened(self, question: Question) -> tuple[str, dict[str, Any]]:
        tools = (await self._open_toolbox()).definitions
        self._state = ToolState(question)
        info = self._info(self._state, valid=True, progress=None)
        info["messages"] = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": question.question},
        ]
        info["tools"] = tools
        # One text for agents that do not receive rules, tools and question as a chat.
        return f"{self._system}\n\n{tool_help(tools)}\n\nQuestion: {question.question}", info

    def _answer(self, state: ToolState, answer: str) -> StepResult:
        score = exact_match if self.options.reward == "em" else f1
        earned = score(answer, state.question.answers)
        new = replace(state, answer=answer)
        return self._end_turn(new, ANSWER_NOTE, earned, valid=True, progress=None, terminated=True, query="")

    def _reject(self, state: ToolState, problem: str) -> StepResult:
        return self._end_malformed(state, _MALFORMED.format(problem=problem), query="")

    def close(self) -> None:
        """Close the connection; servers that no other environment uses end."""
        connection, self._connection, self._toolbox = self._connection, None, None
        if connection is not None:
            connection.close()

    async def _call(self, state: ToolState, response: Response) -> StepResult:
        results = await (await self._open_toolbox()).run(response)
        ran = [result for result in results if result.fits]
        seen = state.seen | {f"{result.call}\n{result.content}" for result in ran}
        failed = sum(not result.ok for result in ran)
        new = replace(state, seen=seen, calls=state.calls + len(ran), failed=state.failed + failed)
        return self._end_turn(
            new,
            render_results(results),
            valid=len(ran) == len(results),
            progress=len(seen) > len(state.seen) if ran else None,
            query=" ; ".join(str(result.call) for result in ran),
        )

    async def _open_toolbox(self) -> Toolbox:
        if self._toolbox is None:
            self._connection = self._connection or Connection(self.options)
            try:
                client = await self._connection.client.opened()
            except InputError:
                # A later reset begins with servers of its own. This may be the loop that closing waits for.
                await asyncio.to_thread(self.close)
                raise
            tools = choose_tools(client.tools, self.options.tools)
            bound = [BoundTool(tool.tool, partial(client.ask, tool)) for tool in tools]
            self._toolbox = Toolbox(bound, MAX_CALLS, together=True)
        return self._toolbox

    def _report(self, state: ToolState) -> dict[str, Any]:
        question, answers = state.question, state.question.answers
        exact = exact_match(state.answer, answers) if state.answer else 0.0
        learned = hashlib.sha256("\n\n".join(sorted(state.seen)).encode("utf-8", "replace")).hexdigest()
        return {
            "task_id": question.id,
            "success": exact == 1.0,
            "anchor": f"{question.id} {learned}" if state.seen else question.id,
            "references": list(answers),
            "metrics": {
                "calls": state.calls,
                "failed_calls": state.failed,
                "em": exact,
                "f1": f1(state.answer, answers) if state.answer else 0.0,
            },
        }


def choose_tools(tools: tuple[McpTool, ...], names: list[str]) -> tuple[McpTool, ...]:
    """Return the tools with these names, or all."""
    by_name = {tool.tool.name: tool for tool in tools}
    for name in names:
        if name not in by_name:
            raise unknown("tool in env.tools", str(name), by_name)
    return tuple(by_name[name] for name in names) if names else tools


make = McpEnv
