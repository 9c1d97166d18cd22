"""Whether a long answer says what its sources say, and the points that it should: a rule that reads words.

Answers, sources and points are taken apart into sentences. A sentence c follows from a sentence s when

    names(c) is part of words(s),   |words(c) & words(s)| >= 0.75 |words(c)|,   and both negate or neither does,

where words are stems without function words, and names are words with a capital or a digit. So every sentence has to
stand alone: one that says "it" says it about nothing. A paraphrase is missed, and a wrong common word in a long
sentence passes; a served judge (`rl_agents.rewards.judge.OpenAIJudge`) reads meaning.

A text that says everything states every point, so its length counts as well (`conciseness`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_agents.rewards.wording import FUNCTION_WORDS, cased_words, negated, stem, stems, word_set, words

SUPPORT = 0.75
#: Content words of an answer, over those of its points, from which on there are too many.
SURPLUS = 1.25
#: Sentences of one text that are read; more than that are one last sentence, which follows from nothing.
MAX_SENTENCES = 500

_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
#: Words that begin sentences with a capital and are no names; those in -ly are not listed.
_OPENERS = word_set(
    """
    according although because besides first furthermore hence however meanwhile moreover next now once overall second
    since still then therefore third though thus together until while yes yet
    """
)


@dataclass(frozen=True, slots=True)
class Statement:
    stems: frozenset[str]
    names: frozenset[str]
    negated: bool

    @classmethod
    def of(cls, sentence: str, heading: str = "") -> Statement:
        """Read a sentence; the words of its ``heading`` count as its own."""
        return cls(stems(f"{heading} {sentence}"), _names(sentence), negated(sentence))

    def follows_from(self, source: Statement) -> bool:
        """Say whether ``source`` says this; see the module."""
        shared = len(self.stems & source.stems)
        return self.negated == source.negated and self.names <= source.stems and shared >= SUPPORT * len(self.stems)


def sentences(text: str) -> list[str]:
    """Split a text after full stops, exclamation and question marks that a blank follows, and at line breaks.

    >>> sentences("It is 3.5 m long. Is it? Yes!")
    ['It is 3.5 m long.', 'Is it?', 'Yes!']
    """
    parts = [part.strip() for part in _END.split(text, maxsplit=MAX_SENTENCES) if part.strip()]
    return [part for part in parts if any(map(str.isalnum, part))]


def grounded_share(answer: str, evidence: Iterable[str]) -> float:
    """Return the share of an answer's sentences that follow from a sentence of the evidence; 0 for an empty answer.

    Args:
        evidence: texts. Of one with line breaks the first line is its heading: it belongs to each of its sentences.
    """
    claims = _statements(answer)
    sources = [source for text in evidence for source in _sources(text)]
    return _share(claims, sources)


def stated_share(answer: str, points: Sequence[str]) -> float:
    """Return the share of ``points``, sentences all, that follow from a sentence of the answer; 0 without points."""
    return _share([Statement.of(point) for point in points], _statements(answer))


def conciseness(answer: str, points: Sequence[str]) -> float:
    """Return min(1, 1.25·n(points)/n(answer)), n the number of words that are no function words; 0 for no such word.

    It is what makes pasting all that was found, or a list of all names that there are, no answer.
    """
    said, wanted = _content(answer), sum(map(_content, points))
    return min(1.0, SURPLUS * wanted / said) if said else 0.0


def _content(text: str) -> int:
    return sum(word not in FUNCTION_WORDS for word in words(text))


def _share(claims: Sequence[Statement], sources: Sequence[Statement]) -> float:
    if not claims:
        return 0.0
    return sum(any(claim.follows_from(source) for source in sources) for claim in claims) / len(claims)


def _statements(text: str) -> list[Statement]:
    """Return the statements of a text; a sentence of function words alone states nothing."""
    found = (Statement.of(sentence) for sentence in sentences(text))
    return [statement for statement in found if statement.stems]


def _sources(text: str) -> list[Statement]:
    heading, line_break, rest = text.partition("\n")
    return [Statement.of(part, heading) for part in sentences(rest)] if line_break else _statements(text)


def _names(sentence: str) -> frozenset[str]:
    """Return the stems of words with a capital or a digit. The first word may only be a word with a capital."""
    found = []
    for place, word in enumerate(cased_words(sentence)):
        lower = word.lower()
        opens = place == 0 and (lower in _OPENERS or lower.endswith("ly"))
        named = word[0].isupper() or any(map(str.isdigit, word))
        if named and not opens and lower not in FUNCTION_WORDS:
            found.append(stem(lower))
    return frozenset(found)
