"""The scripted players of multihop_qa, and its warm-start model.

The expert is an upper bound for agents with the search tool: in generated worlds it follows the question's plan, in
files it searches for the titles of the supporting passages, or for the question. `Searcher`, which teaches the
warm-start model, plays the small worlds, where every name, year and relation is one word and one token; elsewhere the
expert plays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rl_agents.envs.multihop_qa import SPEC
from rl_agents.envs.multihop_qa.env import (
    COMPACT_ANSWER_NOW,
    MAX_CALLS,
    MAX_QUERY_CHARACTERS,
    SEARCH,
    AnswerState,
    MultihopQAEnv,
)
from rl_agents.envs.multihop_qa.world import ASIDES, RELATIONS, SIZES
from rl_agents.envs.starters import (
    CALL_END,
    INIT_STD,
    Act,
    ScriptedPlayer,
    Slips,
    call_begin,
    compact_call,
    word_starter,
)
from rl_agents.rewards.wording import normalized
from rl_agents.tools.calls import ToolCall, write_response


def expert_action(state: AnswerState, max_turns: int = SPEC.max_turns) -> str:
    """Return the next searches while evidence is missing and turns are left, else the answer, perhaps ``unknown``."""
    queries = _next_queries(state)[:MAX_CALLS]
    if queries and state.turns + 1 < max_turns:
        calls = [ToolCall(SEARCH.name, {"query": query[:MAX_QUERY_CHARACTERS]}) for query in queries]
        return write_response("", calls)
    return f"<answer>{state.task.question.answers[0] if _found(state) else 'unknown'}</answer>"


def _found(state: AnswerState) -> bool:
    question = state.task.question
    if question.supporting:
        return not state.missing
    read = (state.task.store.get(name) for name in state.seen)
    texts = [normalized(f"{passage.title} {passage.text}") for passage in read]
    return any(normalized(answer) in text for answer in question.answers for text in texts)


def _next_queries(state: AnswerState) -> list[str]:
    question = state.task.question
    if question.plan:
        steps = [[query for query in step if query not in state.queries] for step in question.plan]
        return next((step for step in steps if step), [])
    if not question.supporting:
        return [query for query in (question.question,) if query not in state.queries]
    titles = [state.task.store.get(name).title for name in question.supporting if name in state.missing]
    queries = [f"{title} {question.question}" for title in titles] if state.turns else titles
    return [query for query in queries if query not in state.queries]


def _expert(env: MultihopQAEnv, slips: Slips) -> Act:
    return lambda observation, hurried: expert_action(env.state, env.max_turns)


EXPERT = ScriptedPlayer(MultihopQAEnv, _expert, fixed={})


QUESTIONS = "small"

Triple = tuple[str, str, str]


#: A query with the entity alone; per search, a random result; per intermediate entity, an answer with it; the two sides
#: of a comparison in two turns; an answer without the years. With these about two of five answers are correct.
SLIPS = {
    "forgets_relation": 0.25, "misreads": 0.15, "stops_early": 0.15, "one_at_a_time": 0.4, "guesses": 0.4,
    "hurried": 0.02,
}  # fmt: skip


@dataclass
class Searcher:
    """The player of one episode; it knows the question and what it has read."""

    slips: Slips
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
        stops = self.hop and self.slips("stops_early")
        if self.hop == len(relations) or stops:
            return _answer(self.entity)
        forgets = self.slips("forgets_relation")
        return _search([self.entity if forgets else f"{self.entity} {relations[self.hop]}"])

    def _next_entity(self, found: Sequence[Triple], relation: str) -> str:
        wanted = [object_ for subject, name, object_ in found if (subject, name) == (self.entity, relation)]
        if not wanted or self.slips("misreads"):
            return self.slips.rng.choice(found)[2]
        return wanted[0]

    def _compare(self, observation: str) -> str:
        """Compare two: ``first relation entity entity ?``."""
        relation, *pair = self.question[1:]
        self.known += _triples(observation)
        years = {subject: object_ for subject, name, object_ in self.known if name == relation}
        open_ = [f"{one} {relation}" for one in pair if one not in years]
        if open_ and self.hop < 2:
            self.hop += 1
            return _search(open_[:1] if self.slips("one_at_a_time") else open_)
        if open_ or self.slips("guesses"):
            return _answer(self.slips.rng.choice(pair))
        return _answer(min(pair, key=lambda one: int(years[one])))

    def _guess(self, found: Sequence[Triple]) -> str:
        if self.question[0] == "first":
            return self.slips.rng.choice(self.question[2:])
        return found[0][2] if found else self.entity


def _begin(env: MultihopQAEnv, slips: Slips) -> Act:
    if (env.options.questions, env.options.prompt) != (QUESTIONS, "compact"):
        return _expert(env, slips)
    return Searcher(slips).act


DEMONSTRATOR = ScriptedPlayer(MultihopQAEnv, _begin, SLIPS, fixed={})


def _triples(observation: str) -> list[Triple]:
    texts = re.findall(r"<tool_response>\s(.*?)\s</tool_response>", observation)
    words = [tuple(passage.split()) for text in texts for passage in text.split(";")]
    return [(found[0], found[1], found[2]) for found in words if len(found) == 3]


def _search(queries: Sequence[str]) -> str:
    return " ".join(compact_call(SEARCH.name, "query", query) for query in queries)


def _answer(word: str) -> str:
    return f"<answer> {word} </answer>"


TAGS = ("answer", "tool_call", "tool_response")


def words() -> list[str]:
    forms = ["first", "?", ";", "nothing", "invalid", "error:", "correct", "wrong", COMPACT_ANSWER_NOW]
    relations = [*(relation.name for relation in RELATIONS), *(aside for aside, *_ in ASIDES)]
    names = [name for pool in SIZES[QUESTIONS].names.values() for name in pool]
    return list(dict.fromkeys([*forms, call_begin(SEARCH.name, "query"), CALL_END, *relations, *names]))


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Set the embedding of each year to that of the year before plus a step, so that later years are further away."""
    years = SIZES[QUESTIONS].names["year"]
    steps = torch.randn(len(years), weight.shape[1]) * INIT_STD
    weight[[vocab[year] for year in years]] = steps.cumsum(0) * (2 / len(years)) ** 0.5


STARTER = word_starter(
    DEMONSTRATOR,
    words,
    tags=TAGS,
    max_tokens=512,
    compose=compose_embeddings,
    version=2,
    training={"iterations": 30, "tasks_per_iteration": 640, "demonstrations": 8192},
    # It only reads the prompts of the small worlds.
    defaults={"env.questions": QUESTIONS, "max_model_len": 256, "max_response_tokens": 14, "eval_episodes": 400},
    expert=DEMONSTRATOR.flawless,
)
