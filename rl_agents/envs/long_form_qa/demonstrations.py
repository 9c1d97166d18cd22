"""The small starter model of long_form_qa: its words, its weights before training, and what it is taught.

It reads the almanac in the compact style, three words a fact, one passage a search, and writes calls of the search tool
as a few words that are JSON together.

The expert (`play`) searches for every part of a question and says what it read. `demonstrate`, which teaches the
starter, breaks off calls, searches for the wrong thing, thinks that it knows what it has not read, and leaves out
parts: every stage that a reward can tell apart is failed at times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.envs.demonstrations import Act, ScriptedPlayer, word_starter
from rl_agents.envs.long_form_qa.almanac import ASPECTS, TOWNS, Wish, value_word
from rl_agents.envs.long_form_qa.env import LongFormQAEnv, QAState
from rl_agents.envs.long_form_qa.prompts import INVALID, MAX_CALLS, NOTHING
from rl_agents.envs.long_form_qa.tasks import wishes_of
from rl_agents.tools.calls import ToolCall, write_response


def expert_action(state: QAState) -> str:
    """Return the action in the paper's style: all searches in the first turn, then the answer from what was read."""
    wishes = wishes_of(state.task.task_id)
    if not state.turns:
        calls = [ToolCall("search", {"query": f"{wish.town} {wish.aspect.name} {wish.point}"}) for wish in wishes]
        return f"<think>I need {len(calls)} facts.</think>\n{write_response('', calls[:MAX_CALLS])}"
    stated = " ".join(wish.point for wish in wishes if any(wish.point in text for text in state.read))
    return f"<think>I have read enough.</think>\n<answer>{stated}</answer>"


def compact_search(wish: Wish) -> str:
    """Return the search for a wish in words that the starter can write; between them are blanks."""
    town, aspect, _ = wish.words
    return f'<tool_call> {{"name":"search","arguments":{{"query":" {town} {aspect} "}}}} </tool_call>'


def compact_answer(state: QAState) -> str:
    """Return the answer in the compact style: every wished fact that was read."""
    stated = [" ".join([*wish.words, "."]) for wish in wishes_of(state.task.task_id) if was_read(wish, state)]
    return f"<answer> {' '.join(stated)} </answer>"


def was_read(wish: Wish, state: QAState) -> bool:
    """Say whether a passage that was read in the compact style states the wish."""
    return any(f"{' '.join(wish.words)} ." in text for text in state.read)


def compact_action(state: QAState) -> str:
    """Return the expert's action in the compact style: one search a turn, then the answer."""
    missing = [wish for wish in wishes_of(state.task.task_id) if not was_read(wish, state)]
    return compact_search(missing[0]) if missing else compact_answer(state)


def _expert(env: LongFormQAEnv, rng: random.Random, habits: None) -> Act:
    def act(observation: str, hurried: bool) -> str:
        if env.options.prompt == "compact":
            return compact_action(env.state)
        return expert_action(env.state).replace("think>", f"{env.options.thoughts}>")

    return act


EXPERT = ScriptedPlayer(LongFormQAEnv, _expert, fixed={})


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities.

    Attributes:
        broken_call: per search, of leaving out the end of the call's JSON.
        wrong_search: per search, of asking for another aspect of the town.
        presumes: per part of the question, of not searching for it and stating a value at random.
        forgets: per part of the question, of neither searching for it nor stating it.
        hurried: per turn, after the first, of being told to answer at once, in the words of T3's forced answers.
    """

    broken_call: float = 0.06
    wrong_search: float = 0.08
    presumes: float = 0.1
    forgets: float = 0.1
    hurried: float = 0.02


def _begin(env: LongFormQAEnv, rng: random.Random, habits: Habits) -> Act:
    wishes = wishes_of(env.state.task.task_id)
    kept = [wish for wish in wishes if rng.random() >= habits.forgets] or list(wishes)
    presumed = {wish for wish in kept if rng.random() < habits.presumes}

    def act(observation: str, hurried: bool) -> str:
        missing = [wish for wish in kept if wish not in presumed and not was_read(wish, env.state)]
        if missing and not hurried and env.state.turns < env.max_turns - 1:
            return _search(missing[0], rng, habits)
        return _answer(env.state, kept, presumed, rng)

    return act


def _search(wish: Wish, rng: random.Random, habits: Habits) -> str:
    if rng.random() < habits.broken_call:
        return compact_search(wish).replace(' "}} ', " ")
    if rng.random() < habits.wrong_search:
        return compact_search(Wish(wish.town, rng.choice([a for a in ASPECTS if a is not wish.aspect])))
    return compact_search(wish)


def _answer(state: QAState, kept: Sequence[Wish], presumed: set[Wish], rng: random.Random) -> str:
    """State what was read, and guess at what was presumed."""
    parts = []
    for wish in kept:
        town, aspect, value = wish.words
        if wish in presumed and not was_read(wish, state):
            value = value_word(wish.aspect, rng.choice(wish.aspect.values))
        elif not was_read(wish, state):
            continue
        parts.append(f"{town} {aspect} {value} .")
    return f"<answer> {' '.join(parts)} </answer>"


CALL_BEGIN, CALL_END = '{"name":"search","arguments":{"query":"', '"}}'


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    values = [value_word(aspect, value) for aspect in ASPECTS for value in aspect.values]
    prompts = ["question", ":", ".", INVALID, NOTHING, CALL_BEGIN, CALL_END]
    return [*prompts, *(town.lower() for town in TOWNS), *(aspect.name for aspect in ASPECTS), *values]


STARTER = word_starter(
    ScriptedPlayer(LongFormQAEnv, _begin, Habits()),
    words,
    tags=("think", "answer", "tool_call", "tool_response"),
    max_tokens=256,
    # One passage a search; it writes no thoughts.
    defaults={"env.results": 1, "max_model_len": 192, "max_response_tokens": 20},
)
