"""The responses of an agent with tools: one or more ``<tool_call>``, or one ``<answer>``, never both."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from rl_agents.envs.coroutines import finished
from rl_agents.envs.stateful import SEVERAL_ACTIONS, Options, State, StatefulEnv, StepResult, read_tags
from rl_agents.tools.calls import Response, Tool, read_response
from rl_agents.tools.toolbox import feedback

CALLS, ANSWER, MALFORMED = "calls", "answer", "malformed"

NEITHER = "found neither a tool call nor <answer>...</answer> after your reasoning"
BOTH = "found tool calls and an answer in one turn: either call tools and wait for what they return, or answer"
SEVERAL = "found more than one <answer>; give exactly one"
EMPTY = "the answer is empty"


def text_tool(name: str, description: str, argument: str, meaning: str, longest: int = 0) -> Tool:
    """Return a tool with one text argument; with ``longest``, of 1 to ``longest`` characters, and no other argument."""
    limits = {"minLength": 1, "maxLength": longest} if longest else {}
    text = {"type": "string", **limits, "description": meaning}
    schema = {"type": "object", "properties": {argument: text}, "required": [argument]}
    return Tool(name, description, {**schema, "additionalProperties": False} if longest else schema)


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """The action of a response.

    Attributes:
        kind: ``calls``, ``answer`` or ``malformed``.
        response: the calls, for `rl_agents.tools.toolbox.Toolbox.execute`; they parse, but may not fit their tools.
        answer: the text inside the tag, without white space around it; never empty if ``kind`` is ``answer``.
        problem: of a malformed response, for the agent; bounded (`feedback`).
    """

    kind: str
    response: Response
    answer: str = ""
    problem: str = ""


def read_turn(text: str) -> ToolResponse:
    """Read a response; thoughts are ignored."""
    response = read_response(text)
    if response.problem:
        return ToolResponse(MALFORMED, response, problem=feedback(response.problem))
    said = read_tags(response.content)
    if response.calls:
        answered = said.kind == "answer" or said.problem == SEVERAL_ACTIONS
        return ToolResponse(MALFORMED, response, problem=BOTH) if answered else ToolResponse(CALLS, response)
    if said.kind != "answer":
        problem = SEVERAL if said.problem == SEVERAL_ACTIONS else NEITHER
        return ToolResponse(MALFORMED, response, problem=problem)
    if not said.content:
        return ToolResponse(MALFORMED, response, problem=EMPTY)
    return ToolResponse(ANSWER, response, answer=said.content)


class ToolEnv(StatefulEnv[State, Options]):
    """An environment whose agent calls tools, or answers, in every turn."""

    async def _turn(self, action: str) -> StepResult:
        state, turn = self.state, read_turn(action)
        if turn.kind == CALLS:
            played = self._call(state, turn)
        elif turn.kind == ANSWER:
            played = self._answer(state, turn.answer)
        else:
            played = self._reject(state, turn.problem)
        result: StepResult = await finished(played)
        return result

    @abstractmethod
    def _call(self, state: State, turn: ToolResponse) -> Any:
        """Run the calls of a turn."""

    @abstractmethod
    def _answer(self, state: State, answer: str) -> Any:
        """End the episode with an answer."""

    @abstractmethod
    def _reject(self, state: State, problem: str) -> StepResult:
        """End a turn with a malformed response."""
