"""Questions about a world: chains of two or three facts, and comparisons of two entities.

| kind | facts | example |
|---|---|---|
| ``bridge-2`` | 2, one after the other | On which river does the town where A was born lie? |
| ``bridge-3`` | 3, one after the other | On which river does the town where the author of B was born lie? |
| ``earlier`` | 2 at once | Who was born earlier, A or C? |
| ``same`` | 2 at once | Were A and C born in the same town? |
| ``bridge-earlier`` | 2 at once, then 2 at once | Which book has the author who was born earlier, B or D? |
"""

from __future__ import annotations

from collections.abc import Callable

from rl_agents.envs.multihop_qa.questions import Question
from rl_agents.envs.multihop_qa.world import BOOK, BY_NAME, ENTITIES, PERSON, RELATIONS, Draws, Fact, Relation, World

#: Questions of each kind in one world.
COUNTS = {
    "generated": {"bridge-2": 8, "bridge-3": 6, "earlier": 2, "same": 2, "bridge-earlier": 2},
    "small": {"bridge-2": 4, "bridge-3": 4, "earlier": 2},
}
_EARLIER = {"born": "Who was born earlier, {a} or {b}?", "year": "Which book appeared earlier, {a} or {b}?"}


def world_questions(world: World, counts: dict[str, int]) -> tuple[Question, ...]:
    """Return the world's questions, kind by kind; their ids are ``<world>/<number>``."""
    questions: list[Question] = []
    for kind, count in counts.items():
        draws = Draws(f"{world.name}/{kind}")
        asked: dict[str, Question] = {}
        # Names are drawn again for every world, so the same draws give other questions in each.
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
    """Ask for what a random chain of relations ends in; None when it meets an entity twice."""
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
    text = _terse_chain(start, relations) if world.size.terse else _worded_chain(start, relations)
    plan = tuple((fact.query(world.size.terse),) for fact in facts)
    return Question("", text, (facts[-1].object,), f"bridge-{hops}", tuple(f.passage_id for f in facts), plan)


def _worded_chain(start: str, relations: list[Relation]) -> str:
    subject = start
    for relation in relations[:-1]:
        subject = relation.phrase.format(s=subject)
    return relations[-1].question.format(s=subject)


def _terse_chain(start: str, relations: list[Relation]) -> str:
    return f"{start} {' '.join(relation.name for relation in relations)} ?"


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
