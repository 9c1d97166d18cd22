"""Multi-hop question answering with a search tool, as a `gymnasium.Env` over text (StepPO, appendix B).

An episode is at most 5 turns. A turn holds up to 4 parallel searches, or the answer, which ends the episode and alone
is rewarded: by normalized exact match (0 or 1), or by F1.

The ``paper`` prompt is a system message that says what StepPO's prompt says (appendix C), in words of our own, with the
tool as a definition of its own; each search is answered by a ``<tool_response>``. ``compact`` is the question and the
results alone, for small models. Responses are read alike in both, by `rl_agents.envs.tool_turns`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.multihop_qa import SPEC, MultihopQAOptions
from rl_agents.envs.multihop_qa.questions import exact_match, f1
from rl_agents.envs.multihop_qa.tasks import Task, find_source, task_ids
from rl_agents.envs.options import RetrieverKeys, part_of
from rl_agents.envs.stateful import StepResult, observations
from rl_agents.envs.tool_turns import ToolEnv, ToolResponse, text_tool
from rl_agents.retrieval.passages import Hit, Passage
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolResult, render_results

MAX_QUERY_CHARACTERS = 500
#: Searches of one turn that are run.
MAX_CALLS = 4
#: Length at which a passage's text is cut.
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
        feedback: the fault of the last response; empty if it had none.
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


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        queries: in the order made, repetitions included.
        seen: ids of the passages found, in that order, each once.
        feedback: the fault of the last response; empty if it had none.
        answer: empty until it is given.
    """

    task: Task
    queries: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    feedback: str = ""
    answer: str = ""
    turns: int = 0
    invalid: int = 0
    done: bool = False

    @property
    def exact(self) -> float:
        return exact_match(self.answer, self.task.question.answers) if self.answer else 0.0

    @property
    def f1(self) -> float:
        """F1 of the answer."""
        return f1(self.answer, self.task.question.answers) if self.answer else 0.0

    @property
    def missing(self) -> frozenset[str]:
        """Supporting passages that were not found yet."""
        return frozenset(self.task.question.supporting) - frozenset(self.seen)


class MultihopQAEnv(ToolEnv[EpisodeState, MultihopQAOptions]):
    """Answer a question whose facts lie in several passages that have to be searched for.

    ``info`` holds ``task_id``, ``success`` (exact match), ``valid`` (the response could be read and every call fits
    the tool), ``anchor`` (question and passages found), ``progress`` (a supporting passage was found for the first
    time; for the answer, that none was missing; None where supporting passages are not known or the response is
    malformed), ``query`` (the searches of the turn), ``references`` (accepted answers), and ``metrics``: ``turns``,
    ``em``, ``f1``, ``answered``, ``searches``, ``repeated_searches``, ``passages_seen``, ``invalid_actions``, and
    ``support_found`` (share of the supporting passages; only where they are known).
    """

    observation_space = observations(1 << 20)
    registered = SPEC
    task_ids = staticmethod(task_ids)

    def __init__(self, options: MultihopQAOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._source = find_source(self.options)
        self._retrieval = part_of(RetrieverKeys, self.options)

    def _begin(self, task_id: str) -> tuple[str, EpisodeState]:
        task = self._source.task(task_id)
        self._retrieval.over(task.store)  # a missing model is reported before the first turn
        return task.question.question, EpisodeState(task)

    def _opening(self, state: EpisodeState) -> dict[str, Any]:
        if self.options.prompt == "compact":
            return {}
        messages = opening_messages(state.task.question.question, self.max_turns, self.options.thoughts)
        return {"messages": messages, "tools": [SEARCH.to_openai()]}

    def _reject(self, state: EpisodeState, problem: str) -> StepResult:
        left = self.max_turns - state.turns - 1
        new = replace(state, feedback=problem, invalid=state.invalid + 1)
        return self._end_malformed(new, malformed_observation(problem, self.options.prompt, left, self.max_turns))

    @property
    def answer_instruction(self) -> str:
        """What the agent reads when its next turn must answer."""
        return COMPACT_ANSWER_NOW if self.options.prompt == "compact" else ANSWER_NOW

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return the prompt of a single step; the findings stay in it, regardless of the window's size."""
        state = self.last_state
        return window(
            task,
            state.queries,
            [state.task.store.get(name) for name in state.seen],
            state.feedback,
            style=self.options.prompt,
            left=self.max_turns - state.turns,
            turns=self.max_turns,
            tag=self.options.thoughts,
        )

    def _answer(self, state: EpisodeState, answer: str) -> StepResult:
        new = replace(state, answer=answer, feedback="")
        reward = new.exact if self.options.reward == "em" else new.f1
        progress = not state.missing if state.task.question.supporting else None
        observation = "correct" if new.exact == 1.0 else "wrong"
        return self._end_turn(new, observation, reward, valid=True, progress=progress, terminated=True)

    def _call(self, state: EpisodeState, turn: ToolResponse) -> StepResult:
        results, queries, found = self._run(state, turn)
        problems = [result.content for result in results if not result.ok]
        new = replace(
            state,
            queries=(*state.queries, *queries),
            seen=tuple(dict.fromkeys((*state.seen, *found))),
            feedback="; ".join(problems),
            invalid=state.invalid + bool(problems),
        )
        progress = len(new.missing) < len(state.missing) if queries and state.task.question.supporting else None
        left = self.max_turns - state.turns - 1
        observation = results_observation(results, self.options.prompt, left, self.max_turns)
        query = " ; ".join(queries) or None
        return self._end_turn(new, observation, valid=not problems, progress=progress, query=query)

    def _run(self, state: EpisodeState, turn: ToolResponse) -> tuple[list[ToolResult], list[str], list[str]]:
        """Run the calls of a turn; return their results, the queries that were made, and the ids that they found."""
        retriever = self._retrieval.over(state.task.store)
        queries: list[str] = []
        found: dict[str, Passage] = {}

        def search(arguments: Mapping[str, Any]) -> str:
            hits: Sequence[Hit] = retriever.search(arguments["query"], self.options.hits)
            queries.append(arguments["query"])
            shown = frozenset((*state.seen, *found))
            found.update((hit.passage.id, hit.passage) for hit in hits)
            return result_text([hit.passage for hit in hits], shown, self.options.prompt)

        toolbox = Toolbox([BoundTool(SEARCH, search)], MAX_CALLS)
        return toolbox.execute(turn.response), queries, list(found)

    def _info(self, state: EpisodeState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        question = state.task.question
        metrics = {
            "turns": float(state.turns),
            "em": state.exact,
            "f1": state.f1,
            "answered": float(bool(state.answer)),
            "searches": float(len(state.queries)),
            "repeated_searches": float(len(state.queries) - len(set(state.queries))),
            "passages_seen": float(len(state.seen)),
            "invalid_actions": float(state.invalid),
        }
        if question.supporting:
            metrics["support_found"] = 1.0 - len(state.missing) / len(set(question.supporting))
        return {
            "task_id": question.id,
            "success": state.exact == 1.0,
            "valid": valid,
            "progress": progress,
            "references": list(question.answers),
            "anchor": f"{question.question} | {' | '.join(sorted(state.seen))}",
            "metrics": metrics,
        }


make = MultihopQAEnv
