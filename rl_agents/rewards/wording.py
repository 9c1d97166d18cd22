"""Words of texts, for rules that compare words: stems, function words, negations."""

from __future__ import annotations

import re
import string

_WORD = re.compile(r"[^\W_]+")
_APOSTROPHE = re.compile(r"['\u2019]")  # straight and typographic


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words without content.
FUNCTION_WORDS = word_set(
    """
    a an the this that these those there here it its he him his she her hers they them their i me my you
    your we us our who whom whose which what when where why how is are was were be been being am do does
    did done have has had having will would can could shall should may might must and or but if then
    than as of in on at to for from by with about into onto over under out up down off so too very just
    also some any each every all both either neither one
    """
)
NEGATIONS = word_set(
    """
    not no never nobody nothing without cannot
    """
)


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation.

    >>> words("Didn't he -- at 5 o'clock?")
    ['didnt', 'he', 'at', '5', 'oclock']
    """
    return cased_words(text.lower())


def cased_words(text: str) -> list[str]:
    """Return the words of a text with their capitals, without punctuation."""
    return _WORD.findall(_APOSTROPHE.sub("", text))


def stem(word: str) -> str:
    """Remove the ending of a plural or a third person.

    >>> [stem(word) for word in ("raiders", "glass", "is", "wolves", "parties")]
    ['raider', 'glass', 'is', 'wolve', 'party']
    """
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def stems(text: str) -> frozenset[str]:
    """Return the stems of all words except function words and negations."""
    return frozenset(stem(word) for word in words(text) if word not in FUNCTION_WORDS and not _negates(word))


def negated(text: str) -> bool:
    """Return whether the number of negating words is odd.

    >>> negated("Wasn't he alone?"), negated("Was nobody not alone?")
    (True, False)
    """
    return sum(map(_negates, words(text))) % 2 == 1


def _negates(word: str) -> bool:
    return word in NEGATIONS or (word.endswith("nt") and word[:-2] in FUNCTION_WORDS)


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """Return a short answer for comparisons: lower case, without ASCII punctuation and articles, blanks folded.

    Source: SQuAD's normalization (Rajpurkar et al. 2016, section 6.1), which HotpotQA's evaluation uses too.

    >>> normalized("The  Beatles' album, Help!")
    'beatles album help'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())
