"""Paper search (StepPO, appendices B and C). Every call earns its reward at once.

The ``paper`` prompt has the content of StepPO's prompt (appendix C) in our words. In ``compact``, a paper is its id and
its title. Long lists show the papers with the highest scores, in the order of discovery.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rl_agents.envs.paper_search import SPEC, PaperSearchOptions
from rl_agents.envs.paper_search.state import (
    EMPTY_QUERY,
    EXPAND,
    REPEATED_EXPANSION,
    REPEATED_QUERY,
    SEARCH,
    SUCCESS_F1,
    UNKNOWN_PAPER,
    CallRunner,
    Found,
    Refused,
    SearchState,
    measures,
)
from rl_agents.envs.paper_search.tasks import find_papers
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.tool_turns import ToolEnv, text_tool
from rl_agents.tools.calls import Response
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError, ToolResult, render_results

MAX_TITLE, MAX_SHOWN_QUERY = 200, 200
#: Papers in one list.
MAX_LISTED = 40
#: Words of the compact style for problems.
BAD_TURN, BAD_CALL = "invalid", "bad-call"
REASONS = (EMPTY_QUERY, REPEATED_QUERY, UNKNOWN_PAPER, REPEATED_EXPANSION)
FIND, NOTHING, NEXT, DONE = "find", "nothing", ";", "done"

TOOLS = {
    SEARCH: text_tool(
        SEARCH,
        "Find papers by a query and add them to the paper list.",
        "query",
        "Keywords or a sentence; different from every earlier query.",
    ),
    EXPAND: text_tool(
        EXPAND,
        "Add the papers that a paper of the list cites, and those that cite it.",
        "paper_id",
        "The id of a paper in the paper list.",
    ),
}

_PAPER = """\
You search the literature. Collect every paper that meets the request below in the paper list; it grows with what you \
search for and expand.

Request
{query}

Actions so far
{actions}

Paper list
{papers}

How to proceed
- Write down, inside <analysis> and </analysis>, what the list covers and what is missing, and decide what to do next.
- Then call tools. Calls that do not need each other's results belong into one turn; the first {max_calls} are run.
- Repeat no query and expand no paper twice: look at the actions so far. Both, and expanding a paper that is not in \
the list, cost you points.
- You have {turns} turns. When nothing is missing, write <answer>done</answer> and no call.

Tools
{tools}

