"""The compact style: what a small starter model reads and writes, in words of one token each.

``mug 1`` is the word ``mug-1``. A text keeps the names of things and the few words that say what happened:

    You arrive at fridge 1. The fridge 1 is closed.        fridge-1 closed
    On the desk 1, you see a cd 1, and a pen 2.            desk-1 cd-1 pen-2
    You pick up the mug 1 from the desk 1.                 pick mug-1 desk-1

A command is its verb and its first thing, ``take mug-1`` for ``take mug 1 from desk 1``: the agent stands at the place
that the second thing would name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rl_agents.envs.alfworld.families import read_goal
from rl_agents.errors import InputError

#: Words of the games' texts that say what happened; the others are left out.
KEPT_WORDS = (
    "empty", "nothing", "facing", "closed", "open", "close", "pick", "move", "clean", "heat", "cool", "hot", "cold",
    "turn", "sliced", "carrying", "not", "special",
)  # fmt: skip
#: Verbs of commands; the first word of ``go to`` stands for both.
VERBS = (
    "go", "open", "close", "take", "move", "clean", "heat", "cool", "use", "slice", "examine", "look", "inventory",
    "help",
)  # fmt: skip
#: Said of a text without any of these words.
SILENCE = "nothing"

_NAME = re.compile(r"\b([a-z]+) (\d+)\b")
_WORD = re.compile(r"[a-z]+-\d+|[a-z]+")
_COMPACT_NAME = re.compile(r"\b([a-z]+)-(\d+)\b")


@lru_cache(maxsize=4096)  # the same few texts come again and again
def compact_text(text: str) -> str:
    """Return what a text of the game says, in compact words; never empty."""
    text = text.lower().replace(" next to it, you see nothing", "").replace("you see nothing", "empty")
    kept: list[str] = []
    for word in _WORD.findall(_NAME.sub(r"\1-\2", text)):
        if ("-" in word or word in KEPT_WORDS) and word not in kept[-1:]:
            kept.append(word)
    return " ".join(kept) or SILENCE


def compact_goal(sentence: str) -> str:
    """Return the task: family, object and target, such as ``heat potato sinkbasin``."""
    try:
        goal = read_goal(f"Your task is to: {sentence}")
    except InputError:
        return " ".join(_WORD.findall(sentence.lower()))
    return f"{goal.family.short} {goal.object_type} {goal.target_type}"


@lru_cache(maxsize=4096)
def compact_command(command: str) -> str:
    """Return the short form of a command: its verb and its first thing."""
    words = _NAME.sub(r"\1-\2", command).split()
    things = [word for word in words if _COMPACT_NAME.fullmatch(word)]
    return " ".join([words[0], *things[:1]])


def full_command(text: str, admissible: Sequence[str]) -> str | None:
    """Return the first admissible command whose short form is ``text``, or None."""
    text = " ".join(text.split())
    return next((command for command in admissible if compact_command(command) == text), None)
