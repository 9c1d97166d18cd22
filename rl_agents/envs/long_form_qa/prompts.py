"""What the agent reads, in two styles.

``paper`` is for real models: the system text says what the PRS paper's prompt says (appendix A), in words of our own
that ask for a long answer; the tool is given in OpenAI's form. ``compact`` is for small starter models: questions are
town and aspect, documents three words a fact, and what went wrong is one word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rl_agents.envs.long_form_qa.tasks import Task
from rl_agents.retrieval.passages import Passage
from rl_agents.tools.calls import Tool
from rl_agents.tools.toolbox import ToolResult, feedback, render_results

MAX_TITLE, MAX_TEXT = 300, 2000
CUT = " ..."
NOTHING_FOUND = "nothing found"
#: Searches in one turn; further ones are not run.
MAX_CALLS = 4
#: What the compact style says instead of a sentence of feedback.
INVALID, NOTHING = "invalid", "nothing"

SEARCH = Tool(
    "search",
    "Search the documents; returns the passages that fit the query best.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for."}
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)

_SYSTEM = """\
You answer questions from a collection of documents that you can search.

Whenever you have read something new, first reason about it inside <{tag}> and </{tag}>. Then either call the search \
tool, with up to {max_calls} calls in one turn, as often as you lack knowledge; or, when nothing is missing any more, \
write the final answer inside <answer> and </answer>. You have {max_turns} turns in all.

The answer consists of full sentences, {max_sentences} at most. Answer every part of the question. State one fact per \
sentence, so that each sentence can be understood alone: name what it is about instead of writing "it". State nothing \
that the documents you have read do not say."""
_FORM = """
The tool, in JSON:
{tool}
Call it as <tool_call>{{"name": "search", "arguments": {{"query": "..."}}}}</tool_call>, once or more in a turn.

Question: {question}"""
ANSWER_NOW = "No further search is possible. Write your final answer now, inside <answer> and </answer>."
_MALFORMED = "Your last response was not valid: {problem}. Search, or answer inside <answer> and </answer>."


def system_text(max_turns: int, max_sentences: int, tag: str) -> str:
    return _SYSTEM.format(max_calls=MAX_CALLS, max_turns=max_turns, max_sentences=max_sentences, tag=tag)


def first_observation(task: Task, style: str, rules: str) -> str:
    """Return rules, tool and question in one text; in the compact style the question alone."""
    if style == "compact":
        return task.question
    return f"{rules}\n{_FORM.format(tool=json.dumps(SEARCH.to_openai()['function']), question=task.question)}"


def passage_text(passage: Passage) -> str:
    """Return a passage as the agent reads it: title, line break, text, both cut where they are long."""
    title, text = _cut(" ".join(passage.title.split()), MAX_TITLE), _cut(passage.text.strip(), MAX_TEXT)
    return f"{title}\n{text}" if title else text


def found_text(texts: Sequence[str], style: str) -> str:
    """Return what a search found; ``texts`` are those of `passage_text`."""
    if style == "compact":
        return " ".join(texts) or NOTHING
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, start=1)) or NOTHING_FOUND


def results_observation(results: Sequence[ToolResult], style: str) -> str:
    """Return what the agent reads after its calls; in the compact style errors are one word."""
    if style == "compact":
        results = [result if result.ok else ToolResult(result.call, INVALID, ok=True) for result in results]
    return render_results(results)


def malformed_observation(problem: str, style: str) -> str:
    """Tell the agent that, and why, its response could not be read."""
    return INVALID if style == "compact" else _MALFORMED.format(problem=feedback(problem))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT
