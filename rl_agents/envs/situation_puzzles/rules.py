"""The rules of SituationPuzzles: a puzzle, what its rule judge answers, and how an explanation is scored.

A puzzle has a surface, which the agent reads, and a bottom, the true story. The rule judge knows the story as facts
with cue words, or as the key questions of AR-Bench's story trees, all of which a true story answers with yes. It reads
words and no meaning, and the same question always gets the same answer.

Sources: T3 (arXiv 2510.12264), section 3.1 (progress), appendix C.3 (word and character F1) and figure 9 (replies).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_agents.rewards.wording import negated, stems, word_set, words

YES, NO, UNKNOWN = "Yes", "No", "Unknown"
NOT_A_QUESTION = "This is not a question, please propose your next question."

F1_UNITS = ("word", "char")

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
    def informative(self) -> bool:
        """Whether the judge knew: yes or no."""
        return self.text in (YES, NO)

    @property
    def stalls(self) -> bool:
        """T3's rule (section 3.1): "Unknown" alone is no progress; "This is not a question" is a malformed turn."""
        return self.text == UNKNOWN


def is_yes_no_question(text: str) -> bool:
    """Say whether a text could be answered with yes or no: it has words and does not begin with one like "why"."""
    found = words(text)
    return bool(found) and found[0] not in OPEN_QUESTIONS


def rule_reply(puzzle: Puzzle, question: str, match: float) -> Reply:
    """Answer ``question`` by the puzzle's facts, else by the key question most like it, else with "Unknown".

    A question about several facts is true when all of them are, so listing everything gets a "No". A negation turns the
    answer around.

    Args:
        puzzle: the puzzle.
        question: the agent's question.
        match: how alike a question must be to a key question: `similarity` in (0, 1].
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
    if score < match:
        return Reply(UNKNOWN)
    turned = negated(question) != negated(puzzle.key_questions[-place])
    return _reply(True, turned, [f"key question {-place}"])


def _reply(true: bool, turned: bool, topics: Sequence[str]) -> Reply:
    return Reply(YES if true != turned else NO, tuple(topics))


def similarity(first: frozenset[str], second: frozenset[str]) -> float:
    """Return 2·|A ∩ B| / (|A| + |B|); 0 when both are empty."""
    return 2 * len(first & second) / (len(first) + len(second)) if first or second else 0.0


def is_new(reply: Reply, question: str, earlier: Iterable[tuple[str, Reply]]) -> bool:
    """Say whether a question is about something that no earlier one was about: other topics, or other words."""
    if reply.topics:
        known = {topic for _, past in earlier for topic in past.topics}
        return not known.issuperset(reply.topics)
    return stems(question) not in {stems(past) for past, _ in earlier}


def f1_score(answer: str, reference: str, unit: str) -> float:
    """F1 = 2·|A ∩ B| / (|A| + |B|) over bags of words, or over bags of their characters.

    Both texts are read by `words`: letters' case, punctuation and white space do not count, nor does order.

    Args:
        answer: the agent's explanation.
        reference: the bottom story.
        unit: ``word`` or ``char``.

    Returns:
        A number in [0, 1]; 0 when either text has no words.

    >>> f1_score("the man hid a key", "A key was hidden.", "word")
    0.4444444444444444
    """
    if unit not in F1_UNITS:
        raise ValueError(f"unknown unit '{unit}': valid: {', '.join(F1_UNITS)}")
    bags = [Counter(found if unit == "word" else "".join(found)) for found in (words(answer), words(reference))]
    total = sum(bag.total() for bag in bags)
    return 2 * (bags[0] & bags[1]).total() / total if total else 0.0
