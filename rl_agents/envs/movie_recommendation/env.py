"""MovieRecommendation as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most five turns: questions about seen movies, and in the last turn the recommendation of an unseen
one. The unseen movies are shown when the last turn begins. Reward is the exact match of the recommendation (0 or 1).

Sources: T3, section 3.1 (progress); the released code for the movement of the estimate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.movie_recommendation import SPEC, MovieRecommendationOptions, prompts
from rl_agents.envs.movie_recommendation.tasks import Task, find_task, task_ids
from rl_agents.envs.preferences import (
    EQUAL,
    YES,
    Levels,
    Movie,
    Vector,
    cosine,
    preference,
    read_vector,
    satisfaction,
)
from rl_agents.envs.stateful import StepResult, TaggedEnv, observations
from rl_agents.envs.tags import TaggedAction


@dataclass(frozen=True, slots=True, order=True)
class Comparison:
    """An answered question: the user prefers ``better`` to ``worse``, or likes both the same (``equal``)."""

    better: str
    worse: str
    equal: bool


def comparison(first: Movie, second: Movie, reply: str) -> Comparison:
    """Return what the ``reply`` to "first over second?" says; the same whichever way round it was asked."""
    if reply == EQUAL:
        low, high = sorted((first.name, second.name))
        return Comparison(low, high, equal=True)
    better, worse = (first, second) if reply == YES else (second, first)
    return Comparison(better.name, worse.name, equal=False)


def similarity_progresses(estimates: Sequence[Vector], weights: Levels) -> bool:
    """T3's rule: the last estimate is more similar (cosine) to the hidden weights than the one before; a first one is.

    An unchanged estimate is a stall: Sim(v_τ+1, v*) - Sim(v_τ, v*) is then below any Δ_min > 0.
    """
    similarities = [cosine(estimate, weights) for estimate in estimates[-2:]]
    return len(similarities) < 2 or similarities[-1] - similarities[-2] > 0


def movement_progresses(estimates: Sequence[Vector], window: int = 4, threshold: float = 0.28) -> bool:
    """The released code's rule, which needs no oracle: the last ``window`` movements ‖v_t - v_{t-1}‖ average at least
    ``threshold``. Fewer movements than that are progress."""
    movements = [math.dist(old, new) for old, new in itertools.pairwise(estimates)]
    return len(movements) < window or sum(movements[-window:]) / window >= threshold


@dataclass(frozen=True, slots=True)
class SessionState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        estimates: the agent's estimates of the weights, oldest first.
        comparisons: what the user has said; a question that was asked twice stands here twice.
        final: the unseen movies are known and the next turn must recommend one.
        chosen: the recommendation; empty before.
    """

    task: Task
    estimates: tuple[Vector, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    turns: int = 0
    final: bool = False
    chosen: str = ""
    done: bool = False

    @property
    def success(self) -> bool:
        """Whether the best unseen movie was recommended."""
        return self.chosen == self.task.best.name


class MovieRecommendationEnv(TaggedEnv[SessionState, MovieRecommendationOptions]):
    """Ask which of two movies a user prefers, then recommend an unseen one.

    An ``<answer>`` that holds a vector ends the questions early, as figure 10 says: the last turn begins. Any other
    answer is a recommendation and final. ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the session,
    what the user has said and whether the last turn has begun), ``progress`` (None before the first estimate, for
    malformed responses and for recommendations), ``query`` (the question), ``references`` (the best unseen movie), and
    ``metrics``: ``turns``, ``questions``, ``repeated_questions``, ``similarity`` (cosine of the last estimate and the
    weights; 0 without one) and ``satisfaction`` (of the recommendation, as a share of the best movie's).

    Raises:
        InputError: a bad option.
    """

    observation_space = observations(32768)
    registered = SPEC
    task_ids = staticmethod(task_ids)

    def _begin(self, task_id: str) -> tuple[str, SessionState]:
        task, final = find_task(task_id), self.max_turns == 1
        observation = prompts.first_observation(task, self.options.prompt)
        return self._with_request(observation, task) if final else observation, SessionState(task, final=final)

    def _read(self, response: str, state: SessionState) -> TaggedAction | prompts.Question:
        return prompts.parse_action(response, state.task, self.options.prompt, state.final)

    def _reasons(self) -> dict[str, str]:
        return prompts.PAPER_MALFORMED

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer: the words of the last turn, once."""
        state = self._state
        return (
            prompts.final_reminder(self.options.prompt)
            if state is None or state.final
            else prompts.final_request(state.task, self.options.prompt)
        )

    def _ask(self, state: SessionState, question: prompts.Question) -> StepResult:
        reply = preference(state.task.weights, question.first, question.second)
        known = comparison(question.first, question.second, reply)
        new = replace(state, estimates=(*state.estimates, question.estimate), comparisons=(*state.comparisons, known))
        observation = prompts.reply_observation(question, reply, state.task.size, self.options.prompt)
        return self._result(
            new, observation, valid=True, progress=self._progressed(new), query=prompts.question_text(question)
        )

    def _answer(self, state: SessionState, content: str) -> StepResult:
        vector = None if state.final else read_vector(content, state.task.size.attributes)
        if vector is not None:
            new = replace(state, estimates=(*state.estimates, vector), final=True)
            observation = prompts.final_request(state.task, self.options.prompt)
            return self._result(new, observation, valid=True, progress=self._progressed(new))
        named = {
            prompts.movie_name(movie, state.task.size, self.options.prompt): movie.name for movie in state.task.unseen
        }
        new = replace(state, chosen=named.get(content, "no such movie"))
        observation = "correct" if new.success else "wrong"
        return self._result(new, observation, valid=True, progress=None, terminated=True)

    def _reject(self, state: SessionState, parsed: TaggedAction) -> StepResult:
        return self._result(state, self._malformed_text(parsed), valid=False, progress=None)

    def _progressed(self, state: SessionState) -> bool:
        if self.options.progress == "movement":
            return movement_progresses(state.estimates)
        return similarity_progresses(state.estimates, state.task.weights)

    def _with_request(self, observation: str, task: Task) -> str:
        """Add the words of the last turn."""
        space = " " if self.options.prompt == "compact" else "\n\n"
        return observation + space + prompts.final_request(task, self.options.prompt)

    def _result(
        self,
        new: SessionState,
        observation: str,
        *,
        valid: bool,
        progress: bool | None,
        query: str = "",
        terminated: bool = False,
    ) -> StepResult:
        """End the turn; the last one begins when only one is left."""
        if not (new.final or terminated) and new.turns + 1 == self.max_turns - 1:
            new, observation = replace(new, final=True), self._with_request(observation, new.task)
        reward = float(new.success)
        return self._end_turn(
            new, observation, reward, valid=valid, progress=progress, terminated=terminated, query=query
        )

    def _info(self, state: SessionState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        task = state.task
        known = sorted(set(state.comparisons))
        said = " ".join(f"{c.better}{'=' if c.equal else '>'}{c.worse}" for c in known)
        best = satisfaction(task.weights, task.best)
        chosen = next((satisfaction(task.weights, m) for m in task.unseen if m.name == state.chosen), 0.0)
        return {
            "task_id": task.task_id,
            "success": state.success,
            "valid": valid,
            "progress": progress,
            "references": [prompts.movie_name(task.best, task.size, self.options.prompt)],
            "anchor": f"{task.task_id} : {said}{' : recommend' if state.final else ''}",
            "metrics": {
                "turns": float(state.turns),
                "questions": float(len(state.comparisons)),
                "repeated_questions": float(len(state.comparisons) - len(known)),
                "similarity": cosine(state.estimates[-1], task.weights) if state.estimates else 0.0,
                "satisfaction": chosen / best if best else 0.0,
            },
        }


make = MovieRecommendationEnv
