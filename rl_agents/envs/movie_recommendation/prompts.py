"""What the agent reads, in two styles, and how its response is read.

``paper`` is figure 10 of T3 (appendix C.1) for the questions and figure 11 for the last turn, word for word.
``compact`` says the same in a few words, for small starter models: a movie is called by its scores, written
``0/0.5/1``, an estimate is one word, and the user answers with the movie that is preferred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.envs.movie_recommendation.tasks import Size, Task
from rl_agents.envs.preferences import NO, PAPER_PROMPT, YES, Movie, Vector, read_vector, shown
from rl_agents.envs.tags import TaggedAction, malformed, read_tags

_PAPER_FINAL = """\
Final Turn:
Now you have reached the last turn. Instead of asking a new question, use your most recent preference guess to score \
the following unseen movies and recommend the best one.
{movies}

Here is an example of how to proceed:
Preference vector (guess): 0.2,0.7,0.5
Example Unseen movies:
Movie_A: [0.6,1.0,0.8]
Movie_B: [1.2,0.3,0.4]
Movie_C: [0.5,0.8,0.9]
Scoring:
Movie_A = 0.2*0.6 + 0.7*1.0 + 0.5*0.8 = 1.22
Movie_B = 0.2*1.2 + 0.7*0.3 + 0.5*0.4 = 0.65
Movie_C = 0.2*0.5 + 0.7*0.8 + 0.5*0.9 = 1.11
Best = Movie_A
<answer>Movie_A</answer>

Your goal: Now do the same with your own latest preference vector and the given unseen movies. After scoring, return \
the final answer enclosed within <answer> and </answer>. The answer must be exactly one of the unseen movie names."""

_PAPER_LAST_REMINDER = "Return the name of one unseen movie inside <answer> and </answer>."

NOT_A_QUESTION = "not-a-question"
NOT_A_VECTOR = "not-a-vector"
UNKNOWN_MOVIE = "unknown-movie"
FINAL_TURN = "final-turn"

PAPER_MALFORMED = {
    NOT_A_QUESTION: "inside <interact> must stand 'Guess: w1,w2,...' and 'Question: Would you prefer A over B?'",
    NOT_A_VECTOR: "the guess must be one number in [0,1] for each attribute, separated by commas",
    UNKNOWN_MOVIE: "a question must name two different movies that you were given",
    FINAL_TURN: "no further question is possible; recommend one unseen movie inside <answer> and </answer>",
}

#: Longer texts are no question; keeps the reading of hostile ones cheap.
MAX_QUESTION = 2000


@dataclass(frozen=True, slots=True)
class Question:
    """An estimate of the weights and the two movies to compare."""

    estimate: Vector
    first: Movie
    second: Movie


def movie_name(movie: Movie, size: Size, style: str) -> str:
    """Return what a movie is called: its name, or in the compact style its scores."""
    if style == "compact":
        return "/".join(shown(score, size.score_levels) for score in movie.scores)
    return movie.name


def _listed(movies: Sequence[Movie], size: Size, style: str) -> str:
    if style == "compact":
        return " ".join(movie_name(movie, size, style) for movie in movies)
    rows = (",".join(shown(score, size.score_levels) for score in movie.scores) for movie in movies)
    return "\n".join(f"{movie.name}: [{row}]" for movie, row in zip(movies, rows, strict=True))


def first_observation(task: Task, style: str) -> str:
    """Return the task description with the seen movies."""
    movies = _listed(task.seen, task.size, style)
    if style == "compact":
        return f"seen {movies}"
    return PAPER_PROMPT.format(n=task.size.attributes, seen=task.size.seen, movies=movies)


def final_request(task: Task, style: str) -> str:
    """Return the words of the last turn, with the unseen movies."""
    movies = _listed(task.unseen, task.size, style)
    return f"best {movies}" if style == "compact" else _PAPER_FINAL.format(movies=movies)


def final_reminder(style: str) -> str:
    """Return what asks for the recommendation once the unseen movies are known; nothing in the compact style."""
    return "" if style == "compact" else _PAPER_LAST_REMINDER


def reply_observation(question: Question, reply: str, size: Size, style: str) -> str:
    """Return the user's answer to a question; in the compact style it names the movie that the user prefers."""
    if style != "compact":
        return reply
    preferred = {YES: question.first, NO: question.second}
    return movie_name(preferred[reply], size, style) if reply in preferred else reply.lower()


def question_text(question: Question) -> str:
    """Return the question in the paper's words."""
    return f"Would you prefer {question.first.name} over {question.second.name}?"


def read_question(content: str, task: Task, style: str) -> Question | TaggedAction:
    """Read what stands inside ``<interact>``; a malformed action when it is not an estimate and a question."""
    parts = _compact_parts(content) if style == "compact" else _paper_parts(content)
    if parts is None:
        return malformed(NOT_A_QUESTION)
    vector, first, second = parts
    estimate = read_vector(vector, task.size.attributes)
    if estimate is None:
        return malformed(NOT_A_VECTOR)
    named = {movie_name(movie, task.size, style): movie for movie in task.seen}
    if first not in named or second not in named or first == second:
        return malformed(UNKNOWN_MOVIE)
    return Question(estimate, named[first], named[second])


def _compact_parts(content: str) -> tuple[str, str, str] | None:
    words = content[:MAX_QUESTION].split()
    return (words[0], words[1], words[2]) if len(words) == 3 else None


def _paper_parts(content: str) -> tuple[str, str, str] | None:
    """Split ``Guess: V Question: Would you prefer A over B?``; letters of either case, any white space."""
    if len(content) > MAX_QUESTION:
        return None
    text = " ".join(content.split())
    guess, found, question = _partition(text, "question:")
    head, guessed, vector = _partition(guess, "guess:")
    opening, prefers, pair = _partition(question, "would you prefer ")
    first, over, second = _partition(pair, " over ")
    if not (found and guessed and prefers and over) or head.strip() or opening.strip():
        return None
    return vector.strip(), first.strip(), second.strip().removesuffix("?").strip()


def _partition(text: str, separator: str) -> tuple[str, bool, str]:
    """`str.partition` that takes letters of either case for the same."""
    found = re.search(re.escape(separator), text, re.IGNORECASE)
    return (text[: found.start()], True, text[found.end() :]) if found else (text, False, "")


def parse_action(response: str, task: Task, style: str, final: bool) -> TaggedAction | Question:
    """Read one action from ``response``; see `rl_agents.envs.tags.read_tags`.

    A question is malformed in the last turn. Any answer is well-formed.
    """
    action = read_tags(response)
    if action.kind != "interact":
        return action
    return malformed(FINAL_TURN) if final else read_question(action.content, task, style)
