"""A scripted player that knows the rules: it believes what the answers imply, and asks what splits its belief best.

The belief is a set of weight vectors: every one there is where those are few, else 4,096 fixed random ones. The
expert is a function of the state, so it can also take over in the middle of an episode.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from rl_agents.envs.movie_recommendation.env import SessionState
from rl_agents.envs.movie_recommendation.prompts import Question, movie_name, question_text
from rl_agents.envs.movie_recommendation.rules import Comparison
from rl_agents.envs.movie_recommendation.tasks import Task
from rl_agents.envs.preferences import Movie

MAX_VECTORS = 4096


@cache
def possible_weights(attributes: int, levels: int) -> np.ndarray:
    """Return weight vectors in levels, [vectors, attributes]: all but zero, or `MAX_VECTORS` drawn ones."""
    if levels**attributes <= MAX_VECTORS:
        vectors = [v for v in itertools.product(range(levels), repeat=attributes) if any(v)]
    else:
        rng = random.Random(f"movie_recommendation belief {attributes} {levels}")
        drawn = [[int(rng.random() * levels) for _ in range(attributes)] for _ in range(MAX_VECTORS)]
        vectors = [tuple(vector) for vector in drawn if any(vector)]
    return np.array(vectors, dtype=np.int64)


def belief(task: Task, comparisons: Iterable[Comparison]) -> np.ndarray:
    """Return the weight vectors that contradict the fewest answers (none, unless the vectors are a sample)."""
    weights = possible_weights(task.size.attributes, task.size.weight_levels)
    scores = {movie.name: np.array(movie.scores) for movie in task.seen}
    wrong = np.zeros(len(weights), dtype=np.int64)
    for known in comparisons:
        gaps = weights @ (scores[known.better] - scores[known.worse])
        wrong += gaps != 0 if known.equal else gaps <= 0
    return np.asarray(weights[wrong == wrong.min()])


def best_question(task: Task, weights: np.ndarray) -> tuple[Movie, Movie]:
    """Return the pair whose most likely answer is the least likely; the first of several."""
    values = weights @ np.array([movie.scores for movie in task.seen]).T
    pairs = list(itertools.combinations(range(len(task.seen)), 2))
    signs = [np.sign(values[:, i] - values[:, j]) for i, j in pairs]
    first, second = pairs[int(np.argmin([max(np.sum(s == answer) for answer in (-1, 0, 1)) for s in signs]))]
    return task.seen[first], task.seen[second]


def recommendation(task: Task, weights: np.ndarray) -> Movie:
    """Return the unseen movie that is the best one for the most vectors."""
    values = weights @ np.array([movie.scores for movie in task.unseen]).T
    return task.unseen[int(np.argmax(np.sum(values == values.max(axis=1, keepdims=True), axis=0)))]


def estimate_text(weights: np.ndarray, task: Task, style: str) -> str:
    """Return the mean of the belief as the agent writes it; in the compact style in whole levels."""
    levels = weights.mean(axis=0)
    if style == "compact":
        levels = np.floor(levels + 0.5)
    return ",".join(f"{round(level / (task.size.weight_levels - 1), 2):g}" for level in levels.tolist())


def written_question(estimate: str, pair: Sequence[Movie], task: Task, style: str) -> str:
    """Return the action that asks for ``pair``."""
    if style == "compact":
        names = " ".join(movie_name(movie, task.size, style) for movie in pair)
        return f"<interact> {estimate} {names} </interact>"
    question = question_text(Question((), pair[0], pair[1]))
    return f"<interact>\nGuess: {estimate}\nQuestion: {question}\n</interact>"


def expert_action(state: SessionState, style: str = "paper") -> str:
    """Return the expert's response in ``state``."""
    weights = belief(state.task, state.comparisons)
    if state.final:
        return f"<answer> {movie_name(recommendation(state.task, weights), state.task.size, style)} </answer>"
    pair = best_question(state.task, weights)
    return written_question(estimate_text(weights, state.task, style), pair, state.task, style)
