"""What the agent reads, in two styles, and how its response is read.

``paper`` is figure 10 of T3 (appendix C.1) word for word; ``compact`` says the same in a few words for small starter
models: numbers are whole levels, an estimate is one word such as ``5,10,0``, and a movie is called by its scores, such
as ``4/2/10``. The reply names the preferred movie, ``>`` (``=`` for Equal), and the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.envs.preference_estimation.tasks import Task
from rl_agents.envs.preferences import EQUAL, NO, PAPER_PROMPT, Movie, Vector, read_vector, shown_vector
from rl_agents.envs.tags import TaggedAction, malformed, read_tags

PAPER_ANSWER_NOW = (
    "No further question is possible. You must now output your final preference vector inside <answer> and </answer>."
)

NOT_A_QUESTION = "not-a-question"
NOT_A_VECTOR = "not-a-vector"
UNKNOWN_MOVIE = "unknown-movie"
SAME_MOVIE = "same-movie"

_LONGEST_CONTENT = 1000
_PAPER_QUESTION = re.compile(
    r"Guess:([^\n:]*?)\s+Question:\s*Would you prefer\s+(\S+)\s+over\s+(\S+?)\s*\?", re.IGNORECASE
)
_COMPACT_QUESTION = re.compile(r"(\S+)\s+(\S+)\s+(\S+)")


@dataclass(frozen=True, slots=True)
class Question:
    """A readable question: the estimate named with it, and the positions of the two movies."""

    estimate: Vector
    first: int
    second: int


def movie_names(task: Task, style: str) -> tuple[str, ...]:
    """Return what the movies are called: ``Movie_1`` and so on, or by their scores in the compact style."""
    return tuple(scores_word(movie) if style == "compact" else movie.name for movie in task.movies)


def scores_word(movie: Movie) -> str:
    """Return a movie's scores as one word, in levels."""
    return "/".join(map(str, movie.scores))


def read_estimate(content: str, task: Task, style: str) -> Vector | None:
    """Read a preference vector: ``0.2,0.7,1``, or levels such as ``2,7,10`` in the compact style.

    None when it is none, or has a number outside [0, 1].
    """
    if len(content) > _LONGEST_CONTENT:
        return None
    if style == "paper":
        return read_vector(content, len(task.weights))
    numbers = content.split(",")
    values = {str(level): level / (task.levels - 1) for level in range(task.levels)}
    known = len(numbers) == len(task.weights) and all(number in values for number in numbers)
    return tuple(values[number] for number in numbers) if known else None


def parse_action(response: str, task: Task, style: str) -> TaggedAction | Question:
    """Read one action from ``response``; see `rl_agents.envs.tags.read_tags`.

    A question must name an estimate with every number in [0, 1] and two different movies. An answer stays text: it
    may be anything, as every answer is final and simply right or wrong.
    """
    action = read_tags(response)
    if action.kind != "interact":
        return action
    form = _COMPACT_QUESTION if style == "compact" else _PAPER_QUESTION
    match = form.fullmatch(action.content) if len(action.content) <= _LONGEST_CONTENT else None
    if match is None:
        return malformed(NOT_A_QUESTION)
    estimate = read_estimate(match[1], task, style)
    if estimate is None:
        return malformed(NOT_A_VECTOR)
    positions = {name.lower(): position for position, name in enumerate(movie_names(task, style))}
    first, second = positions.get(match[2].lower()), positions.get(match[3].lower())
    if first is None or second is None:
        return malformed(UNKNOWN_MOVIE)
    return malformed(SAME_MOVIE) if first == second else Question(estimate, first, second)


def question_text(task: Task, first: int, second: int, style: str) -> str:
    """Return the question for two movies, as the agent writes it below its guess."""
    names = movie_names(task, style)
    if style == "compact":
        return f"{names[first]} {names[second]}"
    return f"Would you prefer {names[first]} over {names[second]}?"


def estimate_text(estimate: Sequence[float], task: Task, style: str) -> str:
    """Return an estimate as the agent writes it: to two decimals, or in whole levels in the compact style."""
    if style == "compact":
        return ",".join(str(int(x * (task.levels - 1) + 0.5)) for x in estimate)
    return ",".join(f"{round(x, 2):g}" for x in estimate)


def question_action(task: Task, question: Question, style: str) -> str:
    """Return the action that puts ``question``."""
    estimate = estimate_text(question.estimate, task, style)
    text = question_text(task, question.first, question.second, style)
    if style == "compact":
        return f"<interact> {estimate} {text} </interact>"
    return f"<interact>\nGuess: {estimate}\nQuestion: {text}\n</interact>"


def answer_action(estimate: Sequence[float], task: Task, style: str) -> str:
    """Return the action that answers with ``estimate``."""
    space = " " if style == "compact" else ""
    return f"<answer>{space}{estimate_text(estimate, task, style)}{space}</answer>"


def first_observation(task: Task, style: str) -> str:
    if style == "compact":
        return " ".join(movie_names(task, style))
    movies = "\n".join(f"{m.name}: [{shown_vector(m.scores, task.levels)}]" for m in task.movies)
    return PAPER_PROMPT.format(n=len(task.weights), seen=len(task.movies), movies=movies)


def reply_observation(task: Task, question: Question, reply: str, style: str) -> str:
    """Return the user's ``reply`` (``Yes``, ``No`` or ``Equal``) in words of ours, or such as ``4/2/10 > 0/1/5``."""
    if style == "compact":
        names = movie_names(task, style)
        first, second = names[question.first], names[question.second]
        return f"{second} > {first}" if reply == NO else f"{first} {'=' if reply == EQUAL else '>'} {second}"
    return f"The user's reply to your latest question: {reply}."
