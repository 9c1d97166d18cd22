"""A small world that can only be known by searching: people, towns and books, one passage for every fact.

World ``<split>/<number>`` of a setting is a pure function of its name (through sha256, so of no library's generator).
Train and test worlds have nothing in common but names, so what was true in one is of no use in another.

Besides the facts there are passages that only mention somebody: journeys, trade, allusions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rl_agents.envs.multihop_qa import names
from rl_agents.retrieval.passages import Passage

Item = TypeVar("Item")

PERSON, TOWN, BOOK = "person", "town", "book"
ENTITIES = (PERSON, TOWN, BOOK)


@dataclass(frozen=True, slots=True)
class Relation:
    """What can be said of an entity.

    Attributes:
        name: one word, also the wording in terse worlds.
        subject, object: kinds; an object that is no entity (a year, a river) ends a chain.
        sentence: the passage.
        phrase: how a question names the object on the way to another one; empty where it ends a chain.
        question: how it is asked for.
        cue: what to search for beside the subject.
    """

    name: str
    subject: str
    object: str
    sentence: str
    phrase: str
    question: str
    cue: str


RELATIONS = (
    Relation(
        "author", BOOK, PERSON, "{s} was written by {o}.", "the author of {s}", "Who wrote {s}?", "written by"
    ),
    Relation(
        "setting", BOOK, TOWN, "The story of {s} takes place in {o}.", "the town in which {s} takes place",
        "In which town does {s} take place?", "story takes place",
    ),
    Relation(
        "year", BOOK, "year", "{s} first appeared in {o}.", "", "In which year did {s} first appear?", "first appeared"
    ),
    Relation(
        "birthplace", PERSON, TOWN, "{s} was born in {o}.", "the town where {s} was born",
        "In which town was {s} born?", "born",
    ),
    Relation(
        "teacher", PERSON, PERSON, "{s} learned everything from {o}, a patient teacher.", "the teacher of {s}",
        "Who was the teacher of {s}?", "learned teacher",
    ),
    Relation(
        "craft", PERSON, "craft", "{s} earned a living as a {o}.", "", "What did {s} earn a living as?", "earned living"
    ),
    Relation(
        "born", PERSON, "year", "The parish register gives {o} as the year of birth of {s}.", "",
        "In which year was {s} born?", "register year of birth",
    ),
    Relation(
        "river", TOWN, "river", "{s} lies on the river {o}.", "", "On which river does {s} lie?", "lies on the river"
    ),
    Relation(
        "founder", TOWN, PERSON, "{s} was founded by {o}.", "the founder of {s}", "Who founded {s}?", "founded by"
    ),
    Relation(
        "emblem", TOWN, "emblem", "The coat of arms of {s} shows a {o}.", "",
        "Which animal does the coat of arms of {s} show?", "coat of arms shows",
    ),
)  # fmt: skip
#: What only mentions: (name, subject, object, sentence).
ASIDES = (
    ("visited", PERSON, TOWN, "In a letter {s} describes a journey to {o}."),
    ("mentions", BOOK, TOWN, "A footnote in {s} mentions {o}."),
    ("near", TOWN, TOWN, "Merchants of {s} trade with {o}."),
)
BY_NAME: Mapping[str, Relation] = {relation.name: relation for relation in RELATIONS}


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is, and how it is worded.

    Attributes:
        people, towns, books: entities, drawn from the names below.
        names: by kind, all names that worlds draw from.
        terse: passages and questions in single words, for small models.
    """

    people: int
    towns: int
    books: int
    names: Mapping[str, tuple[str, ...]]
    terse: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation of a subject, with the passage that says so."""

    subject: str
    relation: Relation
    object: str
    passage_id: str

    def query(self, terse: bool) -> str:
        """Return a search that finds it."""
        return f"{self.subject} {self.relation.name if terse else self.relation.cue}"


@dataclass(frozen=True)
class World:
    """Entities, facts by (subject, relation's name), and the passages in a random order."""

    name: str
    size: Size
    entities: Mapping[str, tuple[str, ...]]
    facts: Mapping[tuple[str, str], Fact]
    passages: tuple[Passage, ...]


class Draws:
    """Random choices from a seed, the same everywhere."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count = seed, 0

    def below(self, limit: int) -> int:
        """Return a number from 0 to ``limit`` - 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of ``items``."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return ``items`` in a random order."""
        keys = [self.below(1 << 62) for _ in items]
        return [items[place] for place in sorted(range(len(items)), key=lambda place: keys[place])]


def make_world(seed: str, name: str, size: Size) -> World:
    """Build the world that ``seed`` and ``name`` stand for."""
    draws = Draws(f"{seed}/{name}")
    counts = {PERSON: size.people, TOWN: size.towns, BOOK: size.books}
    entities = {kind: tuple(draws.shuffled(size.names[kind])[: counts[kind]]) for kind in ENTITIES}
    facts = {(f.subject, f.relation.name): f for f in _facts(draws, size, entities)}
    passages = [_fact_passage(fact, size.terse) for fact in facts.values()]
    for aside, kind, other, sentence in ASIDES:
        for subject in entities[kind]:
            object_ = draws.pick([name for name in entities[other] if name != subject])
            text = f"{aside} {object_}" if size.terse else sentence.format(s=subject, o=object_)
            passages.append(Passage(f"{subject}/{aside}", subject, text))
    return World(name, size, entities, facts, tuple(draws.shuffled(passages)))


def _facts(draws: Draws, size: Size, entities: Mapping[str, tuple[str, ...]]) -> Iterator[Fact]:
    for relation in RELATIONS:
        subjects = entities[relation.subject]
        # Years differ within a relation, so that one of two is always the earlier.
        years = iter(draws.shuffled(size.names["year"])[: len(subjects)])
        for subject in subjects:
            if relation.object == "year":
                value = next(years)
            else:
                pool = entities.get(relation.object) or size.names[relation.object]
                value = draws.pick([name for name in pool if name != subject])
            yield Fact(subject, relation, value, f"{subject}/{relation.name}")


def _fact_passage(fact: Fact, terse: bool) -> Passage:
    if terse:
        return Passage(fact.passage_id, fact.subject, f"{fact.relation.name} {fact.object}")
    return Passage(fact.passage_id, fact.subject, fact.relation.sentence.format(s=fact.subject, o=fact.object))


def _full_names() -> dict[str, tuple[str, ...]]:
    return {
        PERSON: names.people(),
        TOWN: names.towns(),
        BOOK: names.books(),
        "river": names.rivers(),
        "craft": names.CRAFTS,
        "emblem": names.EMBLEMS,
        "year": tuple(str(year) for year in range(1103, 1399)),
    }


def _terse_names() -> dict[str, tuple[str, ...]]:
    return {
        PERSON: names.invented("person")[:28],
        TOWN: names.invented("town")[:14],
        BOOK: names.invented("surname")[:20],
        "river": names.invented("river")[:10],
        "craft": names.CRAFTS[:8],
        "emblem": names.EMBLEMS[:8],
        "year": tuple(str(year) for year in range(1200, 1216)),
    }


SIZES: Mapping[str, Size] = {
    "generated": Size(36, 12, 20, _full_names()),
    "small": Size(12, 5, 8, _terse_names(), terse=True),
}
