"""Paper search as a `gymnasium.Env` over text (StepPO, appendices B and C).

An episode is at most five turns of up to five calls each, of ``search(query)`` and ``expand(paper_id)``. Every call
earns its reward at once, see `rules`; an answer, whatever it says, ends the search.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_agents.envs.options import RetrieverKeys, part_of
from rl_agents.envs.paper_search import SPEC, PaperSearchOptions, prompts
from rl_agents.envs.paper_search.selectors import make_selector
from rl_agents.envs.paper_search.state import (
    EXPAND,
    SEARCH,
    SUCCESS_F1,
    CallRunner,
    Found,
    Refused,
    SearchState,
    measures,
)  # fmt: skip
from rl_agents.envs.paper_search.tasks import find_papers, task_ids
from rl_agents.envs.stateful import StepResult, observations
from rl_agents.envs.tool_turns import ToolEnv, ToolResponse
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError


class PaperSearchEnv(ToolEnv[SearchState, PaperSearchOptions]):
    """Collect the papers that meet a request.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the task, what was searched for and expanded, in
    any order: what the pool follows from), ``query`` (the calls of the turn) and ``metrics``: ``turns``, ``searches``,
    ``expansions``, ``refused_calls``, ``malformed``, ``pool``, ``f1``, ``recall``, ``precision``.
    """

    observation_space = observations(1 << 18)
    registered = SPEC
    task_ids = staticmethod(task_ids)

    def __init__(self, options: PaperSearchOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._papers = find_papers(self.options)
        self._retrieval = part_of(RetrieverKeys, self.options)
        self._selector = make_selector(self.options)
        self.awaited = self._selector.remote
        self._style = prompts.Style(self.options, self.max_turns)

    def _begin(self, task_id: str) -> tuple[str, SearchState]:
        state = SearchState(self._papers.task(task_id))
        return prompts.situation(state, self._style), state

    def _answer(self, state: SearchState, answer: str) -> StepResult:
        return self._end_turn(state, "done", valid=True, progress=None, terminated=True)

    def _reject(self, state: SearchState, problem: str) -> StepResult:
        new = replace(state, malformed=state.malformed + 1)
        return self._end_malformed(
            new, prompts.malformed_observation(problem, replace(new, turns=new.turns + 1), self._style)
        )

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return the prompt of StepPO, which is rebuilt at every step from the pool and all actions so far."""
        return prompts.situation(self.last_state, self._style)

    async def _call(self, state: SearchState, parsed: ToolResponse) -> StepResult:
        library = self._papers.library(state.task.task_id, self._retrieval)
        turn = CallRunner(state, library, self._selector, self.options)
        calls = parsed.response.calls[: self.options.max_calls]
        results = await self._toolbox(turn).run(parsed.response)
        unfit = len(calls) - turn.ran
        new = replace(turn.state, malformed=turn.state.malformed + unfit)
        observation = prompts.results_observation(results, replace(new, turns=new.turns + 1), self._style)
        query = " ".join(str(value) for call in calls for value in call.arguments.values())
        return self._end_turn(new, observation, turn.reward, valid=not unfit, progress=None, query=query)

    def _toolbox(self, turn: CallRunner) -> Toolbox:
        def bound(kind: str, call: Callable[[Mapping[str, Any]], Awaitable[tuple[Found, ...]]]) -> BoundTool:
            async def run(arguments: Mapping[str, Any]) -> str:
                try:
                    return prompts.found_text(await call(arguments), self._style)
                except Refused as refused:
                    raise (ToolError(refused.reason) if self._style.compact else refused) from None

            return BoundTool(prompts.TOOLS[kind], run)

        return Toolbox([bound(SEARCH, turn.search), bound(EXPAND, turn.expand)], self.options.max_calls)

    def _info(self, state: SearchState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        measured = measures(state.kept, state.task.relevant)
        done = sorted(f"{action.kind} {action.argument}" for action in state.actions)
        return {
            "task_id": state.task.task_id,
            "success": measured.f1 >= SUCCESS_F1,
            "valid": valid,
            "progress": progress,
            "anchor": " | ".join([state.task.task_id, *done]),
            "metrics": {
                "turns": float(state.turns),
                "searches": float(len(state.queries)),
                "expansions": float(len(state.expanded)),
                "refused_calls": float(state.refused),
                "malformed": float(state.malformed),
                "pool": float(len(state.pool)),
                "f1": measured.f1,
                "recall": measured.recall,
                "precision": measured.precision,
            },
        }


make = PaperSearchEnv
