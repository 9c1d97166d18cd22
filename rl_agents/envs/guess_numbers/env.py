"""GuessNumbers as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most ten turns of the agent; the first guess, fixed by the task, is not one of them. Reward is the
exact match of the final answer (0 or 1), given on the turn that answers; an episode without an answer earns 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.guess_numbers import SPEC, GuessNumbersOptions, prompts, rules
from rl_agents.envs.guess_numbers.tasks import Task, find_task, task_ids
from rl_agents.envs.stateful import StepResult, TaggedEnv, observations
from rl_agents.envs.tags import TaggedAction


@dataclass(frozen=True, slots=True)
class GameState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it."""

    task: Task
    remaining: tuple[str, ...]
    turns: int = 0
    inconsistent_guesses: int = 0
    done: bool = False
    success: bool = False


class GuessNumbersEnv(TaggedEnv[GameState, GuessNumbersOptions]):
    """Find a secret code from ``xAyB`` feedback.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the game and its hypothesis set: what can be known
    so far), ``progress`` (None before the first turn and when the response was malformed: T3 must treat those as if
    it were not there), ``references`` (the secret), and ``metrics``: ``turns``, ``inconsistent_guesses``,
    ``hypotheses_left``.
    """

    observation_space = observations(4096)
    registered = SPEC
    task_ids = staticmethod(task_ids)
    answer_now = prompts.PAPER_ANSWER_NOW
    your_turn = "\nNow it is your turn:"

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = find_task(task_id)
        group = task.subgroup
        value: rules.Feedback = (group.x0, group.y0)
        state = GameState(task, rules.hypotheses(group.a, group.b, [(task.first_guess, value)]))
        return prompts.first_observation(task, value, self.options.prompt), state

    def _read(self, response: str, state: GameState) -> TaggedAction:
        return prompts.parse_action(response, state.task.subgroup.a, state.task.subgroup.b)

    def _reasons(self) -> dict[str, str]:
        return {prompts.NOT_A_CODE: "the guess inside <interact> must be one number of the game"}

    def _answer(self, state: GameState, code: str) -> StepResult:
        new = replace(state, success=code == state.task.secret)
        observation, inside = "correct" if new.success else "wrong", code in state.remaining
        return self._end_turn(new, observation, float(new.success), valid=True, progress=inside, terminated=True)

    def _ask(self, state: GameState, guess: str) -> StepResult:
        value = rules.feedback(state.task.secret, guess)
        remaining = rules.consistent(state.remaining, guess, value)
        inside = rules.guess_progresses(guess, state.remaining)
        progress = (
            inside if self.options.progress == "consistent" else rules.set_progresses(guess, state.remaining, remaining)
        )
        new = replace(state, remaining=remaining, inconsistent_guesses=state.inconsistent_guesses + (not inside))
        return self._end_turn(
            new, prompts.feedback_observation(value, self.options.prompt), valid=True, progress=progress
        )

    def _info(self, state: GameState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        group = state.task.subgroup
        return {
            "task_id": state.task.task_id,
            "success": state.success,
            "valid": valid,
            "progress": progress,
            "references": [state.task.secret],
            "anchor": f"{group.a} of {group.b} : {' '.join(state.remaining)}",
            "metrics": {
                "turns": float(state.turns),
                "inconsistent_guesses": float(state.inconsistent_guesses),
                "hypotheses_left": float(len(state.remaining)),
            },
        }


make = GuessNumbersEnv
