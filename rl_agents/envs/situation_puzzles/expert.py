"""A scripted player of the generated puzzles: it knows the themes, and asks for one value after the other.

The expert is a function of the state, so it can also take over in the middle of an episode. It cannot play the
hand-written puzzles or those of a folder: what could be behind them stands nowhere.
"""

from __future__ import annotations

from rl_agents.envs.situation_puzzles.env import PuzzleState
from rl_agents.envs.situation_puzzles.rules import NO, YES, Puzzle
from rl_agents.envs.situation_puzzles.spec import SPEC
from rl_agents.envs.situation_puzzles.themes import Slot, Theme, themes
from rl_agents.rewards.wording import stem, stems

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


def question(value: str, style: str) -> str:
    """Return the action that asks for one value."""
    text = value if style == "compact" else f"Does it have to do with {value}?"
    return f"<interact> {text} </interact>"


def answer(state: PuzzleState, values: Belief, style: str) -> str:
    """Return the action that answers with the first open value of every slot."""
    chosen = [open_values[0] for open_values in values]
    if style != "compact":
        slots = slots_of(state.puzzle)
        chosen = [dict(slot.sentences)[value] for slot, value in zip(slots, chosen, strict=True)]
    return f"<answer> {' '.join(chosen)} </answer>"


def next_value(values: Belief) -> str | None:
    """Return the first open value of the first slot that has several; None when all is known."""
    return next((open_values[0] for open_values in values if len(open_values) > 1), None)


def expert_action(state: PuzzleState, style: str = "paper", max_turns: int = SPEC.max_turns) -> str:
    """Return the expert's response in ``state``; on the last turn it answers with what it has."""
    values = belief(state)
    value = next_value(values)
    if value is None or state.turns >= max_turns - 1:
        return answer(state, values, style)
    return question(value, style)
