"""The warm-start model of SituationPuzzles: its words, its weights before training, and what it is taught.

It is for the set ``small`` in the compact style: four scenes, three things to find out about each, five possibilities
for each of them. A scene, a slot and a value are one token each, and an answer is three values.

The player knows the themes, and asks for one value after the other. It cannot act on hand-written puzzles or those of a
folder: what could be behind them is written nowhere. It answers before it can know, asks again what it knows, and at
times falls into a rut: questions that have nothing to do with the scene, all answered by "unknown". Reinforcement
learning has something to improve, and T3 something to cut.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rl_agents.envs.demonstrations import TAGS, Act, ScriptedPlayer, word_starter
from rl_agents.envs.situation_puzzles.env import NO_QUESTION, TOO_LONG, PuzzleState, SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.tasks import (
    NO,
    SMALL_SLOTS,
    SMALL_THEMES,
    UNKNOWN,
    YES,
    Puzzle,
    Slot,
    Theme,
    themes,
)
from rl_agents.envs.small_model import sum_parts
from rl_agents.envs.stateful import MALFORMED_REASONS
from rl_agents.rewards.wording import stem, stems

if TYPE_CHECKING:
    import torch


Belief = tuple[tuple[str, ...], ...]
"""The values that each slot may still have, in the theme's order."""


def theme_of(puzzle: Puzzle) -> Theme:
    """Return the theme of a generated puzzle.

    Raises:
        ValueError: the puzzle was not generated.
    """
    if not puzzle.slots:
        raise ValueError(f"{puzzle.puzzle_id} has no theme: the scripted players know generated puzzles only")
    return themes()[puzzle.given[0]]


def slots_of(puzzle: Puzzle) -> tuple[Slot, ...]:
    """Return the slots of a generated puzzle with all that they could hold."""
    return theme_of(puzzle).slots[: len(puzzle.slots)]


def belief(state: PuzzleState) -> Belief:
    """Return what the replies to questions about single values leave open."""
    replies = {question: reply.text for asked, reply in state.asked for question in stems(asked)}
    return tuple(_open_values(slot, replies) for slot in slots_of(state.puzzle))


def _open_values(slot: Slot, replies: dict[str, str]) -> tuple[str, ...]:
    said = {value: replies.get(stem(value)) for value in slot.values}
    right = tuple(value for value, reply in said.items() if reply == YES)
    return right[:1] or tuple(value for value, reply in said.items() if reply != NO) or slot.values


def question(value: str) -> str:
    return f"<interact> {value} </interact>"


def answer(values: Belief) -> str:
    """Return the action that answers with the first open value of every slot."""
    return f"<answer> {' '.join(open_values[0] for open_values in values)} </answer>"


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities per turn.

    Attributes:
        premature_answer: of answering while something is open.
        repeat: of asking for a value of the scene at random, known or not.
        enter_rut: of asking for something that belongs to another scene.
        stay_in_rut: of the same after a question that was answered by "unknown".
        hurried: of being told to answer at once, in the words that T3's forced answers use.
    """

    premature_answer: float = 0.06
    repeat: float = 0.06
    enter_rut: float = 0.05
    stay_in_rut: float = 0.8
    hurried: float = 0.02


def _begin(env: SituationPuzzlesEnv, rng: random.Random, habits: Habits) -> Act:
    def act(observation: str, hurried: bool) -> str:
        return answer(belief(env.state)) if hurried else _choose(env.state, rng, habits)

    return act


def _choose(state: PuzzleState, rng: random.Random, habits: Habits) -> str:
    values = belief(state)
    value = next((open_values[0] for open_values in values if len(open_values) > 1), None)
    stuck = bool(state.asked) and state.asked[-1][1].text == UNKNOWN
    if rng.random() < (habits.stay_in_rut if stuck else habits.enter_rut):
        return question(rng.choice(foreign_values(theme_of(state.puzzle).name)))
    if value is None or rng.random() < habits.premature_answer:
        return answer(values)
    if rng.random() < habits.repeat:
        return question(rng.choice([v for slot in slots_of(state.puzzle) for v in slot.values]))
    return question(value)


@cache
def foreign_values(theme: str) -> tuple[str, ...]:
    """Return the values of the other scenes in the small set."""
    others = [other for other in list(themes().values())[:SMALL_THEMES] if other.name != theme]
    own = {value for slot in themes()[theme].slots for value in slot.values}
    found = [value for other in others for slot in other.slots[:SMALL_SLOTS] for value in slot.values]
    return tuple(value for value in found if value not in own)


def small_themes() -> list[Theme]:
    """Return the scenes that the model knows."""
    return list(themes().values())[:SMALL_THEMES]


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    prompts = [":", "yes", "no", "unknown", "not-a-question", "invalid", *MALFORMED_REASONS, NO_QUESTION, TOO_LONG]
    return list(dict.fromkeys([*prompts, *(theme.name for theme in small_themes()), *_parts()]))


def _parts() -> dict[str, list[str]]:
    """Return the parts of every slot's and every value's embedding: what is asked, and which possibility it is."""
    found: dict[str, list[str]] = {}
    for theme in small_themes():
        for slot in theme.slots[:SMALL_SLOTS]:
            about = f"{theme.name} {slot.name}"
            found.setdefault(slot.name, [f"the slot {slot.name}"]).append(about)
            for place, value in enumerate(slot.values):
                found.setdefault(value, []).extend([about, f"possibility {place}", f"the value {value}"])
    return found


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of slots and values; see `sum_parts`."""
    parts = _parts()
    sum_parts(weight, vocab, lambda word: parts.get(word, []))


STARTER = word_starter(
    ScriptedPlayer(SituationPuzzlesEnv, _begin, Habits()),
    words,
    tags=TAGS,
    max_tokens=256,
    compose=compose_embeddings,
    # The small set; only a wholly right answer is a success.
    defaults={
        "env.puzzles": "small",
        "env.success_threshold": 1.0,
        "max_model_len": 192,
        "max_response_tokens": 8,
    },
)
