"""The scripted players of multihop_qa, and its warm-start model: its words, its weights, what it is taught.

The expert finds every supporting passage and then answers: what can be reached with the search tool. In generated
worlds it follows the question's plan and searches for one fact after the other, as an agent has to. For files it looks
up the titles of the supporting passages, so its score says for how many questions the search tool can bring the
evidence within the turns; where supporting passages are not known it searches for the question, and answers if a
passage names the answer.

`Searcher`, which teaches the warm-start model, is deliberately mediocre. It knows the form of every turn and reads what
it finds, but it leaves the relation out of a query, reads the wrong result, takes a stop on the way for the answer, and
guesses comparisons: reinforcement learning has something to improve. It plays the small worlds, where every name, year
and relation is one word, and so one token; elsewhere the expert plays. What the warm-start model writes is copied from
the question and from the results: two layers are enough for that.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rl_agents.envs.demonstrations import Act, ScriptedPlayer, word_starter
from rl_agents.envs.multihop_qa import SPEC
from rl_agents.envs.multihop_qa.env import (
    COMPACT_ANSWER_NOW,
    MAX_CALLS,
    MAX_QUERY_CHARACTERS,
    SEARCH,
    EpisodeState,
    MultihopQAEnv,
)
from rl_agents.envs.multihop_qa.questions import normalize
from rl_agents.envs.multihop_qa.world import ASIDES, RELATIONS, SIZES
from rl_agents.envs.small_model import INIT_STD
from rl_agents.tools.calls import ToolCall, write_response


def expert_action(state: EpisodeState, max_turns: int = SPEC.max_turns) -> str:
    """Return the action: the next searches while evidence is missing and a turn is left to answer, else the answer.

    It answers right only when the evidence was found; otherwise it says that it does not know.
    """
    queries = _next_queries(state)[:MAX_CALLS]
    if queries and state.turns + 1 < max_turns:
        calls = [ToolCall(SEARCH.name, {"query": query[:MAX_QUERY_CHARACTERS]}) for query in queries]
        return write_response("", calls)
    return f"<answer>{state.task.question.answers[0] if _found(state) else 'unknown'}</answer>"


def _found(state: EpisodeState) -> bool:
    question = state.task.question
    if question.supporting:
        return not state.missing
    read = (state.task.store.get(name) for name in state.seen)
    texts = [normalize(f"{passage.title} {passage.text}") for passage in read]
    return any(normalize(answer) in text for answer in question.answers for text in texts)


def _next_queries(state: EpisodeState) -> list[str]:
    question = state.task.question
    if question.plan:
        steps = [[query for query in step if query not in state.queries] for step in question.plan]
        return next((step for step in steps if step), [])
    if not question.supporting:
        return [query for query in (question.question,) if query not in state.queries]
    titles = [state.task.store.get(name).title for name in question.supporting if name in state.missing]
    queries = [f"{title} {question.question}" for title in titles] if state.turns else titles
    return [query for query in queries if query not in state.queries]


def _expert(env: MultihopQAEnv, rng: random.Random, habits: Any) -> Act:
    return lambda observation, hurried: expert_action(env.state, env.max_turns)


EXPERT = ScriptedPlayer(MultihopQAEnv, _expert, fixed={})


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
            episode short; the warm-start model would not understand it otherwise.
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

    def act(self, observation: str, hurried: bool) -> str:
        if not self.question:
            self.question = observation.removesuffix(" ?").split()
            self.entity = self.question[0]
        if hurried:
            return _answer(self._guess(_triples(observation)))
        return self._compare(observation) if self.question[0] == "first" else self._follow(observation)

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


def _begin(env: MultihopQAEnv, rng: random.Random, habits: Habits) -> Act:
    if (env.options.questions, env.options.prompt) != (QUESTIONS, "compact"):
        return _expert(env, rng, habits)
    return Searcher(rng, habits).act


DEMONSTRATOR = ScriptedPlayer(MultihopQAEnv, _begin, HABITS, fixed={})


def _triples(observation: str) -> list[Triple]:
    texts = re.findall(r"<tool_response>\s(.*?)\s</tool_response>", observation)
    words = [tuple(passage.split()) for text in texts for passage in text.split(";")]
    return [(found[0], found[1], found[2]) for found in words if len(found) == 3]


def _search(queries: Sequence[str]) -> str:
    return " ".join(f"<tool_call> {CALL_BEGIN} {query} {CALL_END} </tool_call>" for query in queries)


def _answer(word: str) -> str:
    return f"<answer> {word} </answer>"


TAGS = ("answer", "tool_call", "tool_response")


def words() -> list[str]:
    """Return every word but special tokens and tags: those of questions, results and calls, and all names."""
    forms = ["first", "?", ";", "nothing", "invalid", "error:", "correct", "wrong", COMPACT_ANSWER_NOW]
    relations = [*(relation.name for relation in RELATIONS), *(aside for aside, *_ in ASIDES)]
    names = [name for pool in SIZES[QUESTIONS].names.values() for name in pool]
    return list(dict.fromkeys([*forms, CALL_BEGIN, CALL_END, *relations, *names]))


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of years: each is the one before and a step, so that later means further along."""
    years = SIZES[QUESTIONS].names["year"]
    steps = torch.randn(len(years), weight.shape[1]) * INIT_STD
    weight[[vocab[year] for year in years]] = steps.cumsum(0) * (2 / len(years)) ** 0.5


STARTER = word_starter(
    DEMONSTRATOR,
    words,
    tags=TAGS,
    max_tokens=512,
    compose=compose_embeddings,
    training={"iterations": 30, "tasks_per_iteration": 640, "demonstrations": 8192},
    # It reads the prompts of the small worlds only.
    defaults={"env.questions": QUESTIONS, "max_model_len": 256, "max_response_tokens": 14, "eval_episodes": 400},
    expert=replace(DEMONSTRATOR, habits=FLAWLESS),
)
