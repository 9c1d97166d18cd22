"""Generated puzzles: a theme fixes the scene, and one value for each of its slots makes the story behind it.

The themes are our own (``themes.json``): eight scenes with four slots of five values, so 625 stories and four visible
details each. Every value is one word, one sentence of the story, and a few synonyms that the rule judge knows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rl_agents.envs.situation_puzzles.rules import Fact, Puzzle
from rl_agents.rewards.wording import stem

THEMES_FILE = Path(__file__).with_name("themes.json")


@dataclass(frozen=True, slots=True)
class Slot:
    """What is hidden about one side of a story: ``sentences`` holds (value, sentence) pairs."""

    name: str
    sentences: tuple[tuple[str, str], ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The possible values, in the file's order."""
        return tuple(value for value, _ in self.sentences)


@dataclass(frozen=True, slots=True)
class Theme:
    """A scene: ``surface`` has a place for one of the ``given`` details; ``also`` holds (value, synonyms) pairs."""

    name: str
    surface: str
    given: tuple[str, ...]
    slots: tuple[Slot, ...]
    also: tuple[tuple[str, tuple[str, ...]], ...]

    def cues(self, value: str) -> frozenset[str]:
        """Return the words by which the judge knows a value."""
        return frozenset(stem(word) for word in (value, *dict(self.also).get(value, ())))


@cache
def themes() -> dict[str, Theme]:
    """Return the themes by name, in the file's order."""
    stored = json.loads(THEMES_FILE.read_text(encoding="utf-8"))
    return {name: _theme(name, entry) for name, entry in stored.items()}


def _theme(name: str, entry: dict[str, object]) -> Theme:
    slots, also = entry["slots"], entry["also"]
    assert isinstance(slots, dict) and isinstance(also, dict) and isinstance(entry["given"], list)
    return Theme(
        name=name,
        surface=str(entry["surface"]),
        given=tuple(entry["given"]),
        slots=tuple(Slot(slot, tuple(values.items())) for slot, values in slots.items()),
        also=tuple((value, tuple(synonyms)) for value, synonyms in also.items()),
    )


def puzzle_from(theme: Theme, given: int, values: Sequence[str], puzzle_id: str) -> Puzzle:
    """Return the puzzle of ``theme`` in which the first ``len(values)`` slots have these values; the rest are left out.

    Args:
        theme: the scene.
        given: index of the visible detail.
        values: one per slot.
        puzzle_id: the task id.

    Raises:
        ValueError: a value that its slot does not have.
    """
    slots = theme.slots[: len(values)]
    for slot, value in zip(slots, values, strict=True):
        if value not in slot.values:
            raise ValueError(f"theme {theme.name} has no {slot.name} '{value}'")
    chosen = list(zip(slots, values, strict=True))
    facts = [Fact((theme.cues(other),), other == value) for slot, value in chosen for other in slot.values]
    return Puzzle(
        puzzle_id=puzzle_id,
        surface=theme.surface.format(given=theme.given[given]),
        bottom=" ".join(dict(slot.sentences)[value] for slot, value in chosen),
        facts=tuple(facts),
        given=(theme.name, theme.given[given]),
        slots=tuple((slot.name, value) for slot, value in chosen),
    )


def combinations(theme: Theme, slots: int) -> Iterator[tuple[str, ...]]:
    """Yield every choice of values for the first ``slots`` slots."""
    return itertools.product(*(slot.values for slot in theme.slots[:slots]))
