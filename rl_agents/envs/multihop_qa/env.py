"""Multi-hop question answering with a search tool (StepPO, appendix B).

The ``paper`` prompt is a system message with the content of StepPO's prompt (appendix C) in our words, and a tool
definition. ``compact`` has only the question and the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.multihop_qa import SPEC, MultihopQAOptions
from rl_agents.envs.multihop_qa.tasks import Task, find_source
from rl_agents.envs.questions import exact_match, f1
from rl_agents.envs.stateful import EpisodeState, StepResult
from rl_agents.envs.tool_turns import ToolEnv, chat, text_tool
from rl_agents.retrieval.passages import Passage
from rl_agents.tools.calls import Response
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolResult, render_results

MAX_QUERY_CHARACTERS = 500
#: Searches in one turn. More are not run.
MAX_CALLS = 4
#: Longest text of a passage.
MAX_PASSAGE = 1500
CUT = " [...]"

SEARCH = text_tool(
    "search",
    "Find passages in the collection. The query may be a question or a few keywords; a query that was already made "
    "brings nothing new.",
    "query",
    "What to look for: one fact per query works best.",
    MAX_QUERY_CHARACTERS,
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


def result_text(found: Sequence[Passage], shown: frozenset[str], style: str) -> str:
    """Return the answer to a search, best first; the paper style does not repeat the passages in ``shown``."""
    if style == "compact":
        return " ; ".join(passage_text(passage, " ") for passage in found) or "nothing"
    if not found:
        return "Nothing was found: no passage has any of these words."
    lines = []
    for place, passage in enumerate(found, start=1):
        text = "(shown before)" if passage.id in shown else _cut(passage.text)
        lines.append(f"[{place}] {passage.title or '(no title)'}\n{text}")
    return "\n\n".join(lines)


def passage_text(passage: Passage, between: str = "\n") -> str:
    text = _cut(passage.text)
    return f"{passage.title}{between}{text}" if passage.title else text


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PASSAGE else text[: MAX_PASSAGE - len(CUT)] + CUT


@dataclass(frozen=True, slots=True)
class AnswerState(EpisodeState):
    """The state of an episode.

    Attributes:
        queries: in order, with repetitions.
        seen: ids of the found passages in order, each once.
        feedback: problems of the last response; empty if it had none.
        answer: empty before it is given.
        invalid: number of responses with problems.
    """

    task: Task
    queries: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    feedback: str = ""
    answer: str = ""
    invalid: int = 0

    @property
    def exact(self) -> float:
        return exact_match(self.answer, self.task.question.answers) if self.answer else 0.0

    @property
    def f1(self) -> float:
        return f1(self.answer, self.task.question.answers) if self.answer else 0.0

    @property
    def missing(self) -> frozenset[str]:
        return frozenset(self.task.question.supporting) - frozenset(self.seen)


class MultihopQAEnv(ToolEnv[AnswerState, MultihopQAOptions]):
    """Answer a question whose facts are in several passages, which must be searched for."""

    registered = SPEC

    def __init__(self, options: MultihopQAOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._source = find_source(self.options)
        self.answer_instruction = COMPACT_ANSWER_NOW if self._compact else ANSWER_NOW
        self._rules = _SYSTEM.format(turns=self.max_turns, calls=MAX_CALLS, tag=self.options.thoughts)

    def _begin(self, task_id: str) -> tuple[str, AnswerState]:
        task = self._source.task(task_id)
        return task.question.question, AnswerState(task)

    def _opening(self, state: AnswerState) -> dict[str, Any]:
        return {} if self._compact else chat(self._rules, state.task.question.question, SEARCH)

    def _turns_left(self, state: AnswerState) -> str:
        left = self.max_turns - state.turns
        return _LAST if left == 1 else _LEFT.format(left=left, turns=self.max_turns)

    def _next_turn(self, text: str, state: AnswerState) -> str:
        """Append the number of turns left after the turn that ``state`` has not counted yet."""
        return f"{text}\n\n{self._turns_left(replace(state, turns=state.turns + 1))}"

    def _reject(self, state: AnswerState, problem: str) -> StepResult:
        new = replace(state, feedback=problem, invalid=state.invalid + 1)
        text = "invalid" if self._compact else self._next_turn(f"Your response was not valid: {problem}.", state)
        return self._end_malformed(new, text)

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return the prompt of a single step, as StepPO rebuilds it: question, queries, passages, problems."""
        state = self.last_state
        passages = [state.task.store.get(name) for name in state.seen]
        if self._compact:
            found = " ; ".join(passage_text(passage, " ") for passage in passages)
            return " ".join(part for part in (task, found, "invalid" if state.feedback else "") if part)
        return _WINDOW.format(
            system=self._rules,
            tool=json.dumps(SEARCH.to_openai()),
            question=task,
            queries="\n".join(f"- {query}" for query in state.queries) or "none",
            passages="\n\n".join(passage_text(passage) for passage in passages) or "none",
            feedback=f"\nYour last response was not valid: {state.feedback}.\n" if state.feedback else "",
            left=self._turns_left(state),
        )

    def _answer(self, state: AnswerState, answer: str) -> StepResult:
        new = replace(state, answer=answer, feedback="")
        reward = new.exact if self.options.reward == "em" else new.f1
        progress = not state.missing if state.task.question.supporting else None
        observation = "correct" if new.exact == 1.0 else "wrong"
        return self._end_turn(new, observation, reward, valid=True, progress=progress, terminated=True)

    def _call(self, state: AnswerState, response: Response) -> StepResult:
        results, queries, found = self._run(state, response)
        problems = [result.content for result in results if not result.ok]
        new = replace(
            state,
            queries=(*state.queries, *queries),
            seen=tuple(dict.fromkeys((*state.seen, *found))),
            feedback="; ".join(problems),
            invalid=state.invalid + bool(problems),
        )
        progress = len(new.missing) < len(state.missing) if queries and state.task.question.supporting else None
        if self._compact:
            results = [result if result.ok else replace(result, content="invalid") for result in results]
        text = render_results(results) if self._compact else self._next_turn(render_results(results), state)
        return self._end_turn(new, text, valid=not problems, progress=progress, query=" ; ".join(queries) or None)

    def _run(self, state: AnswerState, response: Response) -> tuple[list[ToolResult], list[str], list[str]]:
        """Run the calls of a turn; return their results, the queries, and the ids of the found passages."""
        queries: list[str] = []
        found: dict[str, Passage] = {}

        def search(arguments: Mapping[str, Any]) -> str:
            hits = state.task.store.search(arguments["query"], self.options.hits)
            queries.append(arguments["query"])
            shown = frozenset((*state.seen, *found))
            found.update((hit.passage.id, hit.passage) for hit in hits)
            return result_text([hit.passage for hit in hits], shown, self.options.prompt)

        toolbox = Toolbox([BoundTool(SEARCH, search)], MAX_CALLS)
        return toolbox.execute(response), queries, list(found)

    def _report(self, state: AnswerState) -> dict[str, Any]:
        question = state.task.question
        metrics = {
            "em": state.exact,
            "f1": state.f1,
            "answered": bool(state.answer),
            "searches": len(state.queries),
            "repeated_searches": len(state.queries) - len(set(state.queries)),
            "passages_seen": len(state.seen),
            "invalid_actions": state.invalid,
        }
        if question.supporting:
            metrics["support_found"] = 1.0 - len(state.missing) / len(set(question.supporting))
        return {
            "task_id": question.id,
            "success": state.exact == 1.0,
            "references": list(question.answers),
            "anchor": f"{question.id} | {' | '.join(sorted(state.seen))}",
            "metrics": metrics,
        }


make = MultihopQAEnv
