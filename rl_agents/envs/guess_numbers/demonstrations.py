"""The scripted player of GuessNumbers, and the warm-start model: its words, its weights, what it is taught.

A general language model plays a little before reinforcement learning starts. This 0.1 M parameter model has to be
brought there first: it imitates `demonstrate`, a deliberately mediocre player that lists the remaining candidates in
``<think>``, but wastes turns on random guesses and answers before it can know. Each number and each feedback is one
token, and at most nine candidates remain after the first feedback, so each turn only has to thin out the last list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agents.envs.demonstrations import TAGS, Act, ScriptedPlayer, word_starter
from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.tasks import SUBGROUPS, codes, feedback_word
from rl_agents.envs.small_model import sum_parts

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player; it wins about three games in four with these.

    Attributes:
        repeat_guess: probability of a wasted turn: the last guess is made again, although its feedback is known.
        premature_answer: probability per turn of answering while several candidates remain.
    """

    repeat_guess: float = 0.2
    premature_answer: float = 0.2


def reading_order(code: str, first_guess: str) -> tuple[int, ...]:
    """Return the sort key in which candidates are listed: each digit's position in the first guess.

    The k-th candidate is then the same rearrangement of the first guess whatever its digits are. Digits that the
    first guess lacks come last, ascending.
    """
    return tuple(first_guess.index(d) if d in first_guess else len(first_guess) + int(d) for d in code)


def _begin(env: GuessNumbersEnv, rng: random.Random, habits: Habits) -> Act:
    first_guess = last_guess = env.state.task.first_guess

    def act(observation: str, hurried: bool) -> str:
        nonlocal last_guess
        candidates = sorted(env.state.remaining, key=lambda code: reading_order(code, first_guess))
        kind, last_guess = _choose(candidates, last_guess, rng, habits)
        return f"<think> {' '.join(candidates)} </think> <{kind}> {last_guess} </{kind}>"

    return act


def _choose(candidates: Sequence[str], last_guess: str, rng: random.Random, habits: Habits) -> tuple[str, str]:
    """Return ``(tag, code)``. The first listed candidate stands for all: a small model can find it by position."""
    if len(candidates) == 1 or rng.random() < habits.premature_answer:
        return "answer", candidates[0]
    return "interact", last_guess if rng.random() < habits.repeat_guess else candidates[0]


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, feedback, and all numbers."""
    prompts = ["of", ":", "3", "4", "5", "invalid", "no-action", "several-actions", "not-a-code", "correct", "wrong"]
    longest = max(group.a for group in SUBGROUPS)
    feedbacks = [feedback_word((x, y)) for x in range(longest + 1) for y in range(longest + 1 - x)]
    games = sorted({(group.a, group.b) for group in SUBGROUPS})
    numbers = sorted({code for a, b in games for code in codes(a, b)}, key=lambda code: (len(code), code))
    return [*prompts, *feedbacks, *numbers]


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of numbers and feedbacks; see `sum_parts`."""
    sum_parts(weight, vocab, _parts, _terms)


def _parts(word: str) -> list[str]:
    """Split a number into its (position, digit) pairs and its digits, a feedback word into its two counts."""
    if re.fullmatch(r"[1-9]{2,}", word):
        return [f"position {i} is {digit}" for i, digit in enumerate(word)] + [f"has {digit}" for digit in word]
    if re.fullmatch(r"\dA\dB", word):
        return [f"A is {word[0]}", f"B is {word[2]}"]
    return []


def _terms(word: str) -> int:
    """A number's digits count once, although each is there with its position and without."""
    return len(word) if word.isdigit() else len(_parts(word))


STARTER = word_starter(
    ScriptedPlayer(GuessNumbersEnv, _begin, Habits()),
    words,
    tags=TAGS,
    max_tokens=512,
    # Four heads of width 16 instead of two of width 32 did clearly worse after the same number of steps.
    compose=compose_embeddings,
    # A turn lists nine candidates at most.
    defaults={"max_model_len": 256, "max_response_tokens": 24, "eval_episodes": 256},
)
