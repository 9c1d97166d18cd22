"""The warm-start model of PreferenceEstimation, for three attributes, six levels, and movies with equal sums of scores.

The threshold is higher, because half of all vectors this short have a cosine above 0.88 with equal weights. The player
that it imitates keeps the weight vectors that agree with the replies. It often answers after the first reply, and
otherwise after the fourth, so that its episodes teach what several replies together imply.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from rl_agents.envs.preference_estimation.env import (
    SAME_MOVIE,
    GameState,
    PreferenceEstimationEnv,
    estimate_text,
    question_text,
)
from rl_agents.envs.preference_estimation.tasks import STARTER_SETTING
from rl_agents.envs.preferences import PROBLEMS, agreeing, possible_weights
from rl_agents.envs.starters import INIT_STD, Act, ScriptedPlayer, Slips, word_starter
from rl_agents.envs.stateful import MALFORMED_REASONS

MAX_VECTORS = 8192


def mean_direction(weights: NDArray[np.int64]) -> tuple[float, ...]:
    """Return the mean of the directions, scaled so that its largest number is 1."""
    mean = (weights / np.linalg.norm(weights, axis=1, keepdims=True)).mean(axis=0)
    return tuple(float(x) for x in mean / mean.max())


#: Number of replies after which it always answers.
PATIENCE = 4


#: Per turn: two random movies instead of the next two in the list, and an answer after the first reply.
SLIPS = {"any_question": 0.15, "answer_early": 0.6, "hurried": 0.03}


def _begin(env: PreferenceEstimationEnv, slips: Slips) -> Act:
    def act(observation: str, hurried: bool) -> str:
        early = env.state.turns == 1 and slips("answer_early")
        return _action(env.state, hurried or early or env.state.turns >= PATIENCE, slips)

    return act


def _action(state: GameState, answers: bool, slips: Slips) -> str:
    task = state.task
    weights = possible_weights("preference_estimation", len(task.weights), task.levels, MAX_VECTORS)
    estimate = estimate_text(mean_direction(agreeing(weights, task.movies, state.known)), task, "compact")
    if answers:
        return f"<answer> {estimate} </answer>"
    return f"<interact> {estimate} {question_text(task, *_pair(state, slips), 'compact')} </interact>"


def _pair(state: GameState, slips: Slips) -> tuple[int, int]:
    movies = len(state.task.movies)
    if slips("any_question"):
        first, second = slips.rng.sample(range(movies), 2)
        return first, second
    return state.turns % movies, (state.turns + 1) % movies


def vector_words(separator: str) -> list[str]:
    """Return all vectors of levels: scores have the separator ``/``, estimates a comma."""
    vectors = itertools.product(range(STARTER_SETTING.levels), repeat=STARTER_SETTING.attributes)
    return [separator.join(map(str, vector)) for vector in vectors]


def words() -> list[str]:
    problems = [*MALFORMED_REASONS, *PROBLEMS, SAME_MOVIE]
    prompts = [">", "=", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *vector_words("/"), *vector_words(",")]


def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Set the embeddings of scores and estimates to sums of one vector per (attribute, level).

    So the model's knowledge of a level applies to all movies or estimates. A level's vector is that of the level below
    plus a step, so differences of levels are differences of vectors.
    """
    attributes = STARTER_SETTING.attributes
    for separator in "/,":
        steps = torch.randn(attributes, STARTER_SETTING.levels, weight.shape[1]) * INIT_STD
        parts = steps.cumsum(1) * (2 / STARTER_SETTING.levels) ** 0.5
        for word in vector_words(separator):
            levels = torch.tensor([int(level) for level in word.split(separator)])
            weight[vocab[word]] = parts[torch.arange(attributes), levels].sum(0) / attributes**0.5


STARTER = word_starter(
    ScriptedPlayer(PreferenceEstimationEnv, _begin, SLIPS, spare=True),
    words,
    tags=("interact", "answer"),
    max_tokens=512,
    compose=_compose_embeddings,
    # Smaller batches than the default, because the episodes are short and the number of steps matters.
    training={"iterations": 60, "tasks_per_iteration": 640},
    # It only reads the prompts of its small tasks.
    defaults={
        "env.attributes": STARTER_SETTING.attributes,
        "env.levels": STARTER_SETTING.levels,
        "env.sampling": STARTER_SETTING.sampling,
        "env.threshold": 0.95,
        "max_model_len": 256,
        "max_response_tokens": 8,
    },
    version=3,
)
