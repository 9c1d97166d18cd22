"""Generated worlds of people, towns and books, with one passage for every fact, which agents can only find by search.

World ``<split>/<number>`` of a setting is a pure function of its name (sha256). Worlds share names but no facts, so
facts of a train world do not help in a test world. Other passages only mention an entity: journeys, trade, allusions.
All names are invented.

Questions about a world are chains of two or three facts, and comparisons of two entities:

| kind | facts | example |
|---|---|---|
| ``bridge-2`` | 2 in sequence | On which river does the town where A was born lie? |
| ``bridge-3`` | 3 in sequence | On which river does the town where the author of B was born lie? |
| ``earlier`` | 2 in parallel | Who was born earlier, A or C? |
| ``same`` | 2 in parallel | Were A and C born in the same town? |
| ``bridge-earlier`` | 2 and 2 in parallel | Which book has the author who was born earlier, B or D? |
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from rl_agents.envs.questions import Question
from rl_agents.envs.task_sets import shuffled_ids, stored_words
from rl_agents.retrieval.passages import Passage

_STORED = stored_words(__file__, "world.json")
CRAFTS, EMBLEMS = tuple(_STORED["crafts"]), tuple(_STORED["emblems"])


@cache
def invented(kind: str) -> tuple[str, ...]:
    """Return all names of a kind (``person``, ``surname``, ``town``, ``river``) in a random, fixed order."""
    parts = itertools.product(_STORED["onsets"], _STORED["vowels"], _STORED["middles"], _STORED["endings"][kind])
    return tuple(shuffled_ids(("".join(part) for part in parts), f"names/{kind}"))


Item = TypeVar("Item")

PERSON, TOWN, BOOK = "person", "town", "book"
ENTITIES = (PERSON, TOWN, BOOK)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of an entity.

    Attributes:
        name: one word, also the text in terse worlds.
        subject, object: kinds; an object that is not an entity (a year, a river) ends a chain.
        sentence: the passage.
        phrase: the object inside the question for another one; empty if it ends a chain.
        question: the question for the object.
        cue: words of a search, in addition to the subject.
    """

    name: str
    subject: str
    object: str
    sentence: str
    phrase: str
    question: str
    cue: str


RELATIONS = tuple(Relation(*fields) for fields in _STORED["relations"])
#: Passages without facts: (name, subject, object, sentence).
ASIDES = tuple((name, subject, object_, sentence) for name, subject, object_, sentence in _STORED["asides"])
BY_NAME: Mapping[str, Relation] = {relation.name: relation for relation in RELATIONS}


@dataclass(frozen=True, slots=True)
class Size:
    """Size and wording of a world.

    Attributes:
        people, towns, books: number of entities.
        names: by kind, the names that worlds draw from.
        terse: passages and questions in single words, for small models.
    """

    people: int
    towns: int
    books: int
    names: Mapping[str, tuple[str, ...]]
    terse: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation of a subject, and the passage that states it."""

    subject: str
    relation: Relation
    object: str
    passage_id: str

    def query(self, terse: bool) -> str:
        return f"{self.subject} {self.relation.name if terse else self.relation.cue}"


@dataclass(frozen=True)
class World:
    """Entities, facts by (subject, name of the relation), and the passages in random order."""

    name: str
    size: Size
    entities: Mapping[str, tuple[str, ...]]
    facts: Mapping[tuple[str, str], Fact]
    passages: tuple[Passage, ...]


class Draws:
    """Random choices from a seed, the same on every machine."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count = seed, 0

    def below(self, limit: int) -> int:
        """Return a number in [0, ``limit``)."""
        self._count += 1
        digest = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        keys = [self.below(1 << 62) for _ in items]
        return [items[place] for place in sorted(range(len(items)), key=lambda place: keys[place])]


def make_world(seed: str, name: str, size: Size) -> World:
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
        # Years differ within a relation, so that one of two is always earlier.
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
    """Return the names of worlds in sentences. Surnames are unique, and every word of a title occurs in several."""
    first, surnames = invented("person")[:24], invented("surname")[:240]
    titles = itertools.product(_STORED["adjectives"], _STORED["nouns"])
    return {
        PERSON: tuple(f"{first[n % 24].title()} {surname.title()}" for n, surname in enumerate(surnames)),
        TOWN: tuple(name.title() for name in invented("town")[:80]),
        BOOK: tuple(f"The {adjective} {noun}" for adjective, noun in titles),
        "river": tuple(name.title() for name in invented("river")[:60]),
        "craft": CRAFTS,
        "emblem": EMBLEMS,
        "year": tuple(str(year) for year in range(1103, 1399)),
    }


def _terse_names() -> dict[str, tuple[str, ...]]:
    return {
        PERSON: invented("person")[:28],
        TOWN: invented("town")[:14],
        BOOK: invented("surname")[:20],
        "river": invented("river")[:10],
        "craft": CRAFTS[:8],
        "emblem": EMBLEMS[:8],
        "year": tuple(str(year) for year in range(1200, 1216)),
    }


