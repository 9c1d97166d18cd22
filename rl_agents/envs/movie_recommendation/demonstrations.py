"""The warm-start model of MovieRecommendation, for the size ``small``. Each movie and each estimate is one token.

The player that it imitates keeps the weight vectors that agree with the answers. It often stops after the first
question; its other episodes use all questions, so that they teach what several answers together imply.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from rl_agents.envs.movie_recommendation.env import FINAL_TURN, MovieRecommendationEnv, SessionState, movie_name
from rl_agents.envs.movie_recommendation.tasks import STARTER_SIZE, Task
from rl_agents.envs.preferences import PROBLEMS, Movie, agreeing, possible_weights, shown_vector
from rl_agents.envs.starters import Act, ScriptedPlayer, Slips, sum_parts, word_starter
from rl_agents.envs.stateful import MALFORMED_REASONS

MAX_VECTORS = 4096


def recommendation(task: Task, weights: np.ndarray) -> Movie:
    values = weights @ np.array([movie.scores for movie in task.unseen]).T
    return task.unseen[int(np.argmax(np.sum(values == values.max(axis=1, keepdims=True), axis=0)))]


def estimate_text(weights: np.ndarray, task: Task) -> str:
    """Return the mean of the belief in whole levels."""
    levels = np.floor(weights.mean(axis=0) + 0.5)
    return ",".join(f"{round(level / (task.size.weight_levels - 1), 2):g}" for level in levels.tolist())


#: The last question again, two random movies instead of the next two in the list, the end of the questions after the
#: first one, and any movie instead of the best by the estimate.
SLIPS = {"repeat_question": 0.1, "any_question": 0.1, "stop_early": 0.6, "careless": 0.05}


def _begin(env: MovieRecommendationEnv, slips: Slips) -> Act:
    return lambda observation, hurried: _choose(env.state, slips)


def _choose(state: SessionState, slips: Slips) -> str:
    task, size = state.task, state.task.size
    weights = possible_weights("movie_recommendation", size.attributes, size.weight_levels, MAX_VECTORS)
    weights = agreeing(weights, task.seen, state.comparisons)
    estimate = estimate_text(weights, task)
    if state.final:
        best = recommendation(task, weights)
        movie = slips.rng.choice(task.unseen) if slips("careless") else best
        return f"<think> {estimate} </think> <answer> {movie_name(movie, size, 'compact')} </answer>"
    if len(state.comparisons) == 1 and slips("stop_early"):
        return f"<answer> {estimate} </answer>"
    names = " ".join(movie_name(movie, size, "compact") for movie in _pair(state, slips))
    return f"<interact> {estimate} {names} </interact>"


def _pair(state: SessionState, slips: Slips) -> tuple[Movie, Movie]:
    seen, asked = state.task.seen, len(state.comparisons)
    if asked and slips("repeat_question"):
        i, j, sign = state.comparisons[-1]
        return (seen[j], seen[i]) if sign < 0 else (seen[i], seen[j])
    if slips("any_question"):
        first, second = slips.rng.sample(seen, 2)
        return first, second
    return seen[asked % len(seen)], seen[(asked + 1) % len(seen)]


def words() -> list[str]:
    problems = [*MALFORMED_REASONS, *PROBLEMS, FINAL_TURN]
    prompts = ["seen", "best", "yes", "no", "equal", "invalid", "correct", "wrong"]
    size, top = STARTER_SIZE, STARTER_SIZE.score_levels - 1
    scores = itertools.product(range(top + 1), repeat=size.attributes)
    balanced = (vector for vector in scores if sum(vector) == size.attributes * top // 2)
    movies = [movie_name(Movie("", vector), size, "compact") for vector in balanced]
    weights = itertools.product(range(size.weight_levels), repeat=size.attributes)
    return [*prompts, *problems, *movies, *(shown_vector(vector, size.weight_levels) for vector in weights)]


def _parts(word: str) -> list[str]:
    """Split a movie into its scores, or an estimate into its weights, each with its attribute."""
    for separator, kind in (("/", "score"), (",", "weight")):
        if separator in word and word[0].isdigit():
            return [f"{kind} {i} is {number}" for i, number in enumerate(word.split(separator))]
    return []


STARTER = word_starter(
    ScriptedPlayer(MovieRecommendationEnv, _begin, SLIPS, spare=True),
    words,
    max_tokens=256,
    compose=partial(sum_parts, parts=_parts),
    # Three times the default steps, because the implications of several answers are learned late.
    training={"iterations": 60},
    defaults={"env.size": "small", "max_model_len": 128, "max_response_tokens": 12},
    version=3,
)
