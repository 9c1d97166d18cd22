"""The scripted players of paper search, and its warm-start model.

The expert sees the scores of the pool, which the agent does not, but only of found papers. It searches for the
request's words, then for the other names in relevant papers, and expands all relevant papers. The mediocre searcher,
which teaches the warm-start model, searches the small libraries, where a title is two words and an id is one, each one
token. The JSON of a call is one token before its argument and one after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rl_agents.envs.paper_search.env import BAD_CALL, BAD_TURN, DONE, FIND, NEXT, NOTHING, REASONS, PaperSearchEnv
from rl_agents.envs.paper_search.generated import SMALL_JARGON, SMALL_METHODS, SMALL_SUBJECTS, small_ids
from rl_agents.envs.paper_search.state import EXPAND, SEARCH, THRESHOLD, SearchState, query_key
from rl_agents.envs.starters import CALL_END, Act, ScriptedPlayer, Slips, call_begin, compact_call, word_starter
from rl_agents.tools.calls import ToolCall, write_response

Call = tuple[str, str]
STOP = "<answer>done</answer>"
#: Most searches in one turn for names in relevant papers; the other calls are expansions.
RENAMED = 2
#: Irrelevant papers that may be expanded, and the number of actions after which none is.
NEAREST, TIRED = 10, 20


def expert_action(state: SearchState, max_calls: int, compact: bool = False) -> str:
    """Return the expert's action: the most promising calls, or the end of the search if there is none."""
    calls = list(itertools.islice(_promising(state), max_calls))
    return written(calls, compact) if calls else spaced(STOP) if compact else STOP


def written(calls: Iterable[Call], compact: bool) -> str:
    """Write calls as the agent does; in the compact style, with the words of the warm-start model."""
    if not compact:
        return write_response("", [ToolCall(kind, {_ARGUMENTS[kind]: argument}) for kind, argument in calls])
    return " ".join(compact_call(kind, _ARGUMENTS[kind], argument) for kind, argument in calls)


_ARGUMENTS = {SEARCH: "query", EXPAND: "paper_id"}


def spaced(answer: str) -> str:
    """Write an answer in the compact style, with blanks around its tags."""
    return answer.replace(">", "> ").replace("</", " </").strip()


def _promising(state: SearchState) -> Iterator[Call]:
    if not state.actions:
        yield SEARCH, " ".join(state.task.wanted) or state.task.query
    good = [found for found in state.pool if found.score >= THRESHOLD]
    tried = {*state.queries, query_key(state.task.query)}
    names = dict.fromkeys(found.title for found in good if query_key(found.title) not in tried)
    yield from ((SEARCH, title) for title in list(names)[:RENAMED])
    # If no relevant paper is left to expand, the citations of the nearest papers may lead to more.
    nearest = sorted(state.pool, key=lambda found: -found.score)[:NEAREST] if len(state.actions) < TIRED else []
    for found in [*good, *(found for found in nearest if found not in good)]:
        if found.paper_id not in state.expanded:
            yield EXPAND, found.paper_id


def _expert(env: PaperSearchEnv, slips: Slips) -> Act:
    options = env.options
    return lambda observation, hurried: expert_action(env.state, options.max_calls, options.prompt == "compact")


EXPERT = ScriptedPlayer(PaperSearchEnv, _expert, fixed={})


#: Options of the small libraries.
SMALL: Mapping[str, Any] = {"papers": "small", "prompt": "compact", "results": 4, "max_calls": 3}


#: One more call in a turn, after each call except the last; a first query with one of the two words; any paper expanded
#: instead of one that matches the request; a search for the words of a listed paper; a call chosen without looking at
#: earlier ones; the end of the search, per turn after the second. With these, two of five searches succeed.
SLIPS = {
    "further_call": 0.35, "half_query": 0.3, "any_paper": 0.5, "searches_again": 0.2, "repeats": 0.1, "gives_up": 0.1,
}  # fmt: skip


def _begin(env: PaperSearchEnv, slips: Slips) -> Act:
    return lambda observation, hurried: _action(env.state, slips)


def _action(state: SearchState, slips: Slips) -> str:
    if state.turns >= 2 and slips("gives_up"):
        return spaced(STOP)
    if not state.pool:
        words = state.task.query.split()
        return written([(SEARCH, slips.rng.choice(words) if slips("half_query") else " ".join(words))], True)
    calls = list(_calls(state, slips))
    return written(calls, True) if calls else spaced(STOP)


def _calls(state: SearchState, slips: Slips) -> Iterator[Call]:
    done = {(action.kind, action.argument) for action in state.actions}
    for _ in range(SMALL["max_calls"]):
        call = _call(state, done, slips)
        if call is None:
            return
        yield call
        done.add(call)
        if not slips("further_call"):
            return


def _call(state: SearchState, done: set[Call], slips: Slips) -> Call | None:
    if slips("repeats"):
        done = set()
    suitable = [found for found in state.pool if found.score >= 1.0]
    papers = state.pool if not suitable or slips("any_paper") else suitable
    kind = SEARCH if slips("searches_again") else EXPAND
    choices = dict.fromkeys((kind, found.title if kind == SEARCH else found.paper_id) for found in papers)
    fresh = [call for call in choices if call not in done]
    return slips.rng.choice(fresh) if fresh else None


def words() -> list[str]:
    prompts = [FIND, NEXT, NOTHING, DONE, SEARCH, EXPAND, BAD_TURN, BAD_CALL, *REASONS]
    titles = [*SMALL_SUBJECTS, *SMALL_METHODS, *SMALL_JARGON]
    calls = [*(call_begin(*call) for call in _ARGUMENTS.items()), CALL_END]
    return [*prompts, *calls, *titles, *small_ids()]


STARTER = word_starter(
    ScriptedPlayer(PaperSearchEnv, _begin, SLIPS, fixed=SMALL),
    words,
    tags=("tool_call", "answer"),
    max_tokens=512,
    # A quarter of the default batch with more steps, because the number of steps matters here.
    training={"iterations": 60, "tasks_per_iteration": 320, "demonstrations": 6000},
    defaults={
        **{f"env.{key}": value for key, value in SMALL.items()},
        "max_model_len": 384,
        "max_response_tokens": 24,
        "iterations": 40,
        "eval_episodes": 240,
    },
    expert=EXPERT,
)
