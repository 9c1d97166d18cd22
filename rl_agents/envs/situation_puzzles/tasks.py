"""The puzzles of SituationPuzzles, their train and test sets, and the rule judge.

Ids are ``lighthouse/2/raiders.pigeon.oath.reef`` (theme, visible detail, values), ``lighthouse/raiders.pigeon.oath`` of
the set ``small``, or ``train/0007`` of a folder in AR-Bench's format. A theme (``themes.json``)
is a scene with four slots of five values, and one value for each slot makes a story. A value is one word, one sentence
of the story, and a few synonyms for the rule judge.

The rule judge knows the story as facts with cue words, or as the key questions of AR-Bench's story trees, which the
true story answers with yes. A record of AR-Bench has ``surface``, ``bottom`` and a ``story_tree`` of nodes with
``children`` and, below the root, ``key_question``. No such data are included, because AR-Bench has no license.

Sources: T3 (arXiv 2510.12264), section 3.1 (progress), appendix C.3 (word and character F1) and figure 9 (replies).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import Table, object_of, open_table, text_of
from rl_agents.envs.situation_puzzles import SituationPuzzlesOptions
from rl_agents.envs.task_sets import TaskSets, held_out, shuffled_ids, stored_words, unknown_task
from rl_agents.errors import InputError
from rl_agents.rewards.wording import negated, stem, stems, word_set, words

YES, NO, UNKNOWN = "Yes", "No", "Unknown"
NOT_A_QUESTION = "This is not a question, please propose your next question."

F1_UNITS = ("word", "char")
#: Similarity from which a question counts as a key question.
MATCH = 0.5

#: First words of questions that yes or no cannot answer.
OPEN_QUESTIONS = word_set(
    """
    who whom whose which what when where why how tell explain describe give reveal
    """
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement that is true or false in a story.

    Attributes:
        cues: stems (`stems`). A question is about the fact if it has one of them.
        true: the judge's answer to such a question.
    """

    cues: frozenset[str]
    true: bool


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle.

    Attributes:
        puzzle_id: the task id.
        surface: the scene that the agent reads.
        bottom: the story.
        facts, key_questions: the knowledge of the rule judge; the answers to key questions are yes.
        theme: of generated puzzles, its name.
        slots: of generated puzzles, (name of the slot, hidden value) pairs.
    """

    puzzle_id: str
    surface: str
    bottom: str
    facts: tuple[Fact, ...] = ()
    key_questions: tuple[str, ...] = ()
    theme: str = ""
    slots: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's answer.

    Attributes:
        text: `YES`, `NO`, `UNKNOWN` or `NOT_A_QUESTION`.
        topics: facts or key questions that the question is about. Questions with equal topics are equivalent.
    """

    text: str
    topics: tuple[str, ...] = ()

    @property
    def stalls(self) -> bool:
        """Whether it is no progress by T3's rule (section 3.1): only "Unknown" is."""
        return self.text == UNKNOWN


def rule_reply(puzzle: Puzzle, question: str) -> Reply:
    """Answer ``question`` by the puzzle's facts, or by the most similar key question, or with "Unknown".

    A question about several facts is true if all of them are, so a list of everything gets a "No". A negation inverts
    the answer.
    """
    said = words(question)
    if not said or said[0] in OPEN_QUESTIONS:
        return Reply(NOT_A_QUESTION)
    asked = stems(question)
    touched = [(i, fact) for i, fact in enumerate(puzzle.facts) if asked & fact.cues]
    if touched:
        true = all(fact.true for _, fact in touched)
        return _reply(true, negated(question), [f"fact {i}" for i, _ in touched])
    scored = [(similarity(asked, stems(key)), -i) for i, key in enumerate(puzzle.key_questions)]
    score, place = max(scored, default=(0.0, 0))
    if score < MATCH:
        return Reply(UNKNOWN)
    turned = negated(question) != negated(puzzle.key_questions[-place])
    return _reply(True, turned, [f"key question {-place}"])


def _reply(true: bool, turned: bool, topics: Sequence[str]) -> Reply:
    return Reply(YES if true != turned else NO, tuple(topics))


def similarity(first: frozenset[str], second: frozenset[str]) -> float:
    """Return 2·|A ∩ B| / (|A| + |B|); 0 if both are empty."""
    return 2 * len(first & second) / (len(first) + len(second)) if first or second else 0.0


def f1_score(answer: str, reference: str, unit: str) -> float:
    """F1 = 2·|A ∩ B| / (|A| + |B|) over bags of words, or over bags of their characters.

    Case, punctuation, white space and order do not count (`words`).

    Returns:
        A number in [0, 1]; 0 if a text has no words.

    >>> f1_score("the man hid a key", "A key was hidden.", "word")
    0.4444444444444444
    """
    bags = [Counter(found if unit == "word" else "".join(found)) for found in (words(answer), words(reference))]
    total = sum(bag.total() for bag in bags)
    return 2 * (bags[0] & bags[1]).total() / total if total else 0.0


@dataclass(frozen=True)
class Theme:
    """A scene and its possible stories.

    Attributes:
        surface: with the field ``given`` for a visible detail.
        given: visible details.
        slots: hidden parts: name -> value -> the sentence of the story.
        also: value -> its synonyms.
    """

    name: str
    surface: str
    given: list[str]
    slots: dict[str, dict[str, str]]
    also: dict[str, list[str]]

    def cues(self, value: str) -> frozenset[str]:
        return frozenset(map(stem, (value, *self.also.get(value, ()))))


