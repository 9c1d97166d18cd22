"""Paper search as a `gymnasium.Env` over text (StepPO, appendices B and C).

An episode is at most five turns of up to five calls each, of ``search(query)`` and ``expand(paper_id)``. Every call
earns its reward at once, see `rules`; an answer, whatever it says, ends the search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_agents.envs.paper_search.library import Retrieval
from rl_agents.envs.paper_search.prompts import (
    PROMPT_STYLES,
    TOOLS,
    Style,
    found_text,
    malformed_observation,
    results_observation,
    situation,
)
from rl_agents.envs.paper_search.rules import Prices
from rl_agents.envs.paper_search.selectors import make_selector
from rl_agents.envs.paper_search.state import EXPAND, SEARCH, Found, Limits, Refused, SearchState, Turn
from rl_agents.envs.paper_search.tasks import Papers, find_papers
from rl_agents.envs.preferences import check_range
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
from rl_agents.envs.tool_turns import ANSWER, CALLS, ToolTurn, read_turn
from rl_agents.errors import InputError
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError

MAX_TURNS = 5
MALFORMED_RULES = ("retry", "end")
MAX_RESULT_CHARACTERS = 50_000
MAX_PRICE = 1000.0


class PaperSearchEnv(StatefulEnv[SearchState]):
    """Collect the papers that meet a request.

    Args:
        papers: where papers and queries come from, see `tasks.find_papers`.
        bad_data: a bad record of a folder's files is an ``error``, or is left out: ``skip``.
        prompt: ``paper`` (StepPO's, in our words) or ``compact`` (few words, for small models).
        malformed: a response that cannot be read counts as a turn and then: ``retry`` continues with a message that
            says what is wrong, ``end`` ends the episode. It costs nothing by itself; see the key
            ``invalid_action_penalty``.
        retriever: ``bm25``, ``dense`` or ``hybrid`` (both, fused by reciprocal ranks).
        retriever_model: folder of a sentence-transformers model; ``query_prefix`` and ``passage_prefix`` are what it
            wants before its texts.
        results: papers of a search.
        citing: citing papers of an expansion at most.
        references: cited papers of an expansion at most.
        max_calls: calls of one turn that are run.
        listed: papers that one list shows.
        abstract_characters: of each abstract, shown below the title.
        min_score: papers with a lower score are dropped.
        search_cost: subtracted from what a search earns; ``expand_cost`` likewise.
        penalty: subtracted for a repeated or an empty query, and a repeated or an impossible expansion.
        threshold: papers of at least this score count at the end.
        success_f1: F1 from which an episode is a success. The papers know no such thing.
        selector: ``rule`` or ``openai``; with the keys ``selector_*`` see `selectors.make_selector`.
        max_turns: turns of the agent; after the last the episode is truncated.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the task, what was searched for and expanded, in
    any order: what the pool follows from), ``query`` (the calls of the turn) and ``metrics``: ``turns``, ``searches``,
    ``expansions``, ``refused_calls``, ``malformed``, ``pool``, ``f1``, ``recall``, ``precision``.
    """

    observation_space = observations(1 << 18)
    label = "PaperSearch"

    def __init__(
        self,
        *,
        papers: str = "generated",
        bad_data: str = "error",
        prompt: str = "paper",
        malformed: str = "retry",
        retriever: str = "bm25",
        retriever_model: str = "",
        query_prefix: str = "",
        passage_prefix: str = "",
        results: int = 10,
        citing: int = 30,
        references: int = 99,
        max_calls: int = 5,
        listed: int = 40,
        abstract_characters: int = 0,
        min_score: float = 0.01,
        search_cost: float = 0.0,
        expand_cost: float = 0.0,
        penalty: float = 0.5,
        threshold: float = 0.5,
        success_f1: float = 0.8,
        selector: str = "rule",
        max_turns: int = MAX_TURNS,
        **selector_options: Any,
    ) -> None:
        super().__init__(max_turns, prompt=(prompt, PROMPT_STYLES), malformed=(malformed, MALFORMED_RULES))
        for key, value, low, high in (
            ("results", results, 1, 100),
            ("citing", citing, 0, 1000),
            ("references", references, 0, 1000),
            ("max_calls", max_calls, 1, 32),
            ("listed", listed, 1, 200),
            ("abstract_characters", abstract_characters, 0, 2000),
        ):
            check_range(key, value, low, high)
        for key, number, most in (
            ("min_score", min_score, 1.0),
            ("threshold", threshold, 1.0),
            ("success_f1", success_f1, 1.0),
            ("search_cost", search_cost, MAX_PRICE),
            ("expand_cost", expand_cost, MAX_PRICE),
            ("penalty", penalty, MAX_PRICE),
        ):
            _check_number(key, number, most)
        self._papers: Papers = find_papers(papers, bad_data)
        self._retrieval = Retrieval(retriever, retriever_model, query_prefix, passage_prefix)
        self._limits = Limits(results, citing, references, min_score)
        self._prices = Prices(search_cost, expand_cost, penalty)
        self._style = Style(prompt, listed, abstract_characters, max_calls, max_turns)
        self._selector = make_selector(selector, **selector_options)
        self._malformed, self._threshold, self._success_f1 = malformed, threshold, success_f1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id, or unusable data.
        """
        task = self._papers.task(self._draw_task(seed, options, lambda: self._papers.task_ids("train")))
        self._state = SearchState(task)
        return situation(self._state, self._style), self._info(self._state, valid=True, progress=None)

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `rl_agents.envs.tool_turns` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
            JudgeError: the selector's server gave no usable reply; the state is as before.
        """
        state, parsed = self.state, read_turn(action)
        if parsed.kind == CALLS:
            return self._call(state, parsed)
        if parsed.kind == ANSWER:
            return self._end_turn(state, "done", valid=True, progress=None, terminated=True)
        new = replace(state, malformed=state.malformed + 1)
        observation = malformed_observation(parsed.problem, replace(new, turns=new.turns + 1), self._style)
        return self._end_turn(new, observation, valid=False, progress=None, terminated=self._malformed == "end")

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return the prompt of StepPO, which is rebuilt at every step from the pool and all actions so far.

        Raises:
            RuntimeError: before `reset`.
        """
        if self._state is None:
            raise RuntimeError("PaperSearch: render_window() without an episode")
        return situation(self._state, self._style)

    def _call(self, state: SearchState, parsed: ToolTurn) -> StepResult:
        library = self._papers.library(state.task.task_id, self._retrieval)
        turn = Turn(state, library, self._selector, self._limits, self._prices)
        calls = parsed.response.calls[: self._style.max_calls]
        results = self._toolbox(turn).execute(parsed.response)
        unfit = len(calls) - turn.ran
        new = replace(turn.state, malformed=turn.state.malformed + unfit)
        observation = results_observation(results, replace(new, turns=new.turns + 1), self._style)
        query = " ".join(str(value) for call in calls for value in call.arguments.values())
        return self._end_turn(new, observation, turn.reward, valid=not unfit, progress=None, query=query)

    def _toolbox(self, turn: Turn) -> Toolbox:
        def written(
            call: Callable[[Mapping[str, Any]], tuple[Found, ...]],
        ) -> Callable[[Mapping[str, Any]], str]:
            def run(arguments: Mapping[str, Any]) -> str:
                try:
                    return found_text(call(arguments), self._style)
                except Refused as refused:
                    raise (ToolError(refused.reason) if self._style.compact else refused) from None

            return run

        tools = [BoundTool(TOOLS[SEARCH], written(turn.search)), BoundTool(TOOLS[EXPAND], written(turn.expand))]
        return Toolbox(tools, self._style.max_calls, MAX_RESULT_CHARACTERS)

    def _info(self, state: SearchState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        measured = state.measures(self._threshold)
        done = sorted(f"{action.kind} {action.argument}" for action in state.actions)
        return {
            "task_id": state.task.task_id,
            "success": measured.f1 >= self._success_f1,
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


def _check_number(key: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InputError(f"env.{key} is {value!r}: it must be a number from 0 to {most:g}")


def make(**options: Any) -> PaperSearchEnv:
    """Create the environment; the options are those of `PaperSearchEnv`."""
    return PaperSearchEnv(**options)
