"""A scripted, deliberately mediocre searcher whose dialogues teach the starter model.

It knows the form of every turn and reads what it finds, but it leaves the relation out of a query, reads the wrong
result, takes a stop on the way for the answer, and guesses comparisons: reinforcement learning has something to
improve. It plays the small worlds only, whose questions and passages are single words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_agents.envs.multihop_qa import expert
from rl_agents.envs.multihop_qa.env import MultihopQAEnv
from rl_agents.envs.multihop_qa.prompts import COMPACT_ANSWER_NOW
from rl_agents.envs.multihop_qa.spec import MultihopQAOptions
from rl_agents.envs.stateful import Dialogue, play

QUESTIONS = "small"
#: How the compact style writes a call: words that a small vocabulary can hold.
CALL_BEGIN, CALL_END = '{"name":"search","arguments":{"query":"', '"}}'

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Habits:
    """How often the searcher errs; with these about two answers in five are right.

    Attributes:
        forgets_relation: probability that a query names the entity alone.
        misreads: probability, per search, of going on with a result at random.
        stops_early: probability, per stop on the way, of answering with it.
        one_at_a_time: probability that the sides of a comparison are looked up one after the other.
        guesses: probability that a comparison is answered without looking at the years.
        hurried: probability, per turn, that the dialogue asks for the answer at once, as T3 does when it cuts an
            episode short; the starter would not understand it otherwise.
    """

    forgets_relation: float = 0.25
    misreads: float = 0.15
    stops_early: float = 0.15
    one_at_a_time: float = 0.4
    guesses: float = 0.4
    hurried: float = 0.02


HABITS, FLAWLESS = Habits(), Habits(0, 0, 0, 0, 0, 0)


@dataclass
class Searcher:
    """One episode's player; it knows the question and what it has read."""

    rng: random.Random
    habits: Habits
    question: list[str] = field(default_factory=list)
    known: list[Triple] = field(default_factory=list)
    entity: str = ""
    hop: int = 0

    def act(self, observation: str) -> tuple[str, str]:
        """Return what stands in the dialogue as observation, and the action."""
        if not self.question:
            self.question = observation.removesuffix(" ?").split()
            self.entity = self.question[0]
        elif self.rng.random() < self.habits.hurried:
            shown = f"{observation}\n{COMPACT_ANSWER_NOW}"
            return shown, _answer(self._guess(_triples(observation)))
        return observation, self._compare(observation) if self.question[0] == "first" else self._follow(observation)

    def _follow(self, observation: str) -> str:
        """Follow a chain: ``entity relation relation ?``."""
        relations, found = self.question[1:], _triples(observation)
        if found:
            self.entity = self._next_entity(found, relations[self.hop])
            self.hop += 1
        stops = self.hop and self.rng.random() < self.habits.stops_early
        if self.hop == len(relations) or stops:
            return _answer(self.entity)
        forgets = self.rng.random() < self.habits.forgets_relation
        return _search([self.entity if forgets else f"{self.entity} {relations[self.hop]}"])

    def _next_entity(self, found: Sequence[Triple], relation: str) -> str:
        wanted = [object_ for subject, name, object_ in found if (subject, name) == (self.entity, relation)]
        if not wanted or self.rng.random() < self.habits.misreads:
            return self.rng.choice(found)[2]
        return wanted[0]

    def _compare(self, observation: str) -> str:
        """Compare two: ``first relation entity entity ?``."""
        relation, *pair = self.question[1:]
        self.known += _triples(observation)
        years = {subject: object_ for subject, name, object_ in self.known if name == relation}
        open_ = [f"{one} {relation}" for one in pair if one not in years]
        if open_ and self.hop < 2:
            self.hop += 1
            return _search(open_[:1] if self.rng.random() < self.habits.one_at_a_time else open_)
        if open_ or self.rng.random() < self.habits.guesses:
            return _answer(self.rng.choice(pair))
        return _answer(min(pair, key=lambda one: int(years[one])))

    def _guess(self, found: Sequence[Triple]) -> str:
        if self.question[0] == "first":
            return self.rng.choice(self.question[2:])
        return found[0][2] if found else self.entity


def demonstrate(
    task_id: str, rng: random.Random, options: MultihopQAOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` and return the dialogue; elsewhere than in the small worlds and the compact style as the expert.

    Raises:
        InputError: unknown task id.
    """
    if (options.questions, options.prompt) != (QUESTIONS, "compact"):
        return expert.play(task_id, options, max_turns)[0]
    env = MultihopQAEnv(options, max_turns)
    return play(env, task_id, Searcher(rng, habits).act)[0]


def demonstrate_well(task_id: str, rng: random.Random, options: MultihopQAOptions, max_turns: int = 0) -> Dialogue:
    """Play as the expert, which in the compact style is the demonstrator without its bad habits."""
    return demonstrate(task_id, rng, options, max_turns, FLAWLESS)


def _triples(observation: str) -> list[Triple]:
    """Return the facts of a compact observation."""
    texts = re.findall(r"<tool_response>\s(.*?)\s</tool_response>", observation)
    words = [tuple(passage.split()) for text in texts for passage in text.split(";")]
    return [(found[0], found[1], found[2]) for found in words if len(found) == 3]


def _search(queries: Sequence[str]) -> str:
    return " ".join(f"<tool_call> {CALL_BEGIN} {query} {CALL_END} </tool_call>" for query in queries)


def _answer(word: str) -> str:
    return f"<answer> {word} </answer>"
