"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It always knows the remaining candidates and lists them in ``<think>``, but it wastes turns on random guesses and
answers before it can know: reinforcement learning has something to improve.
"""

from __future__ import annotations

import random
from typing import Any
from dataclasses import dataclass

from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.rules import codes, feedback, feedback_word
MODE = "list"
PF = 0.8

Dialogue = list[tuple[str, str]]
"""(observation, action) turns of one episode."""


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Habits of the player.

    Attributes:
        random_guess: probability that a guess is any code of the game instead of a candidate.
        premature_answer: probability per turn of answering while several candidates remain.
    """

    random_guess: float = 0.05
    premature_answer: float = 0.3
    stale_guess: float = 0.3


def reading_order(code: str, first_guess: str) -> tuple[int, ...]:
    """Return the sort key in which candidates are listed: each digit's position in the first guess.

    The k-th candidate is then the same rearrangement of the first guess whatever its digits are, which a small model
    learns much sooner than ascending order. Digits that the first guess lacks come last, ascending.
    """
    return tuple(first_guess.index(d) if d in first_guess else len(first_guess) + int(d) for d in code)


def demonstrate(task_id: str, rng: random.Random, habits: Demonstrator | None = None) -> Dialogue:
    """Play ``task_id`` in the compact style and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = GuessNumbersEnv(prompt="compact")
    observation, _ = env.reset(options={"task_id": task_id})
    dialogue: Dialogue = []
    over = False
    prev: list[Any] = []
    past = [task_id.split('/')[1]]
    while not over:
        action = _act(env, past, prev, rng, habits or Demonstrator())
        dialogue.append((observation, action))
        if '<interact>' in action:
            past.append(action.split()[-2])
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return dialogue


def _act(env: GuessNumbersEnv, past: list[str], prev: list[Any], rng: random.Random, habits: Demonstrator) -> str:
    state = env.snapshot()
    assert state is not None
    group, first = state.task.subgroup, state.task.first_guess
    candidates = sorted(state.remaining, key=lambda code: reading_order(code, first))
    if len(past) > 1 and MODE != "list":
        before = sorted(prev[-1], key=lambda code: reading_order(code, first))
        if MODE == "yes":
            w = [x for c in before for x in (c, "yes" if c in candidates else "no")]
        elif MODE == "fb":
            w = [x for c in before for x in (c, feedback_word(feedback(c, past[-1])))]
        elif MODE == "fb+":
            w = [x for c in before for x in (c, feedback_word(feedback(c, past[-1])))] + [":", *candidates]
        elif MODE == "yes+":
            w = [x for c in before for x in (c, "yes" if c in candidates else "no")] + [":", *candidates]
    else:
        w = candidates
    thought = f"<think> {' '.join(w)} </think>"
    prev.append(state.remaining)
    pick = lambda: candidates[0] if rng.random() < PF else rng.choice(candidates)
    if len(candidates) == 1 or rng.random() < habits.premature_answer:
        return f"{thought} <answer> {pick()} </answer>"
    draw = rng.random()
    guesses = candidates
    if draw < habits.random_guess:
        guesses = codes(group.a, group.b)
    elif draw < habits.random_guess + habits.stale_guess:
        guesses = past
        guesses = past[-1:]
    return f"{thought} <interact> {rng.choice(guesses) if guesses is not candidates else pick()} </interact>"
