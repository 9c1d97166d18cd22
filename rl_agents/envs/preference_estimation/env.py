"""PreferenceEstimation (T3, section 3.1, appendix C.1 and C.3). The ``paper`` prompt is T3's figure 10 word for word.

In ``compact``, numbers are whole levels, an estimate is one word such as ``5,10,0``, and the name of a movie is its
scores, such as ``4/2/10``. The reply is the preferred movie, ``>`` (``=`` for Equal), and the other movie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rl_agents.envs import preferences
from rl_agents.envs.preference_estimation import SPEC, PreferenceEstimationOptions
from rl_agents.envs.preference_estimation.tasks import Task, find_task
from rl_agents.envs.preferences import EQUAL, NO, Comparison, Movie, Question, Vector
from rl_agents.envs.stateful import EpisodeState, StepResult, TaggedAction, TaggedEnv

SAME_MOVIE = "same-movie"
ANSWER_NOW = (
    "No further question is possible. You must now output your final preference vector inside <answer> and </answer>."
)

_LONGEST_CONTENT = 1000


def movie_names(task: Task, style: str) -> tuple[str, ...]:
    """Return the names of the movies: ``Movie_1`` and so on, or their scores in the compact style."""
    return tuple(scores_word(movie) if style == "compact" else movie.name for movie in task.movies)


def scores_word(movie: Movie) -> str:
    """Return a movie's scores as one word, in levels."""
    return "/".join(map(str, movie.scores))


def read_estimate(content: str, task: Task, style: str) -> Vector | None:
    """Read a preference vector: ``0.2,0.7,1``, or levels such as ``2,7,10`` in the compact style; None: it is none."""
    if len(content) > _LONGEST_CONTENT:
        return None
    if style == "paper":
        return preferences.read_vector(content, len(task.weights))
    numbers = content.split(",")
    values = {str(level): level / (task.levels - 1) for level in range(task.levels)}
    known = len(numbers) == len(task.weights) and all(number in values for number in numbers)
    return tuple(values[number] for number in numbers) if known else None


def question_text(task: Task, first: int, second: int, style: str) -> str:
    """Return the question for two movies, without the estimate."""
    names = movie_names(task, style)
    if style == "compact":
        return f"{names[first]} {names[second]}"
    return f"Would you prefer {names[first]} over {names[second]}?"


def estimate_text(estimate: Sequence[float], task: Task, style: str) -> str:
    """Return an estimate with two decimals, or in whole levels in the compact style."""
    if style == "compact":
        return ",".join(str(int(x * (task.levels - 1) + 0.5)) for x in estimate)
    return ",".join(f"{round(x, 2):g}" for x in estimate)


@dataclass(frozen=True, slots=True)
class GameState(EpisodeState):
    """The state of an episode.

    Attributes:
        similarity: cosine of the last estimate (or of the answer) with the hidden vector; None before the first.
        known: results of the replies, each question once, ascending.
        repeated_questions: number of questions whose reply was known.
    """

    task: Task
    similarity: float | None = None
    known: tuple[Comparison, ...] = ()
    repeated_questions: int = 0
    success: bool = False


class PreferenceEstimationEnv(TaggedEnv[GameState, PreferenceEstimationOptions]):
    """Infer a hidden preference vector from pairwise questions."""

    registered = SPEC
    answer_now = ANSWER_NOW

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = find_task(task_id)
        if self._compact:
            return " ".join(movie_names(task, "compact")), GameState(task)
        movies = "\n".join(f"{m.name}: [{preferences.shown_vector(m.scores, task.levels)}]" for m in task.movies)
        prompt = preferences.PAPER_PROMPT.format(n=len(task.weights), seen=len(task.movies), movies=movies)
        return prompt, GameState(task)

    def question(self, content: str, state: GameState) -> Question | TaggedAction:
        """Read an estimate with all numbers in [0, 1] and two different movies."""
        names = [name.lower() for name in movie_names(state.task, self.options.prompt)]
        estimate = partial(read_estimate, task=state.task, style=self.options.prompt)
        return preferences.read_question(content.lower(), self._compact, estimate, names, SAME_MOVIE)

    @property
    def reasons(self) -> dict[str, str]:
        numbers = len(self.state.task.weights)
        return {
            preferences.NOT_A_QUESTION: (
                'inside <interact> write "Guess: w1,w2,..." and "Question: Would you prefer A over B?"'
            ),
            preferences.NOT_A_VECTOR: f"the guess must be {numbers} comma-separated numbers in [0,1]",
            preferences.UNKNOWN_MOVIE: "the question must name two of the given movies",
            SAME_MOVIE: "the question must name two different movies",
        }

    def _ask(self, state: GameState, question: Question) -> StepResult:
        task = state.task
        similarity = preferences.cosine(question.estimate, task.weights)
        reply = question.reply(task.weights, task.movies)
        fact = preferences.comparison(question.first, question.second, reply)
        new = replace(
            state,
            similarity=similarity,
            known=tuple(sorted({*state.known, fact})),
            repeated_questions=state.repeated_questions + (fact in state.known),
        )
        progress = preferences.progresses(state.similarity, similarity)
        query = question_text(task, question.first, question.second, self.options.prompt)
        observation = f"The user's reply to your latest question: {reply}."
        if self._compact:
            first, second = (scores_word(task.movies[i]) for i in (question.first, question.second))
            first, second = (second, first) if reply == NO else (first, second)
            observation = f"{first} {'=' if reply == EQUAL else '>'} {second}"
        return self._end_turn(new, observation, valid=True, progress=progress, query=query)

    def _answer(self, state: GameState, content: str) -> StepResult:
        estimate = read_estimate(content, state.task, self.options.prompt)
        similarity = 0.0 if estimate is None else preferences.cosine(estimate, state.task.weights)
        success = similarity > self.options.threshold
        return self._end_turn(
            replace(state, similarity=similarity, success=success),
            "correct" if success else "wrong",
            float(success),
            valid=True,
            progress=preferences.progresses(state.similarity, similarity),
            terminated=True,
        )

    def _report(self, state: GameState) -> dict[str, Any]:
        task = state.task
        movies = " ".join(scores_word(movie) for movie in task.movies)
        replies = " ".join(f"{i + 1}{'<=>'[sign + 1]}{j + 1}" for i, j, sign in state.known)
        return {
            "task_id": task.task_id,
            "success": state.success,
            "references": [estimate_text([w / (task.levels - 1) for w in task.weights], task, self.options.prompt)],
            "anchor": f"{movies} : {replies}",
            "metrics": {
                "similarity": state.similarity or 0.0,
                "questions": len(state.known),
                "repeated_questions": state.repeated_questions,
            },
        }


make = PreferenceEstimationEnv
