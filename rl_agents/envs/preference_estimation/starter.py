"""The small starter model of PreferenceEstimation: its words, its weights before training, and what it is taught.

It plays a smaller task than the paper's: three attributes, six levels and movies whose scores always add up to the
same, with a higher threshold, because among vectors this short half have a cosine above 0.88 with equal weights. A
movie is one token and an estimate is one, so every turn has the same length.

The expert (`play`) believes what the replies imply and asks what splits its belief best. The belief is a set of weight
vectors: every one there is where those are few, else 8,192 fixed random ones. `demonstrate`, which teaches the starter,
believes the same, but goes through the movies by the list or asks about any two, and often answers after the first
reply. Otherwise it answers after the fourth, so that its episodes teach what several replies together imply; without
them patience could not pay.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_agents.envs.preference_estimation.env import GameState, PreferenceEstimationEnv
from rl_agents.envs.preference_estimation.prompts import (
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    SAME_MOVIE,
    UNKNOWN_MOVIE,
    Question,
    answer_action,
    question_action,
)
from rl_agents.envs.preference_estimation.rules import Comparison
from rl_agents.envs.preference_estimation.spec import SPEC, PreferenceEstimationOptions
from rl_agents.envs.preference_estimation.tasks import STARTER_SETTING, Task
from rl_agents.envs.small_model import IMITATION, INIT_STD, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.envs.tags import MALFORMED_REASONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


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


#: Replies after which it always answers.
PATIENCE = 4


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities per turn.

    Attributes:
        any_question: of asking about two movies at random; else they are the next two of the list.
        answer_early: of answering after the first reply.
        hurried: of being told to answer at once, after the first turn, in the words of T3's forced answers, which the
            starter would not understand otherwise.
    """

    any_question: float = 0.15
    answer_early: float = 0.6
    hurried: float = 0.03


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: PreferenceEstimationOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = PreferenceEstimationEnv(replace(options, prompt="compact"), max_turns)

    def act(observation: str) -> tuple[str, str]:
        state = env.state
        hurried = bool(state.turns) and rng.random() < habits.hurried
        if hurried:
            observation = f"{observation}\n{env.answer_instruction}"
        early = state.turns == 1 and rng.random() < habits.answer_early
        answers = hurried or early or state.turns >= PATIENCE
        return observation, _action(state, answers, rng, habits)

    return play_episode(env, task_id, act)[0]


def demonstrate_spare(
    task_id: str, rng: random.Random, options: PreferenceEstimationOptions, max_turns: int = 0
) -> Dialogue:
    """Play a task of neither split, of the size of ``task_id``: a starter model learns those of the splits by heart."""
    size = task_id.partition("/")[0]
    return demonstrate(f"{size}/spare/{rng.randrange(1_000_000):06d}", rng, options, max_turns)


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


MAX_TOKENS = 512
TAGS = ("interact", "answer")


def vector_words(separator: str) -> list[str]:
    """Return every vector of levels: scores with ``/`` between the levels, estimates with commas."""
    vectors = itertools.product(range(STARTER_SETTING.levels), repeat=STARTER_SETTING.attributes)
    return [separator.join(map(str, vector)) for vector in vectors]


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, scores, and estimates."""
    problems = [*MALFORMED_REASONS, NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE, SAME_MOVIE]
    prompts = [">", "=", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *vector_words("/"), *vector_words(",")]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of scores and estimates composed."""
    return small_qwen3(tokenizer, seed, compose_embeddings=_compose_embeddings)


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


#: Smaller batches than the default's: the tokens of these short episodes are few, and steps are what counts.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60, "tasks_per_iteration": 640}

#: What runs with this model need: it reads the compact prompts of its own small tasks only.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "env.attributes": STARTER_SETTING.attributes,
    "env.levels": STARTER_SETTING.levels,
    "env.sampling": STARTER_SETTING.sampling,
    "env.threshold": 0.95,
    "max_model_len": 256,
    "max_response_tokens": 8,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 300,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate_spare,
    training=TRAINING,
    defaults=DEFAULTS,
    version=3,
)
