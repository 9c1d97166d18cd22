"""Long-form question answering as a `gymnasium.Env` over text (PRS, long form).

An episode is at most six turns: searches in the documents, up to four in a turn, and an answer of several sentences.
A judge says whether the documents that the agent has read support every sentence, and whether the answer states all
points of the reference. Reward is given on the turn that answers; without an answer it is 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.long_form_qa import SPEC, LongFormQAOptions, prompts
from rl_agents.envs.long_form_qa.tasks import Task, find_task, open_store, own_questions, task_ids
from rl_agents.envs.options import RetrieverKeys, connect_judge, part_of
from rl_agents.envs.retrievers import retriever_over
from rl_agents.envs.stateful import StepResult, observations
from rl_agents.envs.tags import COMPACT_ANSWER_NOW
from rl_agents.envs.tool_turns import ToolEnv, ToolResponse
from rl_agents.errors import InputError
from rl_agents.rewards import judges
from rl_agents.rewards.grounding import conciseness, grounded_share, sentences, stated_share
from rl_agents.rewards.judge import Judge, OpenAIJudge
from rl_agents.rewards.reading import Reading
from rl_agents.tools.toolbox import BoundTool, Toolbox


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge, and the rule that reads words, say about an answer.

    Attributes:
        grounded, complete: the judge's verdicts, 0 or 1; both are 0 for an answer of too many sentences.
        grounded_share, stated_share: the rule's: of the answer's sentences and of the points.
        conciseness: the rule's; see `rl_agents.rewards.grounding.conciseness`.
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


NO_ANSWER = Verdict(0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class QAState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        read: the different passages that the agent has read, as it has, in their order.
        searches: calls that were run.
    """

    task: Task
    read: tuple[str, ...] = ()
    searches: int = 0
    verdict: Verdict = NO_ANSWER
    turns: int = 0
    done: bool = False


class LongFormQAEnv(ToolEnv[QAState, LongFormQAOptions]):
    """Search documents, then answer a question in several sentences that they support.

    ``info`` holds ``task_id``, ``success`` (grounded and complete), ``valid`` (every call fitted the tool, or the
    answer could be read), ``anchor`` (the task and the set of passages read), ``progress`` (a passage was found that
    had not been read; None before the first turn, for malformed responses and for answers), ``query``,
    ``references``, ``points``, ``evidence`` (the passages read) and ``metrics``: ``turns``, ``searches``,
    ``passages``, ``sentences``, ``grounded``, ``complete``, ``grounded_share``, ``stated_share``, ``conciseness``. In
    the ``paper`` style that of `reset` holds ``messages`` and ``tools`` too.

    Raises:
        InputError: a bad option or file.
    """

    observation_space = observations(1 << 18)
    registered = SPEC
    task_ids = staticmethod(task_ids)

    def __init__(self, options: LongFormQAOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._own = own_questions(self.options)
        self._rules = prompts.system_text(self.max_turns, self.options.max_sentences, self.options.thoughts)
        store = open_store(self.options.documents, self.options.prompt)
        self._retriever = retriever_over(store, part_of(RetrieverKeys, self.options))
        self._judge = make_judge(self.options)
        self.awaited = self._judge.remote

    def _begin(self, task_id: str) -> tuple[str, QAState]:
        task = find_task(task_id, self._own, self.options.prompt)
        return prompts.first_observation(task, self.options.prompt, self._rules), QAState(task)

    def _opening(self, state: QAState) -> dict[str, Any]:
        if self.options.prompt == "compact":
            return {}
        messages = [{"role": "system", "content": self._rules}, {"role": "user", "content": state.task.question}]
        return {"messages": messages, "tools": [prompts.SEARCH.to_openai()]}

    def _reject(self, state: QAState, problem: str) -> StepResult:
        return self._end_malformed(state, prompts.malformed_observation(problem, self.options.prompt), query="")

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return COMPACT_ANSWER_NOW if self.options.prompt == "compact" else prompts.ANSWER_NOW

    def _call(self, state: QAState, turn: ToolResponse) -> StepResult:
        read = list(state.read)

        def search(arguments: Mapping[str, Any]) -> str:
            hits = self._retriever.search(arguments["query"], self.options.results)
            texts = [prompts.passage_text(hit.passage) for hit in hits]
            read.extend(text for text in dict.fromkeys(texts) if text not in read)
            return prompts.found_text(texts, self.options.prompt)

        results = Toolbox([BoundTool(prompts.SEARCH, search)], prompts.MAX_CALLS).execute(turn.response)
        new = replace(state, read=tuple(read), searches=state.searches + sum(result.ok for result in results))
        queries = [str(result.call.arguments["query"]) for result in results if result.ok and result.call]
        return self._end_turn(
            new,
            prompts.results_observation(results, self.options.prompt),
            valid=all(result.fits for result in results),
            progress=len(read) > len(state.read),
            query=" ; ".join(queries),
        )

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

    async def _judged(self, state: QAState, answer: str) -> Verdict:
        task, count = state.task, len(sentences(answer))
        if count > self.options.max_sentences:
            return replace(NO_ANSWER, sentences=count)
        reading = Reading((), answer, True, task.references, task.question, state.read, task.points)
        asked = self._judge.verdict(reading), self._judge.complete(reading)
        grounded, complete = await asyncio.gather(*asked) if self._judge.remote else [await one for one in asked]
        return Verdict(
            count,
            grounded,
            complete,
            grounded_share(answer, state.read),
            stated_share(answer, task.points),
            conciseness(answer, task.points),
        )

    def _info(self, state: QAState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        task, verdict = state.task, state.verdict
        return {
            "task_id": task.task_id,
            "success": verdict.passed,
            "valid": valid,
            "progress": progress,
            "anchor": "\n\n".join([task.question, *sorted(state.read)]),
            "references": list(task.references),
            "points": list(task.points),
            "evidence": list(state.read),
            "metrics": {
                "turns": float(state.turns),
                "searches": float(state.searches),
                "passages": float(len(state.read)),
                "sentences": float(verdict.sentences),
                "grounded": verdict.grounded,
                "complete": verdict.complete,
                "grounded_share": verdict.grounded_share,
                "stated_share": verdict.stated_share,
                "conciseness": verdict.conciseness,
            },
        }


def make_judge(options: LongFormQAOptions) -> Judge:
    """Build the judge that the environment's options describe.

    Raises:
        InputError: a server without URL or model, or a reward that the judge cannot give.
    """
    if options.reward == "points" and options.judge != "rule":
        raise InputError("env.reward=points counts by the rule judge; any other gives env.reward=pass or match")
    return connect_judge(OpenAIJudge, options) if options.judge == "openai" else judges.make_judge(options)


make = LongFormQAEnv
