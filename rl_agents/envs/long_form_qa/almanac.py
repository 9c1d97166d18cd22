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

from rl_agents.envs.panels import shuffled_ids
from rl_agents.retrieval.passages import Passage

SEED = "almanac-2026"
_BEGINNINGS = ("Bren", "Cal", "Dun", "Esk", "Fal", "Mar", "Tor", "Vel")
_ENDINGS = ("ford", "haven", "holm", "mora", "stead", "wick")
TOWNS = tuple(first + last for first, last in product(_BEGINNINGS, _ENDINGS))


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


FOUNDER = Aspect(
    "founder",
    "Who founded {town}?",
    "{town} was founded by {value}.",
    ("Ada Tarn", "Bela Orsk", "Cora Finch", "Derk Vold", "Edda Lorn", "Finn Abar", "Gerd Moss", "Hale Rook"),
)
CHARTER = Aspect(
    "charter",
    "When did {town} receive its charter?",
    "{town} received its charter in {value}.",
    ("1182", "1207", "1243", "1291", "1318", "1356", "1404", "1432"),
)
RIVER = Aspect(
    "river",
    "On which river does {town} lie?",
    "{town} lies on the river {value}.",
    ("Aune", "Bistra", "Celme", "Drava", "Ister", "Lenn", "Orva", "Sile"),
)
PROVINCE = Aspect(
    "province",
    "To which province does {town} belong?",
    "{town} belongs to the province of {value}.",
    ("Arven", "Belmark", "Corland", "Esteria", "Galden", "Ithel", "Norrin", "Varn"),
)
FAIR = Aspect(
    "fair",
    "Which fair is held in {town}?",
    "The fair of {town} is called the {value}.",
    ("Apple Fair", "Candle Fair", "Goose Fair", "Honey Fair", "Iron Fair", "Mask Fair", "Rose Fair", "Straw Fair"),
)
CRAFT = Aspect(
    "craft",
    "For which craft is {town} known?",
    "{town} is known for the craft of {value}.",
    ("bookbinding", "clockmaking", "dyeing", "glassblowing", "masonry", "pottery", "ropemaking", "weaving"),
)

#: Articles by name, and the aspects that they tell of.
ARTICLES = (("History", (FOUNDER, CHARTER)), ("Geography", (RIVER, PROVINCE)), ("Life", (FAIR, CRAFT)))
ASPECTS = tuple(aspect for _, aspects in ARTICLES for aspect in aspects)
_TITLES = {"History": "History of {town}", "Geography": "Geography of {town}", "Life": "Life in {town}"}
_ASIDES = {
    "History": "Chronicles often name {other} in the same breath.",
    "Geography": "The old road leads on to {other}.",
    "Life": "Many families came from {other}.",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a question asks for."""

    town: str
    aspect: Aspect

    @property
    def value(self) -> str:
        """What the almanac says."""
        return _value(self.town, self.aspect.name)

    @property
    def question(self) -> str:
        """Ask for it."""
        return self.aspect.question.format(town=self.town)

    @property
    def point(self) -> str:
        """State it."""
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
    return parts[0] if aspect is FAIR else parts[-1]


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
