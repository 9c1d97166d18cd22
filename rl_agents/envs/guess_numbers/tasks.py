"""The tasks of GuessNumbers: a code length, a number of symbols, a first guess and a secret; ``3-4-0-3/123/231``.

Source: T3, appendix C.1 and table 5 (rules and sizes; the paper's split is not published).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from rl_agents.envs.guess_numbers import GuessNumbersOptions
from rl_agents.envs.task_sets import TaskSets, held_out, unknown_task

Feedback = tuple[int, int]
"""``(x, y)`` of ``xAyB``."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Tasks with the same dynamics: code length, number of symbols, and the first guess's feedback ``x0 A y0 B``."""

    a: int
    b: int
    x0: int
    y0: int

    @property
    def name(self) -> str:
        """As in task ids, for example ``3-4-0-3``."""
        return f"{self.a}-{self.b}-{self.x0}-{self.y0}"


SUBGROUPS = tuple(
    SubGroup(*sizes)
    for sizes in (
        (3, 4, 0, 3), (3, 4, 2, 0), (3, 4, 1, 2), (3, 5, 1, 2), (3, 5, 0, 3), (3, 5, 1, 0), (3, 5, 2, 0), (4, 4, 0, 4),
        (4, 5, 3, 0),
    )
)  # fmt: skip
"""The nine sub-groups of T3, appendix C.1, in the paper's order."""


@cache
def codes(a: int, b: int) -> tuple[str, ...]:
    """Return all ``b! / (b - a)!`` codes of ``a`` distinct digits from 1 to ``b``, ascending.

    >>> codes(2, 3)
    ('12', '13', '21', '23', '31', '32')
    """
    digits = "123456789"[:b]
    return tuple("".join(code) for code in itertools.permutations(digits, a))


def code_error(text: str, a: int, b: int) -> str:
    """Return why ``text`` is not a code of ``a`` distinct digits from 1 to ``b``; empty if it is one."""
    if len(text) != a or not (text.isascii() and text.isdigit()):
        return f"{text[:20]!a} is not a {a}-digit number"
    if any(not 1 <= int(digit) <= b for digit in text):
        return f"'{text}' has digits outside 1 to {b}"
    if len(set(text)) != a:
        return f"'{text}' repeats a digit"
    return ""


@cache
def feedback(secret: str, guess: str) -> Feedback:
    """Return ``(x, y)``: digits of ``guess`` in the right position, and digits at another position.

    >>> feedback("231", "123")
    (0, 3)
    """
    if len(secret) != len(guess):
        raise ValueError(f"secret has {len(secret)} digits, guess {len(guess)}")
    exact = sum(s == g for s, g in zip(secret, guess, strict=True))
    return exact, sum(digit in secret for digit in guess) - exact


def feedback_word(value: Feedback) -> str:
    """Return the one-word form.

    >>> feedback_word((0, 3))
    '0A3B'
    """
    return f"{value[0]}A{value[1]}B"


def consistent(candidates: Iterable[str], guess: str, value: Feedback) -> tuple[str, ...]:
    """Keep the candidates that have the feedback ``value`` for ``guess``.

    What is left of all codes after the feedback so far is the oracle's hypothesis set.

    >>> consistent(codes(3, 4), "123", (0, 3))
    ('231', '312')
    """
    return tuple(code for code in candidates if feedback(code, guess) == value)


def set_progresses(guess: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Softer rule: the guess shrank the hypothesis set, or is the only member of a set that cannot shrink."""
    return len(after) < len(before) or (len(before) == 1 and guess in before)


#: Number of test tasks.
TESTS = 382
SPLIT_SEED = "guess_numbers-2025"


@dataclass(frozen=True, slots=True)
class Task:
    """One game: the first guess, which is made for the agent, and the secret."""

    subgroup: SubGroup
    first_guess: str
    secret: str

    @property
    def task_id(self) -> str:
        return f"{self.subgroup.name}/{self.first_guess}/{self.secret}"


@cache
def all_tasks() -> dict[str, Task]:
    """Return every (first guess, secret) pair whose feedback is its sub-group's, by id."""
    found = [
        Task(group, guess, secret)
        for group in SUBGROUPS
        for guess, secret in itertools.product(codes(group.a, group.b), repeat=2)
        if feedback(secret, guess) == (group.x0, group.y0)
    ]
    return {task.task_id: task for task in found}


def find_task(task_id: str) -> Task:
    tasks = all_tasks()
    if task_id not in tasks:
        raise unknown_task("guess_numbers", task_id, tasks, f"<sub-group>/<first guess>/<secret>, {next(iter(tasks))}")
    return tasks[task_id]


@cache
def _splits() -> TaskSets:
    return held_out(sorted(all_tasks()), SPLIT_SEED, TESTS)


def task_ids(split: str, options: GuessNumbersOptions) -> list[str]:
    return list(_splits()[split])
