"""The warm-start model of MovieRecommendation: its words, its weights before training, and what it is taught.

It is for a smaller session than the paper's: three attributes, five seen and four unseen movies whose scores always
add up to the same, weights of 0, 0.5 or 1. Each movie and each estimate is one token.

The player believes what the answers imply: a set of weight vectors, every one there is where those are few, else 4,096
fixed random ones. It asks without a plan, asks again what it knows, often stops after the first question and sometimes
recommends any movie. Its other episodes run to the end, so that they teach what several answers together
imply; without them patience could not pay.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from rl_agents.envs.demonstrations import TAGS, Act, ScriptedPlayer, word_starter
from rl_agents.envs.movie_recommendation.env import (
    FINAL_TURN,
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    UNKNOWN_MOVIE,
    Comparison,
    MovieRecommendationEnv,
    SessionState,
    movie_name,
)
from rl_agents.envs.movie_recommendation.tasks import STARTER_SIZE, Task
from rl_agents.envs.preferences import Movie, agreeing, possible_weights, shown_vector
from rl_agents.envs.small_model import sum_parts
from rl_agents.envs.stateful import MALFORMED_REASONS

MAX_VECTORS = 4096


def belief(task: Task, comparisons: Iterable[Comparison]) -> np.ndarray:
    """Return the weight vectors that contradict the fewest answers."""
    size, named = task.size, {movie.name: movie for movie in task.seen}
    weights = possible_weights("movie_recommendation", size.attributes, size.weight_levels, MAX_VECTORS)
    return agreeing(weights, ((named[c.better], named[c.worse], 0 if c.equal else 1) for c in comparisons))


def recommendation(task: Task, weights: np.ndarray) -> Movie:
    """Return the unseen movie that is the best one for the most vectors."""
    values = weights @ np.array([movie.scores for movie in task.unseen]).T
    return task.unseen[int(np.argmax(np.sum(values == values.max(axis=1, keepdims=True), axis=0)))]


def estimate_text(weights: np.ndarray, task: Task) -> str:
    """Return the mean of the belief in whole levels."""
    levels = np.floor(weights.mean(axis=0) + 0.5)
    return ",".join(f"{round(level / (task.size.weight_levels - 1), 2):g}" for level in levels.tolist())


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player.

    Attributes:
        repeat_question: probability of a wasted turn: the last question is asked again.
        any_question: probability of comparing two movies at random instead of the next two in the list.
        stop_early: probability, after the first question, of answering with the estimate, which ends the questions.
        careless: probability of recommending any unseen movie instead of the best by the estimate.
    """

    repeat_question: float = 0.1
    any_question: float = 0.1
    stop_early: float = 0.6
    careless: float = 0.05


def _begin(env: MovieRecommendationEnv, rng: random.Random, habits: Habits) -> Act:
    return lambda observation, hurried: _choose(env.state, rng, habits)


def _choose(state: SessionState, rng: random.Random, habits: Habits) -> str:
    task, weights = state.task, belief(state.task, state.comparisons)
    estimate = estimate_text(weights, task)
    if state.final:
        best = recommendation(task, weights)
        movie = rng.choice(task.unseen) if rng.random() < habits.careless else best
        return f"<think> {estimate} </think> <answer> {movie_name(movie, task.size, 'compact')} </answer>"
    if len(state.comparisons) == 1 and rng.random() < habits.stop_early:
        return f"<answer> {estimate} </answer>"
    names = " ".join(movie_name(movie, task.size, "compact") for movie in _pair(state, rng, habits))
    return f"<interact> {estimate} {names} </interact>"


def _pair(state: SessionState, rng: random.Random, habits: Habits) -> tuple[Movie, Movie]:
    seen, asked = state.task.seen, len(state.comparisons)
    if asked and rng.random() < habits.repeat_question:
        last, named = state.comparisons[-1], {movie.name: movie for movie in seen}
        return named[last.better], named[last.worse]
    if rng.random() < habits.any_question:
        first, second = rng.sample(seen, 2)
        return first, second
    return seen[asked % len(seen)], seen[(asked + 1) % len(seen)]


def movie_words() -> list[str]:
    """Return the name of every movie that a session of the warm-start model's size may hold."""
    top = STARTER_SIZE.score_levels - 1
    scores = itertools.product(range(top + 1), repeat=STARTER_SIZE.attributes)
    total = STARTER_SIZE.attributes * top // 2
    return [movie_name(Movie("", levels), STARTER_SIZE, "compact") for levels in scores if sum(levels) == total]


def estimate_words() -> list[str]:
    """Return every estimate in whole levels."""
    vectors = itertools.product(range(STARTER_SIZE.weight_levels), repeat=STARTER_SIZE.attributes)
    return [shown_vector(vector, STARTER_SIZE.weight_levels) for vector in vectors]


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    problems = [*MALFORMED_REASONS, NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE, FINAL_TURN]
    prompts = ["seen", "best", "yes", "no", "equal", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *movie_words(), *estimate_words()]


def _parts(word: str) -> list[str]:
    """Split a movie into its scores, an estimate into its weights, each with the attribute that it belongs to."""
    for separator, kind in (("/", "score"), (",", "weight")):
        if separator in word and word[0].isdigit():
            return [f"{kind} {i} is {number}" for i, number in enumerate(word.split(separator))]
    return []


STARTER = word_starter(
    ScriptedPlayer(MovieRecommendationEnv, _begin, Habits(), spare=True),
    words,
    tags=TAGS,
    max_tokens=256,
    compose=partial(sum_parts, parts=_parts),
    # Three times the default's steps: sessions have no end, and what several answers imply is learned late.
    training={"iterations": 60},
    defaults={"env.size": "small", "max_model_len": 128, "max_response_tokens": 12},
    version=3,
)
