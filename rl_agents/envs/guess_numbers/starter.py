"""The scripted player of GuessNumbers, and the small starter model: its words, its weights, what it is taught.

A general language model plays a little before reinforcement learning starts. This 0.1 M parameter model has to be
brought there first: it imitates `demonstrate`, a deliberately mediocre player that lists the remaining candidates in
``<think>``, but wastes turns on random guesses and answers before it can know. Each number and each feedback is one
token, and at most nine candidates remain after the first feedback, so each turn only has to thin out the last list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.rules import SUBGROUPS, codes, feedback_word
from rl_agents.envs.guess_numbers.spec import GuessNumbersOptions
from rl_agents.envs.guess_numbers.tasks import find_task
from rl_agents.envs.small_model import IMITATION, small_qwen3, sum_parts, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, play

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


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


MAX_TOKENS = 512
TAGS = ("think", "interact", "answer")


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, feedback, and all numbers."""
    prompts = ["of", ":", "3", "4", "5", "invalid", "no-action", "several-actions", "not-a-code", "correct", "wrong"]
    longest = max(group.a for group in SUBGROUPS)
    feedbacks = [feedback_word((x, y)) for x in range(longest + 1) for y in range(longest + 1 - x)]
    games = sorted({(group.a, group.b) for group in SUBGROUPS})
    numbers = sorted({code for a, b in games for code in codes(a, b)}, key=lambda code: (len(code), code))
    return [*prompts, *feedbacks, *numbers]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, number and feedback embeddings composed.

    Four heads of width 16 in place of two of width 32 did clearly worse after the same number of steps.
    """
    return small_qwen3(tokenizer, seed, compose_embeddings=compose_embeddings)


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


#: What runs with this model need: it reads the compact prompts only, and its longest turn lists nine candidates.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "max_model_len": 256,
    "max_response_tokens": 24,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 256,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=IMITATION,
    defaults=DEFAULTS,
)
