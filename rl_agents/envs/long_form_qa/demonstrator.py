"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It searches for one part of the question after the other, but it breaks off calls, searches for the wrong thing, thinks
that it knows what it has not read, and leaves out parts: every stage that a reward can tell apart is failed at times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_agents.envs.long_form_qa.almanac import ASPECTS, Wish, value_word
from rl_agents.envs.long_form_qa.env import LongFormQAEnv, QAState
from rl_agents.envs.long_form_qa.expert import compact_search, was_read
from rl_agents.envs.long_form_qa.spec import LongFormQAOptions
from rl_agents.envs.long_form_qa.tasks import wishes_of
from rl_agents.envs.stateful import Dialogue, play


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


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: LongFormQAOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = LongFormQAEnv(replace(options, prompt="compact"), max_turns)
    wishes = wishes_of(task_id)
    kept = [wish for wish in wishes if rng.random() >= habits.forgets] or list(wishes)
    presumed = {wish for wish in kept if rng.random() < habits.presumes}

    def act(observation: str) -> tuple[str, str]:
        if env.state.turns and rng.random() < habits.hurried:
            return f"{observation}\n{env.answer_instruction}", _answer(env.state, kept, presumed, rng)
        missing = [wish for wish in kept if wish not in presumed and not was_read(wish, env.state)]
        if missing and env.state.turns < env.max_turns - 1:
            return observation, _search(missing[0], rng, habits)
        return observation, _answer(env.state, kept, presumed, rng)

    return play(env, task_id, act)[0]


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
