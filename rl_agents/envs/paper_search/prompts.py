"""What the agent reads, in two styles, and the tools that it calls.

``paper`` says what StepPO's prompt says (appendix C), in words of our own: the query, the actions so far, the paper
list, the tools. ``compact`` says the same in a few words for small models: a paper is its id and its title.

Long lists are cut: of too many papers those with the highest scores are shown, in the order of discovery.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.state import (
    EMPTY_QUERY,
    EXPAND,
    REPEATED_EXPANSION,
    REPEATED_QUERY,
    SEARCH,
    UNKNOWN_PAPER,
    Found,
    SearchState,
)
from rl_agents.envs.tool_turns import text_tool
from rl_agents.tools.toolbox import ToolResult, render_results

MAX_TITLE, MAX_SHOWN_QUERY = 200, 200
#: Papers that one list shows.
MAX_LISTED = 40
#: Words of the compact style for what went wrong.
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


@dataclass(frozen=True, slots=True)
class Style:
    """How texts are written.

    Attributes:
        options: the environment's keys.
        max_turns: turns of an episode.
    """

    options: PaperSearchOptions
    max_turns: int

    @property
    def compact(self) -> bool:
        return self.options.prompt == "compact"


def situation(state: SearchState, style: Style) -> str:
    """Return all that the agent knows: the first observation, and the message of a prompt that is rebuilt."""
    if style.compact:
        return _compact_situation(state, style)
    actions = [f"{n}. {_action_text(a.kind, a.argument)}: {_papers(a.added)}" for n, a in enumerate(state.actions, 1)]
    return _PAPER.format(
        query=state.task.query,
        actions="\n".join(actions) or "(none)",
        papers=paper_list(state.pool, style, state.expanded) or "(empty)",
        turns=style.max_turns - state.turns,
        max_calls=style.options.max_calls,
        tools=json.dumps([tool.to_openai() for tool in TOOLS.values()], indent=1),
    )


def paper_list(papers: Sequence[Found], style: Style, expanded: frozenset[str] = frozenset()) -> str:
    """Write papers, one a line; empty for none."""
    best = sorted(papers, key=lambda found: -found.score)[:MAX_LISTED]
    ids = {found.paper_id for found in best}
    shown = [found for found in papers if found.paper_id in ids]
    if style.compact:
        return " ".join(f"{found.paper_id} {found.title}" for found in shown)
    lines = []
    for found in shown:
        mark = " (expanded)" if found.paper_id in expanded else ""
        lines.append(f"[{found.paper_id}] {found.title[:MAX_TITLE]}{mark}")
    hidden = len(papers) - len(shown)
    return "\n".join([*lines, *([f"... and {hidden} more, not listed"] if hidden else [])])


def found_text(found: Sequence[Found], style: Style) -> str:
    """Write what a call added to the list."""
    if style.compact:
        return paper_list(found, style) or NOTHING
    return f"{_papers(len(found))} added to the list\n{paper_list(found, style)}".strip()


def results_observation(results: Sequence[ToolResult], state: SearchState, style: Style) -> str:
    """Write what came of a turn's calls."""
    if style.compact:
        texts = (r.content if r.ok or r.content in REASONS else BAD_CALL for r in results[: style.options.max_calls])
        return f" {NEXT} ".join(texts)
    return f"{render_results(results)}\n{_outlook(state, style)}"


def malformed_observation(problem: str, state: SearchState, style: Style) -> str:
    """Tell the agent that, and why, its response could not be read."""
    if style.compact:
        return BAD_TURN
    return f"Your last response was not valid: {problem}.\n{_outlook(state, style)}"


def _compact_situation(state: SearchState, style: Style) -> str:
    actions = [f"{NEXT} {action.kind} {action.argument}" for action in state.actions]
    papers = [f"{NEXT} {paper_list(state.pool, style)}"] if state.pool else []
    return " ".join([FIND, state.task.query, *actions, *papers])


def _outlook(state: SearchState, style: Style) -> str:
    return f"The paper list holds {_papers(len(state.pool))}. Turns left: {max(style.max_turns - state.turns, 0)}."


def _action_text(kind: str, argument: str) -> str:
    return f'{SEARCH} "{argument[:MAX_SHOWN_QUERY]}"' if kind == SEARCH else f"{EXPAND} {argument}"


def _papers(count: int) -> str:
    return f"{count} paper{'' if count == 1 else 's'}"
