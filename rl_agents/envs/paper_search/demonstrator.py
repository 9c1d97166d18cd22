"""A scripted, deliberately mediocre searcher whose dialogues teach the starter model.

It knows the forms of the calls and copies ids from the list, but it makes few calls a turn, expands papers that have
little to do with the request, hardly ever follows a new name, and gives up early: reinforcement learning has something
to improve.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.paper_search.env import PaperSearchEnv
from rl_agents.envs.paper_search.expert import STOP, Call, expert_action, spaced, written
from rl_agents.envs.paper_search.spec import PaperSearchOptions
from rl_agents.envs.paper_search.state import EXPAND, SEARCH, Found, SearchState
from rl_agents.envs.stateful import Dialogue, play

#: What the small libraries are searched with.
SMALL: Mapping[str, Any] = {"papers": "small", "prompt": "compact", "results": 4, "max_calls": 3}


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the searcher; two of five searches succeed with these.

    Attributes:
        further_call: probability of one more call in a turn, after each but the last that is run.
        half_query: probability that the first query has one word of the two.
        any_paper: probability that a paper is expanded whatever it is about, in place of one with the request's words
            or a name that was found for them.
        searches_again: probability that a call is a search for the words of a paper in the list.
        repeats: probability that a call is chosen without a look at the earlier ones.
        gives_up: probability, per turn after the second, of ending the search.
    """

    further_call: float = 0.35
    half_query: float = 0.3
    any_paper: float = 0.5
    searches_again: float = 0.2
    repeats: float = 0.1
    gives_up: float = 0.1


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: PaperSearchOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Search the small libraries for ``task_id`` in the compact style, whatever ``options`` say about these.

    Raises:
        InputError: unknown task id.
    """
    env = PaperSearchEnv(replace(options, **SMALL), max_turns)
    return play(env, task_id, lambda shown: (shown, _action(env.state, rng, habits)))[0]


def demonstrate_well(task_id: str, rng: random.Random, options: PaperSearchOptions, max_turns: int = 0) -> Dialogue:
    """Let the expert search the small libraries in the starter's words."""
    env = PaperSearchEnv(replace(options, **SMALL), max_turns)
    return play(env, task_id, lambda shown: (shown, expert_action(env.state, SMALL["max_calls"], True)))[0]


def _action(state: SearchState, rng: random.Random, habits: Habits) -> str:
    if state.turns >= 2 and rng.random() < habits.gives_up:
        return spaced(STOP)
    if not state.pool:
        words = state.task.query.split()
        return written([(SEARCH, rng.choice(words) if rng.random() < habits.half_query else " ".join(words))], True)
    calls = list(_calls(state, rng, habits))
    return written(calls, True) if calls else spaced(STOP)


def _calls(state: SearchState, rng: random.Random, habits: Habits) -> Iterator[Call]:
    done = {(action.kind, action.argument) for action in state.actions}
    for _ in range(SMALL["max_calls"]):
        call = _call(state, done, rng, habits)
        if call is None:
            return
        yield call
        done.add(call)
        if rng.random() >= habits.further_call:
            return


def _call(state: SearchState, done: set[Call], rng: random.Random, habits: Habits) -> Call | None:
    if rng.random() < habits.repeats:
        done = set()
    suitable = [found for found in state.pool if found.score >= 1.0]
    papers = state.pool if not suitable or rng.random() < habits.any_paper else suitable
    kind = SEARCH if rng.random() < habits.searches_again else EXPAND
    choices = dict.fromkeys((kind, _argument(kind, found)) for found in papers)
    fresh = [call for call in choices if call not in done]
    return rng.choice(fresh) if fresh else None


def _argument(kind: str, found: Found) -> str:
    return found.title if kind == SEARCH else found.paper_id
