"""PreferenceEstimation as a `gymnasium.Env` over text (T3, section 3.1, appendix C.1 and C.3).

An episode is at most ten turns of the agent. Reward is the binary similarity of the final answer: 1 if its cosine with
the hidden preference vector lies above 0.88, given on the turn that answers; an episode without an answer earns 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.preference_estimation.prompts import (
    Question,
    answer_instruction,
    estimate_text,
    first_observation,
    malformed_observation,
    parse_action,
    question_text,
    read_estimate,
    reply_observation,
    scores_word,
)
from rl_agents.envs.preference_estimation.rules import Comparison, comparison, is_right, progresses
from rl_agents.envs.preference_estimation.spec import SPEC, PreferenceEstimationOptions
from rl_agents.envs.preference_estimation.tasks import Task, find_task, task_ids
from rl_agents.envs.preferences import cosine, preference
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
from rl_agents.envs.tags import TaggedAction


@dataclass(frozen=True, slots=True)
class GameState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        similarity: cosine of the last estimate (or of the answer) with the hidden vector; None before the first.
        known: what the replies say, each question once, ascending.
        repeated_questions: questions whose reply was known.
    """

    task: Task
    similarity: float | None = None
    known: tuple[Comparison, ...] = ()
    turns: int = 0
    repeated_questions: int = 0
    done: bool = False
    success: bool = False


class PreferenceEstimationEnv(StatefulEnv[GameState, PreferenceEstimationOptions]):
    """Infer a hidden preference vector from pairwise questions.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the movies and all replies: what can be known so
    far), ``progress`` (the estimate came closer to the hidden vector; None before the first turn and when the response
    was malformed), ``query`` (the question without the estimate), ``references`` (the hidden vector), and ``metrics``:
    ``turns``, ``similarity`` (of the last estimate or the answer), ``questions`` (different ones),
    ``repeated_questions``.
    """

    observation_space = observations(32768)
    registered = SPEC

    def __init__(self, options: PreferenceEstimationOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._train_ids = task_ids("train", self.options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id.
        """
        self._state = GameState(find_task(self._draw_task(seed, options, lambda: self._train_ids)))
        return first_observation(self._state.task, self.options.prompt), self._info(
            self._state, valid=True, progress=None
        )

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        state = self.state
        parsed = parse_action(action, state.task, self.options.prompt)
        if isinstance(parsed, Question):
            return self._ask(state, parsed)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        return self._reject(state, parsed)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return answer_instruction(self.options.prompt)

    def _ask(self, state: GameState, question: Question) -> StepResult:
        task = state.task
        similarity = cosine(question.estimate, task.weights)
        reply = preference(task.weights, task.movies[question.first], task.movies[question.second])
        fact = comparison(question.first, question.second, reply)
        new = replace(
            state,
            similarity=similarity,
            known=tuple(sorted({*state.known, fact})),
            repeated_questions=state.repeated_questions + (fact in state.known),
        )
        progress = progresses(state.similarity, similarity)
        query = question_text(task, question.first, question.second, self.options.prompt)
        observation = reply_observation(task, question, reply, self.options.prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=query)

    def _answer(self, state: GameState, content: str) -> StepResult:
        estimate = read_estimate(content, state.task, self.options.prompt)
        similarity = 0.0 if estimate is None else cosine(estimate, state.task.weights)
        success = is_right(similarity, self.options.threshold)
        reward = similarity if self.options.reward == "similarity" else float(success)
        return self._end_turn(
            replace(state, similarity=similarity, success=success),
            "correct" if success else "wrong",
            reward,
            valid=True,
            progress=progresses(state.similarity, similarity),
            terminated=True,
        )

    def _reject(self, state: GameState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(state, malformed_observation(parsed, state.task, self.options.prompt))

    def _info(self, state: GameState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        task = state.task
        movies = " ".join(scores_word(movie) for movie in task.movies)
        replies = " ".join(f"{i + 1}{'<=>'[sign + 1]}{j + 1}" for i, j, sign in state.known)
        return {
            "task_id": task.task_id,
            "success": state.success,
            "valid": valid,
            "progress": progress,
            "references": [estimate_text([w / (task.levels - 1) for w in task.weights], task, self.options.prompt)],
            "anchor": f"{movies} : {replies}",
            "metrics": {
                "turns": float(state.turns),
                "similarity": state.similarity or 0.0,
                "questions": float(len(state.known)),
                "repeated_questions": float(state.repeated_questions),
            },
        }


make = PreferenceEstimationEnv
