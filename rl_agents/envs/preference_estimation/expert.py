"""A scripted player that believes what the replies imply and asks what splits its belief best.

The belief is a set of weight vectors: every one there is where those are few, else 8,192 fixed random ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from rl_agents.envs.preference_estimation.env import GameState, PreferenceEstimationEnv
from rl_agents.envs.preference_estimation.prompts import Question, answer_action, question_action
from rl_agents.envs.preference_estimation.rules import Comparison
from rl_agents.envs.preference_estimation.spec import SPEC, PreferenceEstimationOptions
from rl_agents.envs.preference_estimation.tasks import Task
from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode

MAX_VECTORS = 8192


@cache
def possible_weights(attributes: int, levels: int) -> NDArray[np.int64]:
    """Return weight vectors in levels, [vectors, attributes]: all but zero, or `MAX_VECTORS` drawn ones."""
    if levels**attributes <= MAX_VECTORS:
        vectors: Sequence[Sequence[int]] = list(itertools.product(range(levels), repeat=attributes))
    else:
        rng = random.Random(f"preference_estimation belief {attributes} {levels}")
        vectors = [[int(rng.random() * levels) for _ in range(attributes)] for _ in range(MAX_VECTORS)]
    return np.array([vector for vector in vectors if any(vector)], dtype=np.int64)


def belief(task: Task, known: Sequence[Comparison]) -> NDArray[np.int64]:
    """Return the weight vectors that contradict the fewest replies (none, unless the vectors are a sample)."""
    weights = possible_weights(len(task.weights), task.levels)
    scores = np.array([movie.scores for movie in task.movies])
    wrong = np.zeros(len(weights), dtype=np.int64)
    for i, j, sign in known:
        wrong += np.sign(weights @ (scores[i] - scores[j])) != sign
    return np.asarray(weights[wrong == wrong.min()])


def best_question(task: Task, weights: NDArray[np.int64]) -> tuple[int, int]:
    """Return the pair whose most likely reply is the least likely; the first of several."""
    values = weights @ np.array([movie.scores for movie in task.movies]).T
    pairs = np.array(list(itertools.combinations(range(len(task.movies)), 2)))
    signs = np.sign(values[:, pairs[:, 0]] - values[:, pairs[:, 1]])
    most_likely = np.stack([(signs == sign).sum(axis=0) for sign in (-1, 0, 1)]).max(axis=0)
    first, second = pairs[int(most_likely.argmin())]
    return int(first), int(second)


def mean_direction(weights: NDArray[np.int64]) -> tuple[float, ...]:
    """Return the mean of the directions, scaled so that its largest number is 1."""
    mean = (weights / np.linalg.norm(weights, axis=1, keepdims=True)).mean(axis=0)
    return tuple(float(x) for x in mean / mean.max())


def expert_action(state: GameState, style: str = "paper", max_turns: int = SPEC.max_turns) -> str:
    """Return the action: the best question while a turn is left to answer, else the answer."""
    weights = belief(state.task, state.known)
    estimate = mean_direction(weights)
    if state.turns + 1 >= max_turns:
        return answer_action(estimate, state.task, style)
    return question_action(state.task, Question(estimate, *best_question(state.task, weights)), style)


def play(task_id: str, options: PreferenceEstimationOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = PreferenceEstimationEnv(options, max_turns)
    act = partial(expert_action, style=options.prompt, max_turns=env.max_turns)
    return play_episode(env, task_id, lambda shown: (shown, act(env.state)))
