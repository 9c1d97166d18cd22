"""What the agent reads, in two styles.

``paper``: a system message that says what StepPO's prompt says (appendix C), in words of our own, with the tool as a
definition of its own; each search is answered by a ``<tool_response>``. ``compact``: the question and the results
alone, for small models. Responses are read alike in both, by `rl_agents.envs.tool_turns`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rl_agents.retrieval.passages import Passage
from rl_agents.tools.calls import Tool
from rl_agents.tools.toolbox import ToolResult, render_results

MAX_QUERY_CHARACTERS = 500
#: Searches of one turn that are run.
MAX_CALLS = 4
#: Length at which a passage's text is cut.
MAX_PASSAGE = 1500
CUT = " [...]"

SEARCH = Tool(
    "search",
    "Find passages in the collection. The query may be a question or a few keywords; a query that was already made "
    "brings nothing new.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARACTERS,
                "description": "What to look for: one fact per query works best.",
            }
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)

_SYSTEM = """\
You answer questions with the help of a collection of passages, which you can only see by searching it.

In each turn, think inside <{tag}> and </{tag}> about what is known and what is still missing. Then do one of two \
things:
- search: call the tool `search`, up to {calls} times in one turn when several facts can be looked up independently;
- answer: once the passages hold the answer, write it inside <answer> and </answer>, as short as possible: a name, a \
number, a phrase, yes or no.

You have {turns} turns, the answer included. Do not repeat a query."""

_LEFT = "{left} of {turns} turns left."
_LAST = "This is your last turn: give the answer inside <answer> and </answer>."
ANSWER_NOW = "No further search is possible. Give the answer now, inside <answer> and </answer>."
COMPACT_ANSWER_NOW = "answer"

_WINDOW = """\
{system}

The tool:
{tool}
Call it as <tool_call>{{"name": "search", "arguments": {{"query": "..."}}}}</tool_call>.

Question: {question}

Queries so far:
{queries}

Passages found so far:
{passages}
{feedback}
{left}"""


def opening_messages(question: str, turns: int, tag: str) -> list[dict[str, Any]]:
    """Return the chat that an episode of the paper style begins with."""
    return [
        {"role": "system", "content": _SYSTEM.format(turns=turns, calls=MAX_CALLS, tag=tag)},
        {"role": "user", "content": question},
    ]


def result_text(found: Sequence[Passage], shown: frozenset[str], style: str) -> str:
    """Return what a search answers.

    Args:
        found: best first.
        shown: ids of passages that the agent has read; the paper style names these without repeating their text.
    """
    if style == "compact":
        return " ; ".join(passage_text(passage, " ") for passage in found) or "nothing"
    if not found:
        return "Nothing was found: no passage has any of these words."
    lines = []
    for place, passage in enumerate(found, start=1):
        title = passage.title or "(no title)"
        text = "(shown before)" if passage.id in shown else _cut(passage.text)
        lines.append(f"[{place}] {title}\n{text}")
    return "\n\n".join(lines)


def passage_text(passage: Passage, between: str = "\n") -> str:
    text = _cut(passage.text)
    return f"{passage.title}{between}{text}" if passage.title else text


def results_observation(results: Sequence[ToolResult], style: str, left: int, turns: int) -> str:
    if style == "compact":
        return render_results([result if result.ok else replace(result, content="invalid") for result in results])
    return f"{render_results(results)}\n\n{turns_left(left, turns)}"


def malformed_observation(problem: str, style: str, left: int, turns: int) -> str:
    """Tell the agent why its response could not be read; nothing of the response is repeated."""
    if style == "compact":
        return "invalid"
    return f"Your response was not valid: {problem}.\n\n{turns_left(left, turns)}"


def turns_left(left: int, turns: int) -> str:
    """Return how many turns are left, this one included."""
    return _LAST if left == 1 else _LEFT.format(left=left, turns=turns)


def window(
    question: str,
    queries: Sequence[str],
    passages: Sequence[Passage],
    feedback: str,
    *,
    style: str,
    left: int,
    turns: int,
    tag: str,
) -> str:
    """Return a prompt of its own for one step, as StepPO rebuilds it: question, queries, passages, what went wrong.

    Args:
        queries: in the order made.
        passages: all that were found, each once.
        feedback: what was wrong with the last response; empty when nothing was.
        left: turns left, this one included.
        tag: that thoughts stand in.
    """
    if style == "compact":
        found = " ; ".join(passage_text(passage, " ") for passage in passages)
        return " ".join(part for part in (question, found, "invalid" if feedback else "") if part)
    return _WINDOW.format(
        system=_SYSTEM.format(turns=turns, calls=MAX_CALLS, tag=tag),
        tool=json.dumps(SEARCH.to_openai()),
        question=question,
        queries="\n".join(f"- {query}" for query in queries) or "none",
        passages="\n\n".join(passage_text(passage) for passage in passages) or "none",
        feedback=f"\nYour last response was not valid: {feedback}.\n" if feedback else "",
        left=turns_left(left, turns),
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PASSAGE else text[: MAX_PASSAGE - len(CUT)] + CUT
