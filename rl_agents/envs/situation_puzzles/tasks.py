"""The task sets of SituationPuzzles, and how a puzzle is found by its id.

- ``cases`` (default): 500 of the stories that our themes can tell, 400 train and 100 test, AR-Bench's sizes. Ids read
  ``lighthouse/2/raiders.pigeon.oath.reef``: theme, visible detail, values.
- ``small``: all 500 stories of four themes with their first three slots, 400 and 100, for the warm-start model. Ids
  read ``lighthouse/raiders.pigeon.oath``.
- ``demo``: twelve hand-written puzzles, 8 and 4, for people. Ids read ``demo/anniversary``.
- with ``env.data``: a folder with ``train.json`` and ``test.json`` in AR-Bench's format. Ids read ``train/0007``.

The splits of the first two are frozen in ``panel.json`` and ``panel_small.json``.

A theme fixes the scene, and one value for each of its slots makes the story behind it. The themes are our own
(``themes.json``): eight scenes with four slots of five values, so 625 stories and four visible details each. Every
value is one word, one sentence of the story, and a few synonyms that the rule judge knows.

A record of AR-Bench's has ``surface`` and ``bottom`` (text) and a ``story_tree`` of nodes with ``children`` and, below
the root, ``key_question``. We ship no such data: AR-Bench has no license.

A puzzle has a surface, which the agent reads, and a bottom, the true story. The rule judge knows the story as facts
with cue words, or as the key questions of AR-Bench's story trees, all of which a true story answers with yes. It reads
words and no meaning, and the same question always gets the same answer.

Sources: T3 (arXiv 2510.12264), section 3.1 (progress), appendix C.3 (word and character F1) and figure 9 (replies).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import Table, open_table
from rl_agents.envs.panels import check_split, panel_ids, unknown_task
from rl_agents.envs.situation_puzzles import SituationPuzzlesOptions
from rl_agents.errors import InputError, unknown
from rl_agents.rewards.wording import negated, stem, stems, word_set, words

YES, NO, UNKNOWN = "Yes", "No", "Unknown"
NOT_A_QUESTION = "This is not a question, please propose your next question."

F1_UNITS = ("word", "char")
#: Similarity from which a question counts as a key question.
MATCH = 0.5

#: A sentence that begins like this cannot be answered with yes or no.
OPEN_QUESTIONS = word_set(
    """
    who whom whose which what when where why how tell explain describe give reveal
    """
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is true or false in a story.

    Attributes:
        cues: a question is about the fact when it has a word of every group; words as `stems` gives them.
        true: the judge's answer to such a question.
    """

    cues: tuple[frozenset[str], ...]
    true: bool


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle.

    Attributes:
        puzzle_id: the task id.
        surface: the scene that the agent reads.
        bottom: the story behind it.
        facts: what the rule judge knows.
        key_questions: what else it knows: questions whose answer is yes.
        given: for generated puzzles, theme and visible detail, as the compact style shows them.
        slots: for generated puzzles, (what is asked, the hidden value) pairs.
    """

    puzzle_id: str
    surface: str
    bottom: str
    facts: tuple[Fact, ...] = ()
    key_questions: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    slots: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's answer.

    Attributes:
        text: `YES`, `NO`, `UNKNOWN` or `NOT_A_QUESTION`.
        topics: what the judge saw in the question; two questions with the same topics ask the same thing.
    """

    text: str
    topics: tuple[str, ...] = ()

    @property
    def stalls(self) -> bool:
        """T3's rule (section 3.1): "Unknown" alone is no progress; "This is not a question" is a malformed turn."""
        return self.text == UNKNOWN


def is_yes_no_question(text: str) -> bool:
    """Say whether a text could be answered with yes or no: it has words and does not begin with one like "why"."""
    found = words(text)
    return bool(found) and found[0] not in OPEN_QUESTIONS


def rule_reply(puzzle: Puzzle, question: str) -> Reply:
    """Answer ``question`` by the puzzle's facts, else by the key question most like it, else with "Unknown".

    A question about several facts is true when all of them are, so listing everything gets a "No". A negation turns the
    answer around.
    """
    if not is_yes_no_question(question):
        return Reply(NOT_A_QUESTION)
    asked = stems(question)
    touched = [(i, fact) for i, fact in enumerate(puzzle.facts) if all(asked & group for group in fact.cues)]
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
    """Return 2·|A ∩ B| / (|A| + |B|); 0 when both are empty."""
    return 2 * len(first & second) / (len(first) + len(second)) if first or second else 0.0


def f1_score(answer: str, reference: str, unit: str) -> float:
    """F1 = 2·|A ∩ B| / (|A| + |B|) over bags of words, or over bags of their characters.

    Both texts are read by `words`: letters' case, punctuation and white space do not count, nor does order.

    Returns:
        A number in [0, 1]; 0 when either text has no words.

    >>> f1_score("the man hid a key", "A key was hidden.", "word")
    0.4444444444444444
    """
    bags = [Counter(found if unit == "word" else "".join(found)) for found in (words(answer), words(reference))]
    total = sum(bag.total() for bag in bags)
    return 2 * (bags[0] & bags[1]).total() / total if total else 0.0


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


