"""PreferenceEstimation as a `gymnasium.Env` over text (T3, section 3.1, appendix C.1 and C.3).

An episode is at most ten turns of the agent. Reward is the binary similarity of the final answer: 1 if its cosine with
the hidden preference vector lies above 0.88, given on the turn that answers; an episode without an answer earns 0.

Source: T3, section 3.1 (progress, binary similarity) and appendix C.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.preference_estimation import SPEC, PreferenceEstimationOptions, prompts
from rl_agents.envs.preference_estimation.tasks import Task, find_task, task_ids
from rl_agents.envs.preferences import EQUAL, YES, cosine, preference
from rl_agents.envs.stateful import StepResult, TaggedEnv, observations
from rl_agents.envs.tags import TaggedAction

Comparison = tuple[int, int, int]
"""Positions i < j of two movies, and what is known: 1 (i is preferred), -1 (j is) or 0 (both satisfy the same)."""


def comparison(first: int, second: int, reply: str) -> Comparison:
    """Return what the ``reply`` to "first over second?" says, the same whichever way round it was asked.

    >>> comparison(3, 1, "Yes") == comparison(1, 3, "No") == (1, 3, -1)
    True
    """
    sign = 0 if reply == EQUAL else 1 if reply == YES else -1
    return (first, second, sign) if first < second else (second, first, -sign)


def progresses(before: float | None, after: float) -> bool:
    """T3's rule for PreferenceEstimation: Sim(v_t, w) - Sim(v_t-1, w) > 0.

    A first estimate has nothing to compare with and counts as progress; an unchanged one is a stall.
    """
    return before is None or after > before


def is_right(similarity: float, threshold: float) -> bool:
    """Binary similarity: the cosine lies above the threshold."""
    return similarity > threshold


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


class PreferenceEstimationEnv(TaggedEnv[GameState, PreferenceEstimationOptions]):
    """Infer a hidden preference vector from pairwise questions.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the movies and all replies: what can be known so
    far), ``progress`` (the estimate came closer to the hidden vector; None before the first turn and when the response
    was malformed), ``query`` (the question without the estimate), ``references`` (the hidden vector), and ``metrics``:
    ``turns``, ``similarity`` (of the last estimate or the answer), ``questions`` (different ones),
    ``repeated_questions``.
    """

    observation_space = observations(32768)
    registered = SPEC
    task_ids = staticmethod(task_ids)
    answer_now = prompts.PAPER_ANSWER_NOW

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = find_task(task_id)
        return prompts.first_observation(task, self.options.prompt), GameState(task)

    def _read(self, response: str, state: GameState) -> TaggedAction | prompts.Question:
        return prompts.parse_action(response, state.task, self.options.prompt)

    def _reasons(self) -> dict[str, str]:
        numbers = len(self.state.task.weights)
        return {
            prompts.NOT_A_QUESTION: 'inside <interact> write "Guess: w1,w2,..." and '
            '"Question: Would you prefer A over B?"',
            prompts.NOT_A_VECTOR: f"the guess must be {numbers} comma-separated numbers in [0,1]",
            prompts.UNKNOWN_MOVIE: "the question must name two of the given movies",
            prompts.SAME_MOVIE: "the question must name two different movies",
        }

    def _ask(self, state: GameState, question: prompts.Question) -> StepResult:
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
        query = prompts.question_text(task, question.first, question.second, self.options.prompt)
        observation = prompts.reply_observation(task, question, reply, self.options.prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=query)

    def _answer(self, state: GameState, content: str) -> StepResult:
        estimate = prompts.read_estimate(content, state.task, self.options.prompt)
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

    def _info(self, state: GameState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        task = state.task
        movies = " ".join(prompts.scores_word(movie) for movie in task.movies)
        replies = " ".join(f"{i + 1}{'<=>'[sign + 1]}{j + 1}" for i, j, sign in state.known)
        return {
            "task_id": task.task_id,
            "success": state.success,
            "valid": valid,
            "progress": progress,
            "references": [
                prompts.estimate_text([w / (task.levels - 1) for w in task.weights], task, self.options.prompt)
            ],
            "anchor": f"{movies} : {replies}",
            "metrics": {
                "turns": float(state.turns),
                "similarity": state.similarity or 0.0,
                "questions": float(len(state.known)),
                "repeated_questions": float(state.repeated_questions),
            },
        }


make = PreferenceEstimationEnv
