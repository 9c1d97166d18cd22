"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It always knows the remaining candidates and lists them in ``<think>``, but it wastes turns on random guesses and
answers before it can know: reinforcement learning has something to improve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.spec import GuessNumbersOptions
from rl_agents.envs.guess_numbers.tasks import find_task
from rl_agents.envs.stateful import Dialogue, play


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player; it wins about three games in four with these.

    Attributes:
        repeat_guess: probability of a wasted turn: the last guess is made again, although its feedback is known.
        premature_answer: probability per turn of answering while several candidates remain.
    """

    repeat_guess: float = 0.2
    premature_answer: float = 0.2


HABITS = Habits()


def reading_order(code: str, first_guess: str) -> tuple[int, ...]:
    """Return the sort key in which candidates are listed: each digit's position in the first guess.

    The k-th candidate is then the same rearrangement of the first guess whatever its digits are. Digits that the
    first guess lacks come last, ascending.
    """
    return tuple(first_guess.index(d) if d in first_guess else len(first_guess) + int(d) for d in code)


def demonstrate(
    task_id: str, rng: random.Random, options: GuessNumbersOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = GuessNumbersEnv(replace(options, prompt="compact"), max_turns)
    first_guess = last_guess = find_task(task_id).first_guess

    def act(observation: str) -> tuple[str, str]:
        nonlocal last_guess
        candidates = sorted(env.state.remaining, key=lambda code: reading_order(code, first_guess))
        kind, last_guess = _choose(candidates, last_guess, rng, habits)
        return observation, f"<think> {' '.join(candidates)} </think> <{kind}> {last_guess} </{kind}>"

    return play(env, task_id, act)[0]


def _choose(candidates: Sequence[str], last_guess: str, rng: random.Random, habits: Habits) -> tuple[str, str]:
    """Return ``(tag, code)``. The first listed candidate stands for all: a small model can find it by position."""
    if len(candidates) == 1 or rng.random() < habits.premature_answer:
        return "answer", candidates[0]
    return "interact", last_guess if rng.random() < habits.repeat_guess else candidates[0]
