"""The warm-start model of long_form_qa, which reads the almanac in the compact style and writes calls as a few words.

The player that it imitates searches for every part of a question and states what it read; each of its errors fails
another stage of a reward.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rl_agents.envs.long_form_qa.env import INVALID, NOTHING, LongFormQAEnv, QAState
from rl_agents.envs.long_form_qa.tasks import ASPECTS, TOWNS, Wish, value_word, wishes_of
from rl_agents.envs.starters import CALL_END, Act, ScriptedPlayer, Slips, call_begin, compact_call, word_starter


def compact_search(wish: Wish) -> str:
    return compact_call("search", "query", " ".join(wish.words[:2]))


def was_read(wish: Wish, state: QAState) -> bool:
    """Return whether a passage that was read in the compact style states the fact."""
    return any(f"{' '.join(wish.words)} ." in text for text in state.read)


#: Per search: a call without the end of its JSON, another aspect of the town. Per part of the question: a random value
#: without a search, neither search nor statement.
SLIPS = {"broken_call": 0.06, "wrong_search": 0.08, "presumes": 0.1, "forgets": 0.1, "hurried": 0.02}


def _begin(env: LongFormQAEnv, slips: Slips) -> Act:
    wishes = wishes_of(env.state.task.task_id)
    kept = [wish for wish in wishes if not slips("forgets")] or list(wishes)
    presumed = {wish for wish in kept if slips("presumes")}

    def act(observation: str, hurried: bool) -> str:
        missing = [wish for wish in kept if wish not in presumed and not was_read(wish, env.state)]
        if missing and not hurried and env.state.turns < env.max_turns - 1:
            return _search(missing[0], slips)
        return _answer(env.state, kept, presumed, slips.rng)

    return act


def _search(wish: Wish, slips: Slips) -> str:
    if slips("broken_call"):
        return compact_search(wish).replace(' "}} ', " ")
    if slips("wrong_search"):
        return compact_search(Wish(wish.town, slips.rng.choice([a for a in ASPECTS if a is not wish.aspect])))
    return compact_search(wish)


def _answer(state: QAState, kept: Sequence[Wish], presumed: set[Wish], rng: random.Random) -> str:
    """State the facts that were read, and guess the presumed ones."""
    parts = []
    for wish in kept:
        town, aspect, value = wish.words
        if wish in presumed and not was_read(wish, state):
            value = value_word(wish.aspect, rng.choice(wish.aspect.values))
        elif not was_read(wish, state):
            continue
        parts.append(f"{town} {aspect} {value} .")
    return f"<answer> {' '.join(parts)} </answer>"


def words() -> list[str]:
    values = [value_word(aspect, value) for aspect in ASPECTS for value in aspect.values]
    prompts = ["question", ":", ".", INVALID, NOTHING, call_begin("search", "query"), CALL_END]
    return [*prompts, *(town.lower() for town in TOWNS), *(aspect.name for aspect in ASPECTS), *values]


STARTER = word_starter(
    ScriptedPlayer(LongFormQAEnv, _begin, SLIPS),
    words,
    tags=("think", "answer", "tool_call", "tool_response"),
    max_tokens=256,
    # One passage per search. It writes no thoughts.
    defaults={"env.results": 1, "max_model_len": 192, "max_response_tokens": 20},
)
