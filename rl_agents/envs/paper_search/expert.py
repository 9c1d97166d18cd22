"""A scripted player that knows which of the found papers are relevant: what can be reached in paper search.

It searches for the request's words, then for the other names that relevant papers use, and expands relevant papers
until none is left to expand. It sees the scores of the pool, which the agent does not, but no paper that was not found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial

from rl_agents.envs.paper_search.env import PaperSearchEnv
from rl_agents.envs.paper_search.rules import query_key
from rl_agents.envs.paper_search.spec import PaperSearchOptions
from rl_agents.envs.paper_search.state import EXPAND, SEARCH, SearchState
from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.tools.calls import ToolCall, write_response

Call = tuple[str, str]
STOP = "<answer>done</answer>"
#: Searches for names that a relevant paper uses, at most, in one turn; the other calls are expansions.
RENAMED = 2
#: Papers that are expanded although they are not relevant, and the calls after which none is any more.
NEAREST, TIRED = 10, 20


def expert_action(state: SearchState, max_calls: int = 5, compact: bool = False, relevant: float = 0.5) -> str:
    """Return the action: the calls that promise most, or the end when there is none.

    Args:
        relevant: score from which a paper is worth expanding.
    """
    calls = list(itertools.islice(_calls(state, relevant), max_calls))
    return written(calls, compact) if calls else spaced(STOP) if compact else STOP


def written(calls: Iterable[Call], compact: bool) -> str:
    """Write calls as the agent would; in the compact style of words that a word-level tokenizer knows."""
    if not compact:
        return write_response("", [ToolCall(kind, {_ARGUMENTS[kind]: argument}) for kind, argument in calls])
    parts = (f"<tool_call> {opening(kind)} {argument} {CLOSING} </tool_call>" for kind, argument in calls)
    return " ".join(parts)


def opening(kind: str) -> str:
    """Return the text before the argument of a call in the compact style, one word.

    >>> opening("expand")
    '{"name":"expand","arguments":{"paper_id":"'
    """
    return f'{{"name":"{kind}","arguments":{{"{_ARGUMENTS[kind]}":"'


#: The word after the argument.
CLOSING = '"}}'
_ARGUMENTS = {SEARCH: "query", EXPAND: "paper_id"}


def spaced(answer: str) -> str:
    """Write an answer in the compact style: tags and words apart."""
    return answer.replace(">", "> ").replace("</", " </").strip()


def _calls(state: SearchState, relevant: float) -> Iterator[Call]:
    if not state.actions:
        yield SEARCH, " ".join(state.task.wanted) or state.task.query
    good = [found for found in state.pool if found.score >= relevant]
    tried = {*state.queries, query_key(state.task.query)}
    names = dict.fromkeys(found.title for found in good if query_key(found.title) not in tried)
    yield from ((SEARCH, title) for title in list(names)[:RENAMED])
    # Where nothing relevant was found, or all of it is expanded, the citations of what comes nearest may lead on.
    nearest = sorted(state.pool, key=lambda found: -found.score)[:NEAREST] if len(state.actions) < TIRED else []
    for found in [*good, *(found for found in nearest if found not in good)]:
        if found.paper_id not in state.expanded:
            yield EXPAND, found.paper_id


def play(task_id: str, options: PaperSearchOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = PaperSearchEnv(options, max_turns)
    act = partial(expert_action, max_calls=options.max_calls, compact=options.prompt == "compact")
    return play_episode(env, task_id, lambda shown: (shown, act(env.state)))
