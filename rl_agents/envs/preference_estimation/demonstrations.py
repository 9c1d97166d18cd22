"""The warm-start model of PreferenceEstimation: its words, its weights before training, and what it is taught.

It is for a smaller task than the paper's: three attributes, six levels and movies whose scores always add up to the
same, with a higher threshold, because among vectors this short half have a cosine above 0.88 with equal weights. A
movie is one token and an estimate is one, so every turn has the same length.

The player believes what the replies imply: a set of weight vectors, every one there is where those are few, else 8,192
fixed random ones. It goes through the movies by the list or asks about any two, and often answers after the first
reply. Otherwise it answers after the fourth, so that its episodes teach what several replies together imply; without
them patience could not pay.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rl_agents.envs.demonstrations import Act, ScriptedPlayer, word_starter
from rl_agents.envs.preference_estimation.env import (
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    SAME_MOVIE,
    UNKNOWN_MOVIE,
    Comparison,
    GameState,
    PreferenceEstimationEnv,
    Question,
    answer_action,
    question_action,
)
from rl_agents.envs.preference_estimation.tasks import STARTER_SETTING, Task
from rl_agents.envs.preferences import agreeing, possible_weights
from rl_agents.envs.small_model import INIT_STD
from rl_agents.envs.stateful import MALFORMED_REASONS

MAX_VECTORS = 8192


def belief(task: Task, known: Sequence[Comparison]) -> NDArray[np.int64]:
    """Return the weight vectors that contradict the fewest replies."""
    weights = possible_weights("preference_estimation", len(task.weights), task.levels, MAX_VECTORS)
    return agreeing(weights, ((task.movies[i], task.movies[j], sign) for i, j, sign in known))


def mean_direction(weights: NDArray[np.int64]) -> tuple[float, ...]:
    """Return the mean of the directions, scaled so that its largest number is 1."""
    mean = (weights / np.linalg.norm(weights, axis=1, keepdims=True)).mean(axis=0)
    return tuple(float(x) for x in mean / mean.max())


#: Replies after which it always answers.
PATIENCE = 4


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities per turn.

    Attributes:
        any_question: of asking about two movies at random; else they are the next two of the list.
        answer_early: of answering after the first reply.
        hurried: of being told to answer at once, after the first turn, in the words of T3's forced answers, which the
            warm-start model would not understand otherwise.
    """

    any_question: float = 0.15
    answer_early: float = 0.6
    hurried: float = 0.03


def _begin(env: PreferenceEstimationEnv, rng: random.Random, habits: Habits) -> Act:
    def act(observation: str, hurried: bool) -> str:
        early = env.state.turns == 1 and rng.random() < habits.answer_early
        return _action(env.state, hurried or early or env.state.turns >= PATIENCE, rng, habits)

    return act


def _action(state: GameState, answers: bool, rng: random.Random, habits: Habits) -> str:
    estimate = mean_direction(belief(state.task, state.known))
    if answers:
        return answer_action(estimate, state.task, "compact")
    return question_action(state.task, Question(estimate, *_pair(state, rng, habits)), "compact")


def _pair(state: GameState, rng: random.Random, habits: Habits) -> tuple[int, int]:
    movies = len(state.task.movies)
    if rng.random() < habits.any_question:
        first, second = rng.sample(range(movies), 2)
        return first, second
    return state.turns % movies, (state.turns + 1) % movies


def vector_words(separator: str) -> list[str]:
    """Return every vector of levels: scores with ``/`` between the levels, estimates with commas."""
    vectors = itertools.product(range(STARTER_SETTING.levels), repeat=STARTER_SETTING.attributes)
    return [separator.join(map(str, vector)) for vector in vectors]


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, scores, and estimates."""
    problems = [*MALFORMED_REASONS, NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE, SAME_MOVIE]
    prompts = [">", "=", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *vector_words("/"), *vector_words(",")]


def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of scores and estimates by sums of one vector per (attribute, level).

    What the model learns about a level then holds for every movie, or every estimate, that has it. A level's vector is
    the one below and a step, so that differences of levels are differences of vectors.
    """
    attributes = STARTER_SETTING.attributes
    for separator in "/,":
        steps = torch.randn(attributes, STARTER_SETTING.levels, weight.shape[1]) * INIT_STD
        parts = steps.cumsum(1) * (2 / STARTER_SETTING.levels) ** 0.5
        for word in vector_words(separator):
            levels = torch.tensor([int(level) for level in word.split(separator)])
            weight[vocab[word]] = parts[torch.arange(attributes), levels].sum(0) / attributes**0.5


STARTER = word_starter(
    ScriptedPlayer(PreferenceEstimationEnv, _begin, Habits(), spare=True),
    words,
    tags=("interact", "answer"),
    max_tokens=512,
    compose=_compose_embeddings,
    # Smaller batches than the default's: the tokens of these short episodes are few, and steps are what counts.
    training={"iterations": 60, "tasks_per_iteration": 640},
    # It reads the prompts of its own small tasks only.
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
