"""Long-form question answering (PRS, long form).

The ``paper`` prompt has the content of the PRS paper's prompt (appendix A), but asks for a long answer. In ``compact``,
questions are town and aspect, a fact in a document is three words, and a problem is one word.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rl_agents.envs.long_form_qa import SPEC, LongFormQAOptions
from rl_agents.envs.long_form_qa.tasks import Task, almanac_store, find_task, own_questions
from rl_agents.envs.stateful import COMPACT_ANSWER_NOW, EpisodeState, StepResult
from rl_agents.envs.tool_turns import ToolEnv, chat, text_tool
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore
from rl_agents.rewards.grounding import conciseness, grounded_share, sentences, stated_share
from rl_agents.rewards.judges import make_judge
from rl_agents.rewards.reading import Reading
from rl_agents.tools.calls import Response
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolResult, render_results

MAX_TITLE, MAX_TEXT = 300, 2000
CUT = " ..."
NOTHING_FOUND = "nothing found"
#: Searches in one turn. More are not run.
MAX_CALLS = 4
#: An answer with more sentences fails.
MAX_SENTENCES = 12
#: Feedback of the compact style.
INVALID, NOTHING = "invalid", "nothing"

SEARCH = text_tool(
    "search", "Search the documents; returns the passages that fit the query best.", "query", "Words to look for.", 1000
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


def passage_text(passage: Passage) -> str:
    """Return a passage as the judge reads it: title (may be empty), line break, text. Long ones are cut."""
    title, text = _cut(" ".join(passage.title.split()), MAX_TITLE), _cut(passage.text.strip(), MAX_TEXT)
    return f"{title}\n{text}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """The results of the judge, and of the rule that compares words (`rl_agents.rewards.grounding`).

    Attributes:
        grounded, complete: the judge's verdicts, 0 or 1; both are 0 for an answer with too many sentences.
        grounded_share, stated_share: the rule's shares of the answer's sentences and of the points.
    """

    sentences: int
    grounded: float
    complete: float
    grounded_share: float
    stated_share: float
    conciseness: float

    @property
    def passed(self) -> bool:
        return self.grounded == self.complete == 1.0


NO_ANSWER = AnswerScores(0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class QAState(EpisodeState):
    """The state of an episode: the different passages that the agent has read, in order, and the number of searches."""

    task: Task
    read: tuple[str, ...] = ()
    searches: int = 0
    verdict: AnswerScores = NO_ANSWER


class LongFormQAEnv(ToolEnv[QAState, LongFormQAOptions]):
    """Search documents, then answer a question in several sentences that they support."""

    registered = SPEC

    def __init__(self, options: LongFormQAOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        if self.options.reward == "points" and self.options.judge != "rule":
            raise InputError("env.reward=points counts by the rule judge; any other gives env.reward=pass or match")
        self._own = own_questions(self.options)
        self.answer_instruction = COMPACT_ANSWER_NOW if self._compact else ANSWER_NOW
        self._rules = _SYSTEM.format(
            max_calls=MAX_CALLS, max_turns=self.max_turns, max_sentences=MAX_SENTENCES, tag=self.options.thoughts
        )
        documents = self.options.documents
        self._store = PassageStore.open(documents) if documents else almanac_store(self.options.prompt)
        self._judge = make_judge(self.options)
        self.awaited = self._judge.remote

    def _begin(self, task_id: str) -> tuple[str, QAState]:
        task = find_task(task_id, self._own, self.options.prompt)
        if self._compact:
            return task.question, QAState(task)
        form = _FORM.format(tool=json.dumps(SEARCH.to_openai()["function"]), question=task.question)
        return f"{self._rules}\n{form}", QAState(task)

    def _opening(self, state: QAState) -> dict[str, Any]:
        return {} if self._compact else chat(self._rules, state.task.question, SEARCH)

    def _reject(self, state: QAState, problem: str) -> StepResult:
        text = INVALID if self._compact else _MALFORMED.format(problem=problem)
        return self._end_malformed(state, text, query="")

    def _call(self, state: QAState, response: Response) -> StepResult:
        read = list(state.read)

        def search(arguments: Mapping[str, Any]) -> str:
            hits = self._store.search(arguments["query"], self.options.results)
            texts = [passage_text(hit.passage) for hit in hits]
            read.extend(text for text in dict.fromkeys(texts) if text not in read)
            shown = [text.lstrip("\n") for text in texts]  # without an empty title
            if self._compact:
                return " ".join(shown) or NOTHING
            return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(shown, start=1)) or NOTHING_FOUND

        results = Toolbox([BoundTool(SEARCH, search)], MAX_CALLS).execute(response)
        new = replace(state, read=tuple(read), searches=state.searches + sum(result.ok for result in results))
        queries = [str(result.call.arguments["query"]) for result in results if result.ok and result.call]
        valid = all(result.fits for result in results)
        progress = len(read) > len(state.read) if queries else None
        if self._compact:
            results = [result if result.ok else ToolResult(result.call, INVALID, ok=True) for result in results]
        query = " ; ".join(queries)
        return self._end_turn(new, render_results(results), valid=valid, progress=progress, query=query)

    async def _answer(self, state: QAState, answer: str) -> StepResult:
        verdict = await self._judged(state, answer)
        earned = {
            "pass": float(verdict.passed),
            "match": verdict.complete,
            "points": verdict.stated_share * verdict.grounded_share * verdict.conciseness,
        }[self.options.reward]
        new = replace(state, verdict=verdict)
        observation = f"grounded {verdict.grounded:g}, complete {verdict.complete:g}"
        return self._end_turn(new, observation, earned, valid=True, progress=None, terminated=True, query="")

    async def _judged(self, state: QAState, answer: str) -> AnswerScores:
        task, count = state.task, len(sentences(answer))
        if count > MAX_SENTENCES:
            return replace(NO_ANSWER, sentences=count)
        reading = Reading((), answer, True, task.references, task.question, state.read, task.points)
        asked = self._judge.verdict(reading), self._judge.complete(reading)
        grounded, complete = await asyncio.gather(*asked) if self._judge.remote else [await one for one in asked]
        return AnswerScores(
            count,
            grounded,
            complete,
            grounded_share(answer, state.read),
            stated_share(answer, task.points),
            conciseness(answer, task.points),
        )

    def _report(self, state: QAState) -> dict[str, Any]:
        task, verdict = state.task, state.verdict
        return {
            "task_id": task.task_id,
            "success": verdict.passed,
            "anchor": "\n\n".join([task.question, *sorted(state.read)]),
            "references": list(task.references),
            "points": list(task.points),
            "evidence": list(state.read),
            "metrics": {
                "searches": state.searches,
                "passages": len(state.read),
                **asdict(verdict),
            },
        }


make = LongFormQAEnv
