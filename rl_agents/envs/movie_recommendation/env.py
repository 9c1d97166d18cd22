"""MovieRecommendation as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most five turns: questions about seen movies, and in the last turn the recommendation of an unseen
one. The unseen movies are shown when the last turn begins. Reward is the exact match of the recommendation (0 or 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.movie_recommendation.prompts import (
    Question,
    final_reminder,
    final_request,
    first_observation,
    malformed_observation,
    movie_name,
    parse_action,
    question_text,
    reply_observation,
)
from rl_agents.envs.movie_recommendation.rules import (
    Comparison,
    comparison,
    movement_progresses,
    similarity_progresses,
)
from rl_agents.envs.movie_recommendation.spec import SPEC, MovieRecommendationOptions
from rl_agents.envs.movie_recommendation.tasks import Task, find_task, task_ids
from rl_agents.envs.preferences import Vector, cosine, preference, read_vector, satisfaction
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
from rl_agents.envs.tags import TaggedAction


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


class MovieRecommendationEnv(StatefulEnv[SessionState, MovieRecommendationOptions]):
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

    def __init__(self, options: MovieRecommendationOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._train_ids = task_ids("train", self.options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id.
        """
        state = SessionState(find_task(self._draw_task(seed, options, lambda: self._train_ids)))
        self._state = replace(state, final=self.max_turns == 1)
        observation = first_observation(state.task, self.options.prompt)
        if self._state.final:
            observation = self._with_request(observation, state.task)
        return observation, self._info(self._state, valid=True, progress=None)

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        state = self.state
        parsed = parse_action(action, state.task, self.options.prompt, state.final)
        if isinstance(parsed, Question):
            return self._ask(state, parsed)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        return self._reject(state, parsed)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer: the words of the last turn, once."""
        state = self._state
        return (
            final_reminder(self.options.prompt)
            if state is None or state.final
            else final_request(state.task, self.options.prompt)
        )

    def _ask(self, state: SessionState, question: Question) -> StepResult:
        reply = preference(state.task.weights, question.first, question.second)
        known = comparison(question.first, question.second, reply)
        new = replace(state, estimates=(*state.estimates, question.estimate), comparisons=(*state.comparisons, known))
        observation = reply_observation(question, reply, state.task.size, self.options.prompt)
        return self._result(new, observation, valid=True, progress=self._progressed(new), query=question_text(question))

    def _answer(self, state: SessionState, content: str) -> StepResult:
        vector = None if state.final else read_vector(content, state.task.size.attributes)
        if vector is not None:
            new = replace(state, estimates=(*state.estimates, vector), final=True)
            observation = final_request(state.task, self.options.prompt)
            return self._result(new, observation, valid=True, progress=self._progressed(new))
        named = {movie_name(movie, state.task.size, self.options.prompt): movie.name for movie in state.task.unseen}
        new = replace(state, chosen=named.get(content, "no such movie"))
        observation = "correct" if new.success else "wrong"
        return self._result(new, observation, valid=True, progress=None, terminated=True)

    def _reject(self, state: SessionState, parsed: TaggedAction) -> StepResult:
        ends = self.options.malformed == "end"
        observation = malformed_observation(parsed, self.options.prompt)
        return self._result(state, observation, valid=False, progress=None, terminated=ends)

    def _progressed(self, state: SessionState) -> bool:
        if self.options.progress == "movement":
            window, threshold = self.options.movement_window, self.options.movement_threshold
            return movement_progresses(state.estimates, window, threshold)
        return similarity_progresses(state.estimates, state.task.weights)

    def _with_request(self, observation: str, task: Task) -> str:
        """Add the words of the last turn."""
        space = " " if self.options.prompt == "compact" else "\n\n"
        return observation + space + final_request(task, self.options.prompt)

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
            "references": [movie_name(task.best, task.size, self.options.prompt)],
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
