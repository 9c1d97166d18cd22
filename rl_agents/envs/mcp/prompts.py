"""What the agent reads: how to call tools and to answer, then the question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rl_agents.tools.toolbox import feedback

_SYSTEM = """\
You answer questions with the help of tools.

Whenever you have learned something new, first reason about it inside <think> and </think>. Then either call tools, up \
to {max_calls} calls in one turn, and read in the next turn what they return; or, once you know the answer, write it \
inside <answer> and </answer>, as short as possible. You have {max_turns} turns, the answer included."""
_FORM = """
The tools, in JSON, one a line:
{tools}
Call a tool as <tool_call>{{"name": "NAME", "arguments": {{...}}}}</tool_call>.

Question: {question}"""
_MALFORMED = "Your last response was not valid: {problem}. Call tools, or answer inside <answer> and </answer>."
ANSWER_NOW = "No further tool call is possible. Write your answer now, inside <answer> and </answer>."


def system_text(max_calls: int, max_turns: int) -> str:
    """Return the rules as the system message says them."""
    return _SYSTEM.format(max_calls=max_calls, max_turns=max_turns)


def first_observation(system: str, tools: Sequence[dict[str, Any]], question: str) -> str:
    """Return rules, tools and question in one text, for agents that are not given them as a chat."""
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return f"{system}\n{_FORM.format(tools=lines, question=question)}"


def malformed_observation(problem: str) -> str:
    """Tell the agent that, and why, its response could not be read."""
    return _MALFORMED.format(problem=feedback(problem))
