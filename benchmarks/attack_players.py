"""Scripted players that try to earn an environment's reward without doing its task.

*Constants* give the same answer to every task; it is chosen on training tasks. *Copies* repeat what they were shown.
*Shotguns* try everything, at once or one by one. *Random* players take valid actions at random.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.long_form_qa.tasks import ASPECTS, TOWNS
from rl_agents.envs.webshop.demonstrations import in_style
from rl_agents.rewards.grounding import sentences
from rl_agents.rewards.wording import words
from rl_agents.tools.calls import ToolCall, write_response

TRAIN_TASKS = 300


@dataclass
class Game:
    """One episode as a player sees it; it only reads the parts of the state that the agent has seen."""

    env: Any
    task_id: str
    rng: random.Random
    observation: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


Player = Callable[[Game], str]


@dataclass(frozen=True)
class Trial:
    """An environment with options, whose training tasks, as (id, references), a player may read."""

    env: str
    options: Mapping[str, Any]
    train: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> Trial:
        """Read the references of training tasks; empty if a task has none."""
        env, found = make_env(name, options), []
        for task in task_ids(name, "train", options)[:TRAIN_TASKS]:
            info = env.reset(options={"task_id": task})[1]
            found.append((task, str((info.get("references") or [""])[0])))
        return cls(name, options, tuple(found))

    @property
    def style(self) -> str:
        return str(self.options.get("prompt", "paper"))

    @property
    def references(self) -> list[str]:
        return [reference for _, reference in self.train]


def answer(text: str) -> Player:
    return lambda game: f"<answer> {text} </answer>"


def chosen(answers: Sequence[str]) -> Player:
    return lambda game: f"<answer> {game.rng.choice(answers)} </answer>"


# --- situation_puzzles: bags of words or characters


def soup(trial: Trial, unit: str) -> str:
    """Return the bag that overlaps most with the training stories."""
    bags = [Counter(found if unit == "word" else "".join(found)) for found in map(words, trial.references)]
    return max((_bag(bags, share, unit) for share in (0.2, 0.3, 0.4, 0.5)), key=lambda text: _overlap(text, bags, unit))


def _bag(bags: Sequence[Counter[str]], share: float, unit: str) -> str:
    """Return every piece as often as at least ``share`` of the bags have it."""
    counts = {piece: sorted((bag[piece] for bag in bags), reverse=True) for bag in bags for piece in bag}
    kept = {piece: found[int(share * (len(found) - 1))] for piece, found in counts.items()}
    return (" " if unit == "word" else "").join(piece for piece, count in sorted(kept.items()) for _ in range(count))


def _overlap(text: str, bags: Sequence[Counter[str]], unit: str) -> float:
    found = words(text)
    mine = Counter(found if unit == "word" else "".join(found))
    return sum(2 * (mine & bag).total() / (mine.total() + bag.total()) for bag in bags)


# --- preferences


def best_by_sum(game: Game) -> str:
    return _recommended(game, lambda movies: max(movies, key=lambda movie: sum(movie.scores)))


def any_movie(game: Game) -> str:
    return _recommended(game, game.rng.choice)


def _recommended(game: Game, choose: Callable[[Any], Any]) -> str:
    from rl_agents.envs.movie_recommendation.env import movie_name

    task = game.env.state.task
    if not game.env.state.final:
        return f"<answer> {','.join(['1'] * len(task.weights))} </answer>"
    return f"<answer> {movie_name(choose(task.unseen), task.size, game.env.options.prompt)} </answer>"


def any_candidates(game: Game) -> str:
    from rl_agents.envs.circuit_decoding.env import answer_text

    task = game.env.state.task
    picked = [game.rng.randrange(len(task.tables)) for _ in task.hidden]
    return f"<answer> {answer_text(task, picked, game.env.options.prompt)} </answer>"


# --- searching and answering


def searching(queries: Callable[[Game], Sequence[str]], reply: Callable[[Game], str], style: str) -> Player:
    def act(game: Game) -> str:
        if game.said:
            return f"<answer> {reply(game)} </answer>"
        if style == "compact":
            call = '<tool_call> {{"name":"search","arguments":{{"query":" {} "}}}} </tool_call>'
            return " ".join(call.format(query) for query in queries(game))
        return write_response("", [ToolCall("search", {"query": query}) for query in queries(game)])

    return act


def whole_question(game: Game) -> list[str]:
    return [_question(game)]


def every_part(game: Game) -> list[str]:
    """Search for each sentence of the question, up to four."""
    parts = [part.strip() for part in _question(game).replace(".", "?").split("?") if part.strip()]
    return parts[:4]


def _question(game: Game) -> str:
    task = game.env.state.task
    return str(getattr(task, "question", task) if isinstance(task.question, str) else task.question.question)[:900]


def pasted(share: float = 0.0) -> Callable[[Game], str]:
    """Repeat the sentences found, from the first one: twelve, or ``share`` times as many as the question has parts."""

    def reply(game: Game) -> str:
        found = [part for text in game.env.state.read for part in sentences(text.partition("\n")[2] or text)]
        most = int(share * len(every_part(game))) if share else 12
        return " ".join(found[: max(most, 1)])

    return reply


def all_of_the_almanac() -> str:
    """Return one sentence with every town, every value and all words between them."""
    facts = [aspect.statement.format(town="", value="").strip(" .") for aspect in ASPECTS]
    return " ".join([*TOWNS, *facts, *(value for aspect in ASPECTS for value in aspect.values)]) + "."


def first_title(game: Game) -> str:
    return _titles(game)[0] if _titles(game) else "unknown"


def first_words(game: Game) -> str:
    state = game.env.state
    return state.task.store.get(state.seen[0]).text if state.seen else "unknown"


def all_titles(game: Game) -> str:
    return " ".join(_titles(game)) or "unknown"


def _titles(game: Game) -> list[str]:
    state = game.env.state
    return [state.task.store.get(name).title or "unknown" for name in state.seen]


# --- papers


def paper_calls(calls: Callable[[Game], Sequence[tuple[str, str]]]) -> Player:
    from rl_agents.envs.paper_search.demonstrations import STOP, written

    def act(game: Game) -> str:
        found = list(calls(game))[:5]
        return written(found, game.env.options.prompt == "compact") if found else STOP

    return act


def request_once(game: Game) -> list[tuple[str, str]]:
    return [] if game.said else [("search", _request(game))]


def expand_all(game: Game) -> list[tuple[str, str]]:
    state = game.env.state
    if not game.said:
        return [("search", _request(game))]
    return [("expand", found.paper_id) for found in state.pool if found.paper_id not in state.expanded]


def any_word(game: Game) -> list[tuple[str, str]]:
    state = game.env.state
    known = sorted({word for text in [_request(game), *(f.title for f in state.pool)] for word in text.split()})
    return [
        ("search", word) for word in game.rng.sample(known, min(5, len(known))) if word.lower() not in state.queries
    ]


def _request(game: Game) -> str:
    task = game.env.state.task
    return task.query if game.env.options.prompt != "compact" else " ".join(task.wanted) or task.query


# --- texts with admissible actions


def any_admissible(style: str) -> Player:
    """Take a random admissible action; a search is for a word of the goal."""
    return lambda game: _written(_filled(game.rng.choice(game.info["admissible_actions"]), game), style)


def least_tried(style: str) -> Player:
    def act(game: Game) -> str:
        tried = Counter(game.shown)
        command = min(game.info["admissible_actions"], key=lambda option: tried[option])
        game.shown.append(command)
        return _written(_filled(command, game), style)

    return act


def replayed(trial: Trial) -> Player:
    """Do what won the first training task, whatever the task."""
    options = read_env_options(env_spec(trial.env), {**trial.options, "prompt": "compact"})
    expert = starter_spec(trial.env).expert
    assert expert is not None
    commands = [action for _, action in expert(trial.train[0][0], random.Random(0), options)]
    return lambda game: _written(commands[min(len(game.said), len(commands) - 1)], trial.style)


def first_result(query: Callable[[Game], str], style: str) -> Player:
    def act(game: Game) -> str:
        page = game.env.state.turn.page
        if page.kind == "search":
            return in_style(f"search[{query(game)}]", style)
        if page.kind == "results" and page.items:
            return in_style(f"click[{page.items[0].asin.lower()}]", style)
        return in_style("click[buy now]", style)

    return act


def goal_words(game: Game) -> str:
    return str(game.env.state.turn.goal.instruction)


def _filled(command: str, game: Game) -> str:
    return command.replace("<your query>", game.rng.choice(game.observation.split() or ["a"]))


def _written(command: str, style: str) -> str:
    return command if style == "compact" else f"<action>{command}</action>"