A call is written as <tool_call>{{"name": "search", "arguments": {{"query": "..."}}}}</tool_call>"""


def paper_list(papers: Sequence[Found], compact: bool, expanded: frozenset[str] = frozenset()) -> str:
    """Write papers, one per line; empty for none."""
    best = sorted(papers, key=lambda found: -found.score)[:MAX_LISTED]
    ids = {found.paper_id for found in best}
    shown = [found for found in papers if found.paper_id in ids]
    if compact:
        return " ".join(f"{found.paper_id} {found.title}" for found in shown)
    lines = []
    for found in shown:
        mark = " (expanded)" if found.paper_id in expanded else ""
        lines.append(f"[{found.paper_id}] {found.title[:MAX_TITLE]}{mark}")
    hidden = len(papers) - len(shown)
    return "\n".join([*lines, *([f"... and {hidden} more, not listed"] if hidden else [])])


def _action_text(kind: str, argument: str) -> str:
    return f'{SEARCH} "{argument[:MAX_SHOWN_QUERY]}"' if kind == SEARCH else f"{EXPAND} {argument}"


def _papers(count: int) -> str:
    return f"{count} paper{'' if count == 1 else 's'}"


class PaperSearchEnv(ToolEnv[SearchState, PaperSearchOptions]):
    """Collect the papers that meet a request."""

    registered = SPEC

    def __init__(self, options: PaperSearchOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._papers = find_papers(self.options)

    def _begin(self, task_id: str) -> tuple[str, SearchState]:
        state = SearchState(self._papers.task(task_id))
        return self._situation(state), state

    def _answer(self, state: SearchState, answer: str) -> StepResult:
        return self._end_turn(state, DONE, valid=True, progress=None, terminated=True)

    def _reject(self, state: SearchState, problem: str) -> StepResult:
        new = replace(state, malformed=state.malformed + 1)
        text = BAD_TURN if self._compact else f"Your last response was not valid: {problem}.\n{self._outlook(new)}"
        return self._end_malformed(new, text)

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        """Return StepPO's prompt, which is rebuilt at every step from the pool and all actions so far."""
        return self._situation(self.last_state)

    def _call(self, state: SearchState, response: Response) -> StepResult:
        library = self._papers.library(state.task.task_id)
        turn = CallRunner(state, library, self.options)
        calls = response.calls[: self.options.max_calls]
        results = self._toolbox(turn).execute(response)
        unfit = len(calls) - turn.ran
        new = replace(turn.state, malformed=turn.state.malformed + unfit)
        query = " ".join(str(value) for call in calls for value in call.arguments.values())
        observation = self._results(results, new)
        return self._end_turn(new, observation, turn.reward, valid=not unfit, progress=None, query=query)

    def _toolbox(self, turn: CallRunner) -> Toolbox:
        def bound(kind: str, call: Callable[[Mapping[str, Any]], tuple[Found, ...]]) -> BoundTool:
            def run(arguments: Mapping[str, Any]) -> str:
                try:
                    found = call(arguments)
                except Refused as refused:
                    raise (ToolError(refused.reason) if self._compact else refused) from None
                listed = paper_list(found, self._compact)
                if self._compact:
                    return listed or NOTHING
                return f"{_papers(len(found))} added to the list\n{listed}".strip()

            return BoundTool(TOOLS[kind], run)

        return Toolbox([bound(SEARCH, turn.search), bound(EXPAND, turn.expand)], self.options.max_calls)

    def _results(self, results: Sequence[ToolResult], state: SearchState) -> str:
        if not self._compact:
            return f"{render_results(results)}\n{self._outlook(state)}"
        texts = (r.content if r.ok or r.content in REASONS else BAD_CALL for r in results[: self.options.max_calls])
        return f" {NEXT} ".join(texts)

    def _outlook(self, state: SearchState) -> str:
        """Return the end of an observation, after the turn that leads to ``state``."""
        left = max(self.max_turns - state.turns - 1, 0)
        return f"The paper list holds {_papers(len(state.pool))}. Turns left: {left}."

    def _situation(self, state: SearchState) -> str:
        """Return everything that the agent knows: the first observation, or a rebuilt prompt."""
        if self._compact:
            actions = [f"{NEXT} {action.kind} {action.argument}" for action in state.actions]
            papers = [f"{NEXT} {paper_list(state.pool, True)}"] if state.pool else []
            return " ".join([FIND, state.task.query, *actions, *papers])
        lines = [f"{n}. {_action_text(a.kind, a.argument)}: {_papers(a.added)}" for n, a in enumerate(state.actions, 1)]
        return _PAPER.format(
            query=state.task.query,
            actions="\n".join(lines) or "(none)",
            papers=paper_list(state.pool, False, state.expanded) or "(empty)",
            turns=self.max_turns - state.turns,
            max_calls=self.options.max_calls,
            tools=json.dumps([tool.to_openai() for tool in TOOLS.values()], indent=1),
        )

    def _report(self, state: SearchState) -> dict[str, Any]:
        measured = measures(state.kept, state.task.relevant)
        done = sorted(f"{action.kind} {action.argument}" for action in state.actions)
        return {
            "task_id": state.task.task_id,
            "success": measured.f1 >= SUCCESS_F1,
            "anchor": " | ".join([state.task.task_id, *done]),
            "metrics": {
                "searches": len(state.queries),
                "expansions": len(state.expanded),
                "refused_calls": state.refused,
                "malformed": state.malformed,
                "pool": len(state.pool),
                "f1": measured.f1,
                "recall": measured.recall,
                "precision": measured.precision,
            },
        }


make = PaperSearchEnv
