"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It believes what the answers imply, but asks without a plan, asks again what it knows, often stops after the first
question and sometimes recommends any movie: reinforcement learning has something to improve. Those episodes that go on
go to the end, so that they teach what several answers together imply; without them patience could not pay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from rl_agents.envs.movie_recommendation.env import MovieRecommendationEnv, SessionState
from rl_agents.envs.movie_recommendation.expert import belief, estimate_text, recommendation, written_question
from rl_agents.envs.movie_recommendation.prompts import movie_name
from rl_agents.envs.movie_recommendation.spec import MovieRecommendationOptions
from rl_agents.envs.preferences import Movie
from rl_agents.envs.stateful import Dialogue, play


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
