"""Exact match and F1 of short answers, as HotpotQA's official evaluation computes them.

Both compare normalized texts: lower case, ASCII punctuation removed, the articles a, an and the removed, white space
folded. 2WikiMultiHopQA, MuSiQue and the open-domain sets (NQ, TriviaQA, PopQA, Bamboogle) are scored alike.

Source: Yang et al. (2018), HotpotQA, section 5.1; SQuAD's normalization (Rajpurkar et al. 2016, section 6.1).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Answers that share no credit with others: a longer text that holds the word is not half right.
_ALL_OR_NOTHING = frozenset(("yes", "no", "noanswer"))


def normalize(answer: str) -> str:
    """Return the text that is compared.

    >>> normalize("The  Beatles' album, Help!")
    'beatles album help'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """EM = 1 if the normalized answer equals a normalized reference, else 0; an empty answer equals none.

    A reference of articles and punctuation alone, of which normalizing leaves nothing, has to be said as it is written,
    capitals and blanks aside. The official script gives it to any answer of which nothing is left either.
    """
    return float(any(_equal(answer, reference) for reference in references))


def _equal(answer: str, reference: str) -> bool:
    said, wanted = normalize(answer), normalize(reference)
    if said or wanted:
        return said == wanted
    return bool(answer.strip()) and answer.lower().split() == reference.lower().split()


def f1(answer: str, references: Sequence[str]) -> float:
    """F1 = 2PR/(P + R) over the words of the normalized texts, the best over the references; in [0, 1].

    P is the share of the answer's words that the reference has, R the share of the reference's words that the answer
    has, repetitions counted. If one text is yes, no or noanswer, anything but equality is 0.
    """
    return max((_f1(normalize(answer), normalize(reference)) for reference in references), default=0.0)


def _f1(answer: str, reference: str) -> float:
    if answer != reference and (answer in _ALL_OR_NOTHING or reference in _ALL_OR_NOTHING):
        return 0.0
    said, wanted = answer.split(), reference.split()
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2.0 * common / (len(said) + len(wanted)) if common else 0.0
