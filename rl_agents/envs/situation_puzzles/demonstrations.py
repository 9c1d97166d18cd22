"""The warm-start model of SituationPuzzles, for the set ``small``: a scene, a slot and a value are one token each.

The player that it imitates knows the themes and asks for one value after another; it cannot play other puzzles. Its
series of questions from other scenes, which are all answered with "unknown", are for T3 to truncate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from rl_agents.envs.situation_puzzles import tasks
from rl_agents.envs.situation_puzzles.env import NO_QUESTION, TOO_LONG, PuzzleState, SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.tasks import Puzzle, Theme
from rl_agents.envs.starters import Act, ScriptedPlayer, Slips, sum_parts, word_starter
from rl_agents.envs.stateful import MALFORMED_REASONS
from rl_agents.errors import InputError
from rl_agents.rewards.wording import stem, stems

if TYPE_CHECKING:
    import torch


Belief = tuple[tuple[str, ...], ...]
"""The remaining values of each slot, in the theme's order."""


def theme_of(puzzle: Puzzle) -> Theme:
    if not puzzle.slots:
        raise InputError(f"puzzle {puzzle.puzzle_id} has no theme: the scripted player only knows generated puzzles")
    return tasks.themes()[puzzle.theme]


def slots_of(puzzle: Puzzle) -> Belief:
    slots = theme_of(puzzle).slots
    return tuple(tuple(slots[name]) for name, _ in puzzle.slots)


def belief(state: PuzzleState) -> Belief:
    """Return the values that are possible after the replies to questions about single values."""
    replies = {question: reply.text for asked, reply in state.asked for question in stems(asked)}
    return tuple(_open_values(values, replies) for values in slots_of(state.puzzle))


def _open_values(values: tuple[str, ...], replies: dict[str, str]) -> tuple[str, ...]:
    said = {value: replies.get(stem(value)) for value in values}
    right = tuple(value for value, reply in said.items() if reply == tasks.YES)
    return right[:1] or tuple(value for value, reply in said.items() if reply != tasks.NO) or values


def question(value: str) -> str:
    return f"<interact> {value} </interact>"


def answer(values: Belief) -> str:
    return f"<answer> {' '.join(open_values[0] for open_values in values)} </answer>"


#: Per turn: an answer before all values are known, a random value of the scene, a value of another scene, and one more
#: after the reply "unknown".
SLIPS = {"premature_answer": 0.06, "repeat": 0.06, "enter_rut": 0.05, "stay_in_rut": 0.8, "hurried": 0.02}


def _begin(env: SituationPuzzlesEnv, slips: Slips) -> Act:
    def act(observation: str, hurried: bool) -> str:
        return answer(belief(env.state)) if hurried else _choose(env.state, slips)

    return act


def _choose(state: PuzzleState, slips: Slips) -> str:
    values = belief(state)
    value = next((open_values[0] for open_values in values if len(open_values) > 1), None)
    stuck = bool(state.asked) and state.asked[-1][1].text == tasks.UNKNOWN
    if slips("stay_in_rut" if stuck else "enter_rut"):
        return question(slips.rng.choice(foreign_values(theme_of(state.puzzle).name)))
    if value is None or slips("premature_answer"):
        return answer(values)
    if slips("repeat"):
        return question(slips.rng.choice([value for values in slots_of(state.puzzle) for value in values]))
    return question(value)


@cache
def foreign_values(theme: str) -> tuple[str, ...]:
    """Return the values of the other scenes in the small set."""
    own = {value for values in tasks.themes()[theme].slots.values() for value in values}
    others = [other.slots for other in tasks.themes(small=True).values() if other.name != theme]
    return tuple(value for slots in others for values in slots.values() for value in values if value not in own)


def words() -> list[str]:
    prompts = [":", "yes", "no", "unknown", "not-a-question", "invalid", *MALFORMED_REASONS, NO_QUESTION, TOO_LONG]
    return list(dict.fromkeys([*prompts, *tasks.themes(small=True), *_parts()]))


def _parts() -> dict[str, list[str]]:
    """Return the parts of the embedding of every slot and value: the slot, and the place of the value in it."""
    found: dict[str, list[str]] = {}
    for theme in tasks.themes(small=True).values():
        for slot, values in theme.slots.items():
            about = f"{theme.name} {slot}"
            found.setdefault(slot, [f"the slot {slot}"]).append(about)
            for place, value in enumerate(values):
                found.setdefault(value, []).extend([about, f"possibility {place}", f"the value {value}"])
    return found


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    parts = _parts()
    sum_parts(weight, vocab, lambda word: parts.get(word, []))


STARTER = word_starter(
    ScriptedPlayer(SituationPuzzlesEnv, _begin, SLIPS),
    words,
    max_tokens=256,
    compose=compose_embeddings,
    # In the small set, only a completely right answer is a success.
    defaults={
        "env.puzzles": "small",
        "env.success_threshold": 1.0,
        "max_model_len": 192,
        "max_response_tokens": 8,
    },
)
