"""Multi-hop question answering with a search tool, as a `gymnasium.Env` over text (StepPO, appendix B).

An episode is at most 5 turns. A turn holds up to 4 parallel searches, or the answer, which ends the episode and alone
is rewarded: by normalized exact match (0 or 1), or by F1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.multihop_qa import SPEC, MultihopQAOptions, prompts
from rl_agents.envs.multihop_qa.scores import exact_match, f1
from rl_agents.envs.multihop_qa.tasks import Task, find_source, task_ids
from rl_agents.envs.options import RetrieverKeys, part_of
from rl_agents.envs.retrievers import retriever_over
from rl_agents.envs.stateful import StepResult, observations
from rl_agents.envs.tool_turns import ToolEnv, ToolResponse
from rl_agents.retrieval.passages import Hit, Passage
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolResult


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        queries: in the order made, repetitions included.
        seen: ids of the passages found, in that order, each once.
        feedback: what was wrong with the last response; empty when nothing was.
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
        retriever_over(task.store, self._retrieval)  # a model that is missing should say so before the first turn
        return task.question.question, EpisodeState(task)

    def _opening(self, state: EpisodeState) -> dict[str, Any]:
        if self.options.prompt == "compact":
            return {}
        messages = prompts.opening_messages(state.task.question.question, self.max_turns, self.options.thoughts)
        return {"messages": messages, "tools": [prompts.SEARCH.to_openai()]}

    def _reject(self, state: EpisodeState, problem: str) -> StepResult:
        left = self.max_turns - state.turns - 1
        new = replace(state, feedback=problem, invalid=state.invalid + 1)
        return self._end_malformed(
            new, prompts.malformed_observation(problem, self.options.prompt, left, self.max_turns)
        )

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return prompts.COMPACT_ANSWER_NOW if self.options.prompt == "compact" else prompts.ANSWER_NOW

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return the prompt of a single step; what was found stays in it, whatever the window's size."""
        state = self._state
        if state is None:
            raise RuntimeError(f"{self.registered.name}: render_window() without an episode")
        return prompts.window(
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
        observation = prompts.results_observation(results, self.options.prompt, left, self.max_turns)
        query = " ; ".join(queries) or None
        return self._end_turn(new, observation, valid=not problems, progress=progress, query=query)

    def _run(self, state: EpisodeState, turn: ToolResponse) -> tuple[list[ToolResult], list[str], list[str]]:
        """Run the calls of a turn; return their results, the queries that were made, and the ids that they found."""
        retriever = retriever_over(state.task.store, self._retrieval)
        queries: list[str] = []
        found: dict[str, Passage] = {}

        def search(arguments: Mapping[str, Any]) -> str:
            hits: Sequence[Hit] = retriever.search(arguments["query"], self.options.hits)
            queries.append(arguments["query"])
            shown = frozenset((*state.seen, *found))
            found.update((hit.passage.id, hit.passage) for hit in hits)
            return prompts.result_text([hit.passage for hit in hits], shown, self.options.prompt)

        toolbox = Toolbox([BoundTool(prompts.SEARCH, search)], prompts.MAX_CALLS)
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
