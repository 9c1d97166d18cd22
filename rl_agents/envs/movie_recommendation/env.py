"""MovieRecommendation (T3, section 3.1, appendix C.1 and C.3).

The ``paper`` prompts are T3's figure 10 for the questions and figure 11 for the last turn, word for word. In
``compact``, the name of a movie is its scores, such as ``0/0.5/1``, an estimate is one word, and the user answers with
the preferred movie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from rl_agents.envs import preferences
from rl_agents.envs.movie_recommendation import SPEC, MovieRecommendationOptions
from rl_agents.envs.movie_recommendation.tasks import Size, Task, find_task
from rl_agents.envs.preferences import Comparison, Movie, Question
from rl_agents.envs.stateful import EpisodeState, StepResult, TaggedAction, TaggedEnv, malformed

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

FINAL_TURN = "final-turn"


def movie_name(movie: Movie, size: Size, style: str) -> str:
    """Return a movie's name, or its scores in the compact style."""
    if style == "compact":
        return "/".join(preferences.shown(score, size.score_levels) for score in movie.scores)
    return movie.name


def _listed(movies: Sequence[Movie], size: Size, style: str) -> str:
    if style == "compact":
        return " ".join(movie_name(movie, size, style) for movie in movies)
    rows = (",".join(preferences.shown(score, size.score_levels) for score in movie.scores) for movie in movies)
    return "\n".join(f"{movie.name}: [{row}]" for movie, row in zip(movies, rows, strict=True))


def final_request(task: Task, style: str) -> str:
    movies = _listed(task.unseen, task.size, style)
    return f"best {movies}" if style == "compact" else _PAPER_FINAL.format(movies=movies)


@dataclass(frozen=True, slots=True)
class SessionState(EpisodeState):
    """The state of an episode.

    Attributes:
        similarity: cosine of the last estimate with the hidden weights; None before the first.
        comparisons: all answered questions, with repetitions.
        final: the unseen movies are known, and the next turn must recommend one.
        chosen: the recommendation; empty before it.
    """

    task: Task
    similarity: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    final: bool = False
    chosen: str = ""

    @property
    def success(self) -> bool:
        return self.chosen == self.task.best.name


class MovieRecommendationEnv(TaggedEnv[SessionState, MovieRecommendationOptions]):
    """Ask which of two movies a user prefers, then recommend an unseen one.

    An ``<answer>`` with a vector ends the questions early, as in figure 10, and the last turn begins. Any other answer
    is the final recommendation.
    """

    registered = SPEC
    reasons = MappingProxyType(
        {
            preferences.NOT_A_QUESTION: (
                "inside <interact> must stand 'Guess: w1,w2,...' and 'Question: Would you prefer A over B?'"
            ),
            preferences.NOT_A_VECTOR: "the guess must be one number in [0,1] for each attribute, separated by commas",
            preferences.UNKNOWN_MOVIE: "a question must name two different movies that you were given",
            FINAL_TURN: "no further question is possible; recommend one unseen movie inside <answer> and </answer>",
        }
    )

    def _begin(self, task_id: str) -> tuple[str, SessionState]:
        task, final = find_task(task_id), self.max_turns == 1
        movies, size = _listed(task.seen, task.size, self.options.prompt), task.size
        prompt = "seen {movies}" if self._compact else preferences.PAPER_PROMPT
        observation = prompt.format(n=size.attributes, seen=size.seen, movies=movies)
        return self._with_request(observation, task) if final else observation, SessionState(task, final=final)

    def question(self, content: str, state: SessionState) -> Question | TaggedAction:
        """Read an estimate and two seen movies, except in the last turn."""
        if state.final:
            return malformed(FINAL_TURN)
        names = [movie_name(movie, state.task.size, self.options.prompt) for movie in state.task.seen]
        estimate = partial(preferences.read_vector, length=state.task.size.attributes)
        return preferences.read_question(content, self._compact, estimate, names, preferences.UNKNOWN_MOVIE)

    @property
    def answer_instruction(self) -> str:
        """What the agent reads if its next turn must answer: the text of the last turn, once."""
        state = self._state
        if state is None or state.final:  # the unseen movies are known
            return "" if self._compact else _PAPER_LAST_REMINDER
        return final_request(state.task, self.options.prompt)

    def _ask(self, state: SessionState, question: Question) -> StepResult:
        task, first, second = state.task, state.task.seen[question.first], state.task.seen[question.second]
        observation = reply = question.reply(task.weights, task.seen)
        known = preferences.comparison(question.first, question.second, reply)
        similarity = preferences.cosine(question.estimate, task.weights)
        new = replace(state, similarity=similarity, comparisons=(*state.comparisons, known))
        if self._compact:  # the preferred movie
            preferred = {preferences.YES: first, preferences.NO: second}.get(reply)
            observation = movie_name(preferred, task.size, "compact") if preferred else reply.lower()
        progress = preferences.progresses(state.similarity, similarity)
        query = f"Would you prefer {first.name} over {second.name}?"
        return self._end_turn(*self._before_last(new, observation), valid=True, progress=progress, query=query)

    def _answer(self, state: SessionState, content: str) -> StepResult:
        vector = None if state.final else preferences.read_vector(content, state.task.size.attributes)
        if vector is not None:
            similarity = preferences.cosine(vector, state.task.weights)
            observation = final_request(state.task, self.options.prompt)
            progress = preferences.progresses(state.similarity, similarity)
            new = replace(state, similarity=similarity, final=True)
            return self._end_turn(new, observation, valid=True, progress=progress, query="")
        named = {movie_name(movie, state.task.size, self.options.prompt): movie.name for movie in state.task.unseen}
        new = replace(state, chosen=named.get(content, "no such movie"))
        observation, reward = "correct" if new.success else "wrong", float(new.success)
        return self._end_turn(new, observation, reward, valid=True, progress=None, terminated=True, query="")

    def _reject(self, state: SessionState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(*self._before_last(state, self._malformed_text(parsed)), query="")

    def _with_request(self, observation: str, task: Task) -> str:
        space = " " if self._compact else "\n\n"
        return observation + space + final_request(task, self.options.prompt)

    def _before_last(self, new: SessionState, observation: str) -> tuple[SessionState, str]:
        """Begin the last turn if only one is left."""
        if new.final or new.turns + 1 != self.max_turns - 1:
            return new, observation
        return replace(new, final=True), self._with_request(observation, new.task)

    def _report(self, state: SessionState) -> dict[str, Any]:
        task = state.task
        known = sorted(set(state.comparisons))
        said = " ".join(f"{task.seen[i].name}{'<=>'[sign + 1]}{task.seen[j].name}" for i, j, sign in known)
        best = preferences.satisfaction(task.weights, task.best)
        chosen = next((preferences.satisfaction(task.weights, m) for m in task.unseen if m.name == state.chosen), 0.0)
        return {
            "task_id": task.task_id,
            "success": state.success,
            "references": [movie_name(task.best, task.size, self.options.prompt)],
            "anchor": f"{task.task_id} : {said}{' : recommend' if state.final else ''}",
            "metrics": {
                "questions": len(state.comparisons),
                "repeated_questions": len(state.comparisons) - len(known),
                "similarity": state.similarity or 0.0,
                "satisfaction": chosen / best if best else 0.0,
            },
        }


make = MovieRecommendationEnv
