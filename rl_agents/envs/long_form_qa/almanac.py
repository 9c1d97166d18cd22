"""The generated documents: an almanac of 48 invented towns, three articles each, and questions about them.

Every fact is a pure function of town and aspect (through sha256, so of no library's generator). An article states two
facts and mentions another town in passing. There are two renderings: sentences, and for small models three words a
fact, ``velmora founder tarn``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from rl_agents.envs.panels import shuffled_ids, stored_words
from rl_agents.retrieval.passages import Passage

SEED = "almanac-2026"
_STORED = stored_words(__file__, "almanac.json")
TOWNS = tuple(first + last for first, last in product(_STORED["beginnings"], _STORED["endings"]))


@dataclass(frozen=True, slots=True)
class Aspect:
    """Something that every town has.

    Attributes:
        name: one word, for the compact rendering.
        question, statement: with ``{town}`` and, in the statement, ``{value}``.
        values: what it can be; the last word in lower case is the value of the compact rendering.
    """

    name: str
    question: str
    statement: str
    values: tuple[str, ...]


def _aspects(stored: list[dict[str, Any]]) -> tuple[Aspect, ...]:
    return tuple(Aspect(**{**aspect, "values": tuple(aspect["values"])}) for aspect in stored)


#: Articles by name, and the aspects that they tell of.
ARTICLES = tuple((article["name"], _aspects(article["aspects"])) for article in _STORED["articles"])
ASPECTS = tuple(aspect for _, aspects in ARTICLES for aspect in aspects)
_TITLES = {article["name"]: article["title"] for article in _STORED["articles"]}
_ASIDES = {article["name"]: article["aside"] for article in _STORED["articles"]}


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a question asks for."""

    town: str
    aspect: Aspect

    @property
    def value(self) -> str:
        return _value(self.town, self.aspect.name)

    @property
    def question(self) -> str:
        return self.aspect.question.format(town=self.town)

    @property
    def point(self) -> str:
        return self.aspect.statement.format(town=self.town, value=self.value)

    @property
    def words(self) -> tuple[str, str, str]:
        """Return town, aspect and value as the compact rendering has them."""
        return self.town.lower(), self.aspect.name, value_word(self.aspect, self.value)


@cache
def _value(town: str, aspect: str) -> str:
    values = next(a.values for a in ASPECTS if a.name == aspect)
    return values[int(hashlib.sha256(f"{SEED}/{town}/{aspect}".encode()).hexdigest(), 16) % len(values)]


def value_word(aspect: Aspect, value: str) -> str:
    """Return the one word that names a value: a family name, what a fair is called after, or the value itself."""
    parts = value.lower().split()
    return parts[0] if aspect.name == "fair" else parts[-1]


def passages(style: str) -> Iterator[Passage]:
    """Yield all articles, in the style ``paper`` (sentences) or ``compact`` (three words a fact, no title)."""
    for town in TOWNS:
        for name, aspects in ARTICLES:
            wishes = [Wish(town, aspect) for aspect in aspects]
            if style == "compact":
                yield Passage(f"{town}/{name}", "", compact_text(wishes))
                continue
            other = shuffled_ids((t for t in TOWNS if t != town), f"{SEED}/{town}/{name}")[0]
            text = " ".join([*(wish.point for wish in wishes), _ASIDES[name].format(other=other)])
            yield Passage(f"{town}/{name}", _TITLES[name].format(town=town), text)


def compact_text(wishes: Sequence[Wish]) -> str:
    """State wishes in three words each."""
    return " ".join(" ".join([*wish.words, "."]) for wish in wishes)


def draw_wishes(seed: str) -> tuple[Wish, ...]:
    """Draw two to four different wishes about one or two towns, town by town."""
    digest = hashlib.sha256(seed.encode()).digest()
    towns = shuffled_ids(TOWNS, seed)[: 1 + digest[0] % 2]
    pairs = {f"{town}/{aspect.name}": Wish(town, aspect) for town in towns for aspect in ASPECTS}
    chosen = shuffled_ids(pairs, f"{seed}/wishes")[: 2 + digest[1] % 3]
    return tuple(sorted((pairs[name] for name in chosen), key=lambda wish: towns.index(wish.town)))
