"""The scripted player of GuessNumbers, and the warm-start model of 0.1 M parameters that imitates it.

The player lists the remaining candidates in ``<think>``. Each number and each feedback is one token, and at most nine
candidates remain after the first feedback, so a turn only shortens the last list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.tasks import SUBGROUPS, codes, feedback_word
from rl_agents.envs.starters import Act, ScriptedPlayer, Slips, sum_parts, word_starter

#: Per turn: the last guess again, and an answer while several candidates remain. It wins about three of four games.
SLIPS = {"repeat_guess": 0.2, "premature_answer": 0.2}


def reading_order(code: str, first_guess: str) -> tuple[int, ...]:
    """Return the sort key of a candidate in lists: each digit's position in the first guess.

    So the k-th candidate is always the same rearrangement of the first guess. Digits that the first guess lacks come
    last, ascending.
    """
    return tuple(first_guess.index(d) if d in first_guess else len(first_guess) + int(d) for d in code)


def _begin(env: GuessNumbersEnv, slips: Slips) -> Act:
    first_guess = last_guess = env.state.task.first_guess

    def act(observation: str, hurried: bool) -> str:
        nonlocal last_guess
        candidates = sorted(env.state.remaining, key=lambda code: reading_order(code, first_guess))
        kind, last_guess = _choose(candidates, last_guess, slips)
        return f"<think> {' '.join(candidates)} </think> <{kind}> {last_guess} </{kind}>"

    return act


def _choose(candidates: Sequence[str], last_guess: str, slips: Slips) -> tuple[str, str]:
    """Return ``(tag, code)``. It is always the first candidate, which a small model can find by its position."""
    if len(candidates) == 1 or slips("premature_answer"):
        return "answer", candidates[0]
    return "interact", last_guess if slips("repeat_guess") else candidates[0]


def words() -> list[str]:
    prompts = ["of", ":", "3", "4", "5", "invalid", "no-action", "several-actions", "not-a-code", "correct", "wrong"]
    longest = max(group.a for group in SUBGROUPS)
    feedbacks = [feedback_word((x, y)) for x in range(longest + 1) for y in range(longest + 1 - x)]
    games = sorted({(group.a, group.b) for group in SUBGROUPS})
    numbers = sorted({code for a, b in games for code in codes(a, b)}, key=lambda code: (len(code), code))
    return [*prompts, *feedbacks, *numbers]


def _parts(word: str) -> list[str]:
    """Split a number into its (position, digit) pairs and its digits, a feedback word into its two counts."""
    if re.fullmatch(r"[1-9]{2,}", word):
        return [f"position {i} is {digit}" for i, digit in enumerate(word)] + [f"has {digit}" for digit in word]
    if re.fullmatch(r"\dA\dB", word):
        return [f"A is {word[0]}", f"B is {word[2]}"]
    return []


def _terms(word: str) -> int:
    """Return the number of terms. A digit counts once, although it has a part with and one without its position."""
    return len(word) if word.isdigit() else len(_parts(word))


compose_embeddings = partial(sum_parts, parts=_parts, terms=_terms)


def summarize(turns: Sequence[tuple[str, str]]) -> str:
    """Return the last turn's candidates and guess, without tags."""
    return " ".join(word for word in turns[-1][1].split() if word.isdigit())


STARTER = word_starter(
    ScriptedPlayer(GuessNumbersEnv, _begin, SLIPS),
    words,
    max_tokens=512,
    summarize=summarize,
    # Four heads of width 16 were clearly worse than two of width 32 after the same number of steps.
    compose=compose_embeddings,
    # A turn lists at most nine candidates.
    defaults={"max_model_len": 256, "max_response_tokens": 24, "eval_episodes": 256},
)
