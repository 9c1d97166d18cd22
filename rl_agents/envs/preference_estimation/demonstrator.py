"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It keeps an estimate and moves it after every reply by a fixed share of the difference between the two movies. A quarter
of its questions is drawn at random, so that the reply says little, and it answers too early: reinforcement learning has
something to improve.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.envs.preference_estimation.env import PreferenceEstimationEnv
from rl_agents.envs.preference_estimation.expert import Dialogue
from rl_agents.envs.preference_estimation.prompts import Question, answer_action, question_action
from rl_agents.envs.preference_estimation.tasks import Task, find_task
from rl_agents.envs.preferences import preference

OPEN = 3
"""Movies among which the second one of a question is drawn."""
SIGNS = {"Yes": 1, "Equal": 0, "No": -1}


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Habits of the player; it wins two of five of the starter's games with these.

    Attributes:
        any_question: probability that a question is drawn at random; else it is one whose reply is open by the
            estimate.
        answer_early: probability per turn, after the first, of answering.
        step: share of the movies' difference by which the estimate moves.
    """

    any_question: float = 0.25
    answer_early: float = 0.3
    step: float = 0.3


def demonstrate(
    task_id: str, rng: random.Random, habits: Demonstrator | None = None, **options: Any
) -> tuple[Dialogue, bool]:
    """Play ``task_id`` in the compact style; return the dialogue and whether it was won.

    Raises:
        InputError: unknown task id or option.
    """
    habits = habits or Demonstrator()
    env = PreferenceEstimationEnv(**{**options, "prompt": "compact"})
    observation, info = env.reset(options={"task_id": task_id})
    task = find_task(task_id)
    estimate = [(task.levels - 1) // 2] * len(task.weights)
    dialogue: Dialogue = []
    over = False
    while not over:
        vector = tuple(level / (task.levels - 1) for level in estimate)
        if dialogue and rng.random() < habits.answer_early:
            action = answer_action(vector, task, "compact")
        else:
            first, second = _question(task, estimate, rng, habits)
            action = question_action(task, Question(vector, first, second), "compact")
            estimate = moved(task, estimate, first, second, habits.step)
        dialogue.append((observation, action))
        observation, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return dialogue, bool(info["success"])


def moved(task: Task, estimate: Sequence[int], first: int, second: int, step: float) -> list[int]:
    """Return the estimate, in levels, moved towards the movie that the user prefers."""
    sign = SIGNS[preference(task.weights, task.movies[first], task.movies[second])]
    pairs = zip(estimate, task.movies[first].scores, task.movies[second].scores, strict=True)
    return [min(task.levels - 1, max(0, e + sign * round(step * (a - b)))) for e, a, b in pairs]


def _question(task: Task, estimate: Sequence[int], rng: random.Random, habits: Demonstrator) -> tuple[int, int]:
    """Draw a movie, and one of the `OPEN` that compare with it most openly by the estimate."""
    first, *others = rng.sample(range(len(task.movies)), len(task.movies))
    if rng.random() < habits.any_question:
        return first, others[0]

    def openness(other: int) -> float:
        difference = [a - b for a, b in zip(task.movies[first].scores, task.movies[other].scores, strict=True)]
        return abs(sum(e * d for e, d in zip(estimate, difference, strict=True))) / math.hypot(*difference)

    return first, rng.choice(sorted(others, key=openness)[:OPEN])
