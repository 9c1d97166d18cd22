"""A rule that compares words: is a long answer grounded in its sources, and does it state the required points?

Answers, sources and points are split into sentences. A sentence c follows from a sentence s if

    names(c) is part of words(s),   |words(c) & words(s)| >= 0.75 |words(c)|,   and both or neither are negated,

where words are stems without function words, and names are words with a capital or a digit. So a sentence must name its
subject: "it" refers to nothing. The rule misses paraphrases, and it accepts a wrong common word in a long sentence. A
served judge (`rl_agents.rewards.judges.OpenAIJudge`) understands meaning.

A text that lists everything states every point, so length counts as well (`conciseness`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_agents.rewards.wording import FUNCTION_WORDS, cased_words, negated, stem, stems, word_set, words

SUPPORT = 0.75
#: Largest ratio of the content words of an answer to those of its points.
SURPLUS = 1.25
#: Sentences of one text. The rest is one last sentence, which follows from nothing.
MAX_SENTENCES = 500

_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
#: Words that begin sentences with a capital but are not names; those in -ly are not listed.
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
        """Read a sentence. The words of its ``heading`` belong to it."""
        return cls(stems(f"{heading} {sentence}"), _names(sentence), negated(sentence))

    def follows_from(self, source: Statement) -> bool:
        """Return whether this follows from ``source``; see the module."""
        shared = len(self.stems & source.stems)
        return self.negated == source.negated and self.names <= source.stems and shared >= SUPPORT * len(self.stems)


def sentences(text: str) -> list[str]:
    """Split a text at line breaks, and after full stops, exclamation marks and question marks before a blank.

    >>> sentences("It is 3.5 m long. Is it? Yes!")
    ['It is 3.5 m long.', 'Is it?', 'Yes!']
    """
    parts = [part.strip() for part in _END.split(text, maxsplit=MAX_SENTENCES) if part.strip()]
    return [part for part in parts if any(map(str.isalnum, part))]


def grounded_share(answer: str, evidence: Iterable[str]) -> float:
    """Return the share of an answer's sentences that follow from a sentence of the evidence; 0 for an empty answer.

    Args:
        evidence: texts. The first of several lines is a heading, which belongs to each sentence of the text.
    """
    claims = _statements(answer)
    sources = [source for text in evidence for source in _sources(text)]
    return _share(claims, sources)


def stated_share(answer: str, points: Sequence[str]) -> float:
    """Return the share of the sentences ``points`` that follow from a sentence of the answer; 0 without points."""
    return _share([Statement.of(point) for point in points], _statements(answer))


def conciseness(answer: str, points: Sequence[str]) -> float:
    """Return min(1, 1.25·n(points)/n(answer)), n the number of content words; 0 for an answer without any.

    So neither a copy of all passages nor a list of all names is a good answer.
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
    """Return the statements of a text. A sentence with only function words states nothing."""
    found = (Statement.of(sentence) for sentence in sentences(text))
    return [statement for statement in found if statement.stems]


def _sources(text: str) -> list[Statement]:
    heading, line_break, rest = text.partition("\n")
    return [Statement.of(part, heading) for part in sentences(rest)] if line_break else _statements(text)


def _names(sentence: str) -> frozenset[str]:
    """Return the stems of words with a capital or a digit, unless it is a first word that often has a capital."""
    found = []
    for place, word in enumerate(cased_words(sentence)):
        lower = word.lower()
        opens = place == 0 and (lower in _OPENERS or lower.endswith("ly"))
        named = word[0].isupper() or any(map(str.isdigit, word))
        if named and not opens and lower not in FUNCTION_WORDS:
            found.append(stem(lower))
    return frozenset(found)
