"""The tools of an environment: run the calls of a response, and return a result for each.

Every response leads to a text of bounded length: a call that does not fit its tool gets an error text and raises
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.background import at_once, together
from rl_agents.tools.calls import Response, Tool, ToolCall, check_call

MAX_CALLS = 4
MAX_FEEDBACK_CHARACTERS = 400

_OPENING, _CLOSING = "<tool_response>", "</tool_response>"


class ToolError(Exception):
    """A tool could not do its work; the message is for the agent. Other exceptions are failures of the environment."""


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A definition and its function: arguments that fit its schema -> text for the agent, or a coroutine.

    Attributes:
        run: raises `ToolError` for problems that the agent can correct.
    """

    tool: Tool
    run: Callable[[Mapping[str, Any]], str | Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        call: None if the response could not be read.
        content: the tool's text, or the problem.
        ok: the call fit its tool, and the tool succeeded.
        fits: the call could be read, fit its tool and was run, regardless of its result.
    """

    call: ToolCall | None
    content: str
    ok: bool
    fits: bool = True


class Toolbox:
    """Tools by name.

    Args:
        tools: each name once.
        max_calls: number of calls of one response that are run; the rest get a message.
        together: run the calls of one response concurrently if tools are coroutines, else one after the other. Results
            keep the order of the calls.

    Raises:
        ValueError: a name twice.
    """

    def __init__(self, tools: Sequence[BoundTool], max_calls: int = MAX_CALLS, together: bool = False) -> None:
        self._tools = {bound.tool.name: bound for bound in tools}
        if len(self._tools) < len(tools):
            raise ValueError("a tool's name occurs twice")
        self._max_calls, self._together = max_calls, together

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(bound.tool for bound in self._tools.values())

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The definitions in OpenAI's form, for ``info["tools"]`` of a reset."""
        return [tool.to_openai() for tool in self.tools]

    def execute(self, response: Response) -> list[ToolResult]:
        return at_once(self.run(response))

    async def run(self, response: Response) -> list[ToolResult]:
        """Run the calls of ``response`` and return one result per call, in their order.

        A response that could not be read gives one result without a call. Exceptions of a tool other than `ToolError`
        are raised: the environment has failed, not the agent.
        """
        if response.problem:
            return [ToolResult(None, feedback(response.problem), ok=False, fits=False)]
        calls = response.calls[: self._max_calls]
        if self._together and len(calls) > 1:
            results = await together(self._run(call) for call in calls)
        else:
            results = [await self._run(call) for call in calls]
        surplus = f"not run: only the first {self._max_calls} of {len(response.calls)} calls in one turn are"
        return results + [ToolResult(call, surplus, False, fits=False) for call in response.calls[self._max_calls :]]

    async def _run(self, call: ToolCall) -> ToolResult:
        if problem := check_call(call, self.tools):
            return ToolResult(call, feedback(problem), ok=False, fits=False)
        try:
            said, ok = self._tools[call.name].run(call.arguments), True
            content = said if isinstance(said, str) else await said
        except ToolError as error:
            content, ok = str(error), False
        return ToolResult(call, content, ok)


def feedback(problem: str) -> str:
    """Return a problem in one bounded line of ASCII, because it may quote a model's text."""
    text = problem[:MAX_FEEDBACK_CHARACTERS].encode("unicode_escape").decode()
    return text if len(text) <= MAX_FEEDBACK_CHARACTERS else f"{text[: MAX_FEEDBACK_CHARACTERS - 3]}..."


def render_results(results: Sequence[ToolResult]) -> str:
    """Write results for the agent: ``<tool_response>``, content, ``</tool_response>`` for each, in order.

    These tags inside a result get ``&lt;`` instead of ``<``. Failed results begin with ``error:``.
    """
    texts = (result.content if result.ok else f"error: {result.content}" for result in results)
    return "\n".join(f"{_OPENING}\n{_harmless(text)}\n{_CLOSING}" for text in texts)


def _harmless(text: str) -> str:
    return text.replace("<tool_response", "&lt;tool_response").replace("</tool_response", "&lt;/tool_response")
