"""The responses of an agent with tools: one or more ``<tool_call>``, or one ``<answer>``, never both."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.envs.coroutines import finished
from rl_agents.envs.stateful import SEVERAL_ACTIONS, Options, State, StatefulEnv, StepResult, read_tags
from rl_agents.tools.calls import Response, Tool, read_response
from rl_agents.tools.toolbox import feedback

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


def tool_help(definitions: Sequence[Mapping[str, Any]]) -> str:
    """Return tools and the form of a call as text, for prompts that are no chat."""
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in definitions)
    return (
        f"The tools, in JSON, one a line:\n{lines}\n"
        'Call a tool as <tool_call>{"name": "NAME", "arguments": {...}}</tool_call>.'
    )


def opening(messages: list[dict[str, Any]], definitions: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the first observation, for agents that receive no chat, and the chat for ``info``."""
    text = "\n\n".join(message["content"] for message in messages)
    return f"{tool_help(definitions)}\n\n{text}", {"messages": messages, "tools": definitions}


def chat(rules: str, question: str, *tools: Tool) -> dict[str, Any]:
    """Return the beginning of a dialogue as a system message, a user message and tool definitions."""
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": question}]
    return {"messages": messages, "tools": [tool.to_openai() for tool in tools]}


def read_answer(response: Response) -> tuple[str, str]:
    """Return the answer of a response and its problem for the agent, which is bounded (`feedback`).

    Both are empty if it calls tools; the calls parse, but may not fit their tools.
    """
    if response.problem:
        return "", feedback(response.problem)
    said = read_tags(response.content)
    if response.calls:
        return "", BOTH if said.kind == "answer" or said.problem == SEVERAL_ACTIONS else ""
    if said.kind != "answer":
        return "", SEVERAL if said.problem == SEVERAL_ACTIONS else NEITHER
    return said.content, "" if said.content else EMPTY


class ToolEnv(StatefulEnv[State, Options]):
    """An environment whose agent calls tools, or answers, in every turn."""

    async def _turn(self, action: str) -> StepResult:
        state, response = self.state, read_response(action)  # thoughts are ignored
        answer, problem = read_answer(response)
        if problem:
            played = self._reject(state, problem)
        elif answer:
            played = self._answer(state, answer)
        else:
            played = self._call(state, response)
        result: StepResult = await finished(played)
        return result

    @abstractmethod
    def _call(self, state: State, response: Response) -> Any:
        """Run the calls of a turn."""

    @abstractmethod
    def _answer(self, state: State, answer: str) -> Any:
        """End the episode with an answer."""

    @abstractmethod
    def _reject(self, state: State, problem: str) -> StepResult:
        """End a turn with a malformed response."""
