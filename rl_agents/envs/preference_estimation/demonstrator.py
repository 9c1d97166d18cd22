"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It believes what the replies imply, but it goes through the movies by the list or asks about any two, and often answers
after the first reply: reinforcement learning has something to improve. Otherwise it answers after the fourth, so that
its episodes teach what several replies together imply; without them patience could not pay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from rl_agents.envs.preference_estimation.env import GameState, PreferenceEstimationEnv
from rl_agents.envs.preference_estimation.expert import belief, mean_direction
from rl_agents.envs.preference_estimation.prompts import Question, answer_action, question_action
from rl_agents.envs.preference_estimation.spec import PreferenceEstimationOptions
from rl_agents.envs.stateful import Dialogue, play

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

    return play(env, task_id, act)[0]


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