def _theme(name: str, entry: Mapping[str, Any]) -> Theme:
    return Theme(
        name=name,
        surface=entry["surface"],
        given=tuple(entry["given"]),
        slots=tuple(Slot(slot, tuple(values.items())) for slot, values in entry["slots"].items()),
        also=tuple((value, tuple(synonyms)) for value, synonyms in entry["also"].items()),
    )


def puzzle_from(theme: Theme, given: int, values: Sequence[str], puzzle_id: str) -> Puzzle:
    """Return the puzzle of ``theme`` in which the first ``len(values)`` slots have these values; the rest are excluded.

    Args:
        given: index of the visible detail.

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


SPLITS = ("train", "test")
MAX_TEXT = 20_000
MAX_NODES = 1000


def read_split(folder: str, split: str) -> Mapping[str, Puzzle]:
    """Return the puzzles of one split by id, such as ``train/0007``: the record's place in the file.

    Raises:
        InputError: no such folder or split, a file or a record that cannot be used, or an empty file.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
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
    if not isinstance(record, dict):
        raise InputError(f"is a {type(record).__name__}, not an object")
    surface, bottom = _text(record, "surface"), _text(record, "bottom")
    questions = key_questions(record.get("story_tree"))
    if not questions:
        raise InputError("its story_tree has no key_question")
    return Puzzle(puzzle_id, surface, bottom, key_questions=questions)


def _text(record: Mapping[str, Any], key: str) -> str:
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TEXT:
        raise InputError(f"'{key}' is no text of 1 to {MAX_TEXT} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"'{key}' is no valid Unicode") from None
    return value


def key_questions(tree: Any) -> tuple[str, ...]:
    """Return the key questions of a story tree, each node before its children.

    Raises:
        InputError: it is no tree of objects with lists of ``children``, or has more than `MAX_NODES` nodes.
    """
    found: list[str] = []
    waiting, nodes = [tree], 0
    while waiting:
        node, nodes = waiting.pop(), nodes + 1
        if not isinstance(node, dict) or not isinstance(node.get("children", []), list) or nodes > MAX_NODES:
            raise InputError(f"its 'story_tree' is no tree of at most {MAX_NODES} nodes with 'children'")
        if node.get("key_question"):
            found.append(_text(node, "key_question"))
        waiting.extend(reversed(node.get("children", [])))
    return tuple(found)


PANEL_FILES = {name: Path(__file__).with_name(file) for name, file in
               (("cases", "panel.json"), ("small", "panel_small.json"))}  # fmt: skip
DEMO_FILE = Path(__file__).with_name("demo.json")
DEMO_TEST = 4
SMALL_THEMES, SMALL_SLOTS = 4, 3


def task_ids(split: str, options: SituationPuzzlesOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of a puzzle set or of a folder.

    Raises:
        InputError: unreadable folder, bad records in it.
    """
    return list(read_split(options.data, split)) if options.data else set_ids(options.puzzles, split)


def set_ids(puzzles: str, split: str) -> list[str]:
    """Return the ``train`` or ``test`` ids of ``cases``, ``small`` or ``demo``."""
    if puzzles != "demo":
        return panel_ids(PANEL_FILES[puzzles], split)
    ids = list(demo_puzzles())
    check_split(split, {"train": (), "test": ()})
    return ids[:-DEMO_TEST] if split == "train" else ids[-DEMO_TEST:]


def find_puzzle(task_id: str, data: str = "") -> Puzzle:
    """Return the puzzle called ``task_id``: of the folder ``data`` when there is one, else one of ours.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    if data:
        split = task_id.partition("/")[0]
        known = read_split(data, split if split in SPLITS else SPLITS[0])
        if task_id not in known:
            raise unknown_task("situation_puzzles", task_id, known, next(iter(known)))
        return known[task_id]
    found = demo_puzzles().get(task_id) or _generated(task_id)
    if found is None:
        near = [name for kind in ("small", "cases") for split in ("train", "test") for name in set_ids(kind, split)]
        raise unknown_task("situation_puzzles", task_id, [*demo_puzzles(), *near], near[0])
    return found


def _generated(task_id: str) -> Puzzle | None:
    name, _, rest = task_id.partition("/")
    given, detailed, values = rest.rpartition("/")
    theme = themes().get(name)
    if theme is None or (detailed and given not in map(str, range(len(theme.given)))):
        return None
    chosen = values.split(".")
    if len(chosen) != (len(theme.slots) if detailed else SMALL_SLOTS):
        return None
    try:
        return puzzle_from(theme, int(given or 0), chosen, task_id)
    except ValueError:
        return None


@cache
def demo_puzzles() -> dict[str, Puzzle]:
    """Return the hand-written puzzles by id, in the file's order."""
    stored = json.loads(DEMO_FILE.read_text(encoding="utf-8"))
    found = {}
    for name, entry in stored.items():
        facts = [_fact(cues, true) for true in (True, False) for cues in entry["yes" if true else "no"]]
        puzzle_id = f"demo/{name}"
        found[puzzle_id] = Puzzle(puzzle_id, entry["surface"], entry["bottom"], tuple(facts))
    return found


def _fact(cues: str, true: bool) -> Fact:
    """Read ``"deaf hear/sound"``: a question is about the fact when it has a word of every group between slashes."""
    return Fact(tuple(frozenset(map(stem, group.split())) for group in cues.split("/")), true)
