"""The small starter model of MovieRecommendation: its words, its weights before training, and what it is taught.

It plays a smaller session than the paper's: three attributes, five seen and four unseen movies whose scores always
add up to the same, weights of 0, 0.5 or 1. Each movie and each estimate is one token.

The expert believes what the answers imply, and asks what splits its belief best. The belief is a set of weight
vectors: every one there is where those are few, else 4,096 fixed random ones. It is a function of the state, so it can
also take over in the middle of an episode. `demonstrate`, which teaches the starter, believes the same, but asks
without a plan, asks again what it knows, often stops after the first question and sometimes recommends any movie. Those
of its episodes that go on go to the end, so that they teach what several answers together imply; without them patience
could not pay.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_agents.envs.movie_recommendation.env import MovieRecommendationEnv, SessionState
from rl_agents.envs.movie_recommendation.prompts import (
    FINAL_TURN,
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    UNKNOWN_MOVIE,
    Question,
    movie_name,
    question_text,
)
from rl_agents.envs.movie_recommendation.rules import Comparison
from rl_agents.envs.movie_recommendation.spec import MovieRecommendationOptions
from rl_agents.envs.movie_recommendation.tasks import STARTER_SIZE, Task
from rl_agents.envs.preferences import Movie, shown_vector
from rl_agents.envs.small_model import IMITATION, small_qwen3, sum_parts, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, play
from rl_agents.envs.tags import MALFORMED_REASONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


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


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player.

    Attributes:
        repeat_question: probability of a wasted turn: the last question is asked again.
        any_question: probability of comparing two movies at random in place of the next two in the list.
        stop_early: probability, after the first question, of answering with the estimate, which ends the questions.
        careless: probability of recommending any unseen movie in place of the best by the estimate.
    """

    repeat_question: float = 0.1
    any_question: float = 0.1
    stop_early: float = 0.6
    careless: float = 0.05


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: MovieRecommendationOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = MovieRecommendationEnv(replace(options, prompt="compact"), max_turns)
    return play(env, task_id, lambda observation: (observation, _choose(env.state, rng, habits)))[0]


def demonstrate_spare(
    task_id: str, rng: random.Random, options: MovieRecommendationOptions, max_turns: int = 0
) -> Dialogue:
    """Play a task of neither split, of the size of ``task_id``: a starter model learns those of the splits by heart."""
    size = task_id.partition("/")[0]
    return demonstrate(f"{size}/spare/{rng.randrange(1_000_000):06d}", rng, options, max_turns)


def _choose(state: SessionState, rng: random.Random, habits: Habits) -> str:
    task, weights = state.task, belief(state.task, state.comparisons)
    estimate = estimate_text(weights, task, "compact")
    if state.final:
        best = recommendation(task, weights)
        movie = rng.choice(task.unseen) if rng.random() < habits.careless else best
        return f"<think> {estimate} </think> <answer> {movie_name(movie, task.size, 'compact')} </answer>"
    if len(state.comparisons) == 1 and rng.random() < habits.stop_early:
        return f"<answer> {estimate} </answer>"
    return written_question(estimate, _pair(state, rng, habits), task, "compact")


def _pair(state: SessionState, rng: random.Random, habits: Habits) -> tuple[Movie, Movie]:
    seen, asked = state.task.seen, len(state.comparisons)
    if asked and rng.random() < habits.repeat_question:
        last, named = state.comparisons[-1], {movie.name: movie for movie in seen}
        return named[last.better], named[last.worse]
    if rng.random() < habits.any_question:
        first, second = rng.sample(seen, 2)
        return first, second
    return seen[asked % len(seen)], seen[(asked + 1) % len(seen)]


MAX_TOKENS = 256
TAGS = ("think", "interact", "answer")


def movie_words() -> list[str]:
    """Return the name of every movie that a session of the starter's size may hold."""
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


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of movies and estimates composed."""
    return small_qwen3(tokenizer, seed, compose_embeddings=partial(sum_parts, parts=_parts))


def _parts(word: str) -> list[str]:
    """Split a movie into its scores, an estimate into its weights, each with the attribute that it belongs to."""
    for separator, kind in (("/", "score"), (",", "weight")):
        if separator in word and word[0].isdigit():
            return [f"{kind} {i} is {number}" for i, number in enumerate(word.split(separator))]
    return []


#: Three times the default's steps: the pool of sessions has no end, and what several answers imply is learned late.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60}

#: What runs with this model need: the smaller session in the compact style.
DEFAULTS: Mapping[str, Any] = {
    **{f"env.{key}": value for key, value in asdict(STARTER_SIZE).items()},
    "env.prompt": "compact",
    "max_model_len": 128,
    "max_response_tokens": 12,
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