SIZES: Mapping[str, Size] = {
    "generated": Size(36, 12, 20, _full_names()),
    "small": Size(12, 5, 8, _terse_names(), terse=True),
}


#: Questions of each kind in one world.
COUNTS = {
    "generated": {"bridge-2": 8, "bridge-3": 6, "earlier": 2, "same": 2, "bridge-earlier": 2},
    "small": {"bridge-2": 4, "bridge-3": 4, "earlier": 2},
}
_EARLIER = {"born": "Who was born earlier, {a} or {b}?", "year": "Which book appeared earlier, {a} or {b}?"}


def world_questions(world: World, counts: dict[str, int]) -> tuple[Question, ...]:
    """Return the questions of a world, kind by kind; their ids are ``<world>/<number>``."""
    questions: list[Question] = []
    for kind, count in counts.items():
        draws = Draws(f"{world.name}/{kind}")
        asked: dict[str, Question] = {}
        # Every world draws its own names, so the same draws give different questions.
        while len(asked) < count:
            question = _ASK[kind](world, draws)
            if question is not None:
                asked.setdefault(question.question, question)
        questions += asked.values()
    return tuple(
        Question(f"{world.name}/{number:02d}", q.question, q.answers, q.kind, q.supporting, q.plan)
        for number, q in enumerate(questions)
    )


def _chain(world: World, draws: Draws, hops: int) -> Question | None:
    """Ask for the end of a random chain of relations; None if the chain has an entity twice."""
    start = entity = draws.pick(world.entities[draws.pick(ENTITIES)])
    kind = next(kind for kind in ENTITIES if entity in world.entities[kind])
    facts: list[Fact] = []
    for hop in range(hops):
        last = hop == hops - 1
        choices = [r for r in RELATIONS if r.subject == kind and (last or r.phrase)]
        if facts:
            choices = [r for r in choices if r.name != facts[-1].relation.name]
        facts.append(world.facts[entity, draws.pick(choices).name])
        entity, kind = facts[-1].object, facts[-1].relation.object
    if len({start, *(fact.object for fact in facts)}) <= hops:
        return None
    relations = [fact.relation for fact in facts]
    text = _chain_text(start, relations, world.size.terse)
    plan = tuple((fact.query(world.size.terse),) for fact in facts)
    return Question("", text, (facts[-1].object,), f"bridge-{hops}", tuple(f.passage_id for f in facts), plan)


def _chain_text(start: str, relations: list[Relation], terse: bool) -> str:
    if terse:
        return f"{start} {' '.join(relation.name for relation in relations)} ?"
    subject = start
    for relation in relations[:-1]:
        subject = relation.phrase.format(s=subject)
    return relations[-1].question.format(s=subject)


def _earlier(world: World, draws: Draws) -> Question | None:
    relation = BY_NAME[draws.pick(tuple(_EARLIER))]
    first, second = _pair(world, draws, relation.subject)
    facts = [world.facts[one, relation.name] for one in (first, second)]
    answer = min(facts, key=lambda fact: int(fact.object)).subject
    text = f"first {relation.name} {first} {second} ?"
    if not world.size.terse:
        text = _EARLIER[relation.name].format(a=first, b=second)
    return _compare("earlier", text, answer, [facts], world)


def _same(world: World, draws: Draws) -> Question | None:
    first, second = _pair(world, draws, PERSON)
    relation = BY_NAME["birthplace"]
    facts = [world.facts[one, relation.name] for one in (first, second)]
    same = facts[0].object == facts[1].object
    if same != bool(draws.below(2)):  # half of the questions have the answer yes
        return None
    text = f"Were {first} and {second} born in the same town?"
    return _compare("same", text, "yes" if same else "no", [facts], world)


def _bridge_earlier(world: World, draws: Draws) -> Question | None:
    books = _pair(world, draws, BOOK)
    authors = [world.facts[book, "author"] for book in books]
    births = [world.facts[fact.object, "born"] for fact in authors]
    if authors[0].object == authors[1].object:
        return None
    answer = books[0] if int(births[0].object) < int(births[1].object) else books[1]
    text = f"Which book has the author who was born earlier, {books[0]} or {books[1]}?"
    return _compare("bridge-earlier", text, answer, [authors, births], world)


def _compare(kind: str, text: str, answer: str, steps: list[list[Fact]], world: World) -> Question:
    plan = tuple(tuple(fact.query(world.size.terse) for fact in facts) for facts in steps)
    return Question("", text, (answer,), kind, tuple(fact.passage_id for facts in steps for fact in facts), plan)


def _pair(world: World, draws: Draws, kind: str) -> tuple[str, str]:
    first = draws.pick(world.entities[kind])
    return first, draws.pick([name for name in world.entities[kind] if name != first])


_ASK: dict[str, Callable[[World, Draws], Question | None]] = {
    "bridge-2": lambda world, draws: _chain(world, draws, 2),
    "bridge-3": lambda world, draws: _chain(world, draws, 3),
    "earlier": _earlier,
    "same": _same,
    "bridge-earlier": _bridge_earlier,
}