@cache
def themes(small: bool = False) -> dict[str, Theme]:
    """Return the themes by name; of the small set, the first ones with their first slots."""
    found = {name: Theme(name, **entry) for name, entry in stored_words(__file__, "themes.json").items()}
    if not small:
        return found
    first = itertools.islice(found.values(), SMALL_THEMES)
    return {theme.name: replace(theme, slots=dict(list(theme.slots.items())[:SMALL_SLOTS])) for theme in first}


SPLITS = ("train", "test")
MAX_TEXT = 20_000
MAX_NODES = 1000


def read_split(folder: str, split: str) -> Mapping[str, Puzzle]:
    """Return the puzzles of one split by id, such as ``train/0007`` (the record's place in the file)."""
    try:
        table = open_table(f"{folder}/{split}")
    except InputError as error:
        there = Path(folder).is_dir() or folder.startswith(PREFIX)
        raise InputError(f"env.data={error}" if there else f"env.data={folder}: no such folder") from None
    return _read(table, split, table.version())


@lru_cache(maxsize=8)  # every environment asks; a file that changed is read again
def _read(table: Table, split: str, version: str) -> Mapping[str, Puzzle]:
    found: dict[str, Puzzle] = {}
    for index, row in enumerate(table):
        try:
            found[f"{split}/{index:04d}"] = _puzzle(f"{split}/{index:04d}", row.record())
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from None
    if not found:
        raise InputError(f"{table.name}: no usable puzzle in it")
    return found


def _puzzle(puzzle_id: str, record: Any) -> Puzzle:
    record = object_of(record, "a puzzle")
    surface, bottom = (text_of(record, name, MAX_TEXT) for name in ("surface", "bottom"))
    questions = key_questions(record.get("story_tree"))
    if not questions:
        raise InputError("its story_tree has no key_question")
    return Puzzle(puzzle_id, surface, bottom, key_questions=questions)


def key_questions(tree: Any) -> tuple[str, ...]:
    """Return the key questions of a story tree, each node before its children."""
    found: list[str] = []
    waiting, nodes = [tree], 0
    while waiting:
        node, nodes = waiting.pop(), nodes + 1
        if not isinstance(node, dict) or not isinstance(node.get("children", []), list) or nodes > MAX_NODES:
            raise InputError(f"its 'story_tree' is not a tree of at most {MAX_NODES} nodes with 'children'")
        if node.get("key_question"):
            found.append(text_of(node, "key_question", MAX_TEXT))
        waiting.extend(reversed(node.get("children", [])))
    return tuple(found)


#: Stories of a set, and those of them for tests; seed of the draw.
STORIES, TESTS = 500, 100
SEED = "situation_puzzles-2025"
SMALL_THEMES, SMALL_SLOTS = 4, 3


def task_ids(split: str, options: SituationPuzzlesOptions) -> list[str]:
    return list(read_split(options.data, split) if options.data else _splits(options.puzzles)[split])


@cache
def _splits(puzzles: str) -> TaskSets:
    seed = f"{SEED}-{puzzles}"
    return held_out(sorted(shuffled_ids(_stories(puzzles), seed)[:STORIES]), seed, TESTS)


def _stories(puzzles: str) -> Iterator[str]:
    small = puzzles == "small"
    for theme in themes(small).values():
        details = [""] if small else [f"{number}/" for number in range(len(theme.given))]
        for story in map(".".join, itertools.product(*theme.slots.values())):
            yield from (f"{theme.name}/{detail}{story}" for detail in details)


def find_puzzle(task_id: str, data: str = "") -> Puzzle:
    """Return the puzzle ``task_id`` of the folder ``data`` if there is one, else one of ours."""
    if data:
        split = task_id.partition("/")[0]
        known = read_split(data, split if split in SPLITS else SPLITS[0])
        if task_id not in known:
            raise unknown_task("situation_puzzles", task_id, known, next(iter(known)))
        return known[task_id]
    found = _generated(task_id)
    if found is None:
        near = [name for kind in ("small", "cases") for split in SPLITS for name in _splits(kind)[split]]
        raise unknown_task("situation_puzzles", task_id, near, near[0])
    return found


def _generated(task_id: str) -> Puzzle | None:
    name, _, rest = task_id.partition("/")
    given, detailed, values = rest.rpartition("/")
    theme = themes(not detailed).get(name)
    if theme is None or (detailed and given not in map(str, range(len(theme.given)))):
        return None
    chosen = tuple(zip(theme.slots, values.split("."), strict=False))
    if values.count(".") + 1 != len(theme.slots) or not all(value in theme.slots[slot] for slot, value in chosen):
        return None
    return Puzzle(
        puzzle_id=task_id,
        surface=theme.surface.format(given=theme.given[int(given or 0)]),
        bottom=" ".join(theme.slots[slot][value] for slot, value in chosen),
        facts=tuple(Fact(theme.cues(one), one == value) for slot, value in chosen for one in theme.slots[slot]),
        theme=theme.name,
        slots=chosen,
    )
