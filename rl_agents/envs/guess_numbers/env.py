"""GuessNumbers as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most ten turns of the agent; the first guess, fixed by the task, is not one of them. Reward is the
exact match of the final answer (0 or 1), given on the turn that answers; an episode without an answer earns 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.guess_numbers.prompts import (
    answer_instruction,
    feedback_observation,
    first_observation,
    malformed_observation,
    parse_action,
)
from rl_agents.envs.guess_numbers.rules import (
    Feedback,
    consistent,
    feedback,
    guess_progresses,
    hypotheses,
    set_progresses,
)
from rl_agents.envs.guess_numbers.spec import SPEC, GuessNumbersOptions
from rl_agents.envs.guess_numbers.tasks import Task, find_task, task_ids
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
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


class GuessNumbersEnv(StatefulEnv[GameState, GuessNumbersOptions]):
    """Find a secret code from ``xAyB`` feedback.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the game and its hypothesis set: what can be known
    so far), ``progress`` (None before the first turn and when the response was malformed: T3 must treat those as if
    it were not there), ``references`` (the secret), and ``metrics``: ``turns``, ``inconsistent_guesses``,
    ``hypotheses_left``.
    """

    observation_space = observations(4096)
    registered = SPEC

    def __init__(self, options: GuessNumbersOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._train_ids = task_ids("train", self.options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id.
        """
        task = find_task(self._draw_task(seed, options, lambda: self._train_ids))
        group = task.subgroup
        value: Feedback = (group.x0, group.y0)
        self._state = GameState(task, hypotheses(group.a, group.b, [(task.first_guess, value)]))
        return first_observation(task, value, self.options.prompt), self._info(self._state, valid=True, progress=None)

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        state = self.state
        parsed = parse_action(action, state.task.subgroup.a, state.task.subgroup.b)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        if parsed.kind == "interact":
            return self._guess(state, parsed.content)
        return self._reject(state, parsed)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return answer_instruction(self.options.prompt)

    def _answer(self, state: GameState, code: str) -> StepResult:
        new = replace(state, success=code == state.task.secret)
        observation, inside = "correct" if new.success else "wrong", code in state.remaining
        return self._end_turn(new, observation, float(new.success), valid=True, progress=inside, terminated=True)

    def _guess(self, state: GameState, guess: str) -> StepResult:
        value = feedback(state.task.secret, guess)
        remaining = consistent(state.remaining, guess, value)
        inside = guess_progresses(guess, state.remaining)
        progress = (
            inside if self.options.progress == "consistent" else set_progresses(guess, state.remaining, remaining)
        )
        new = replace(state, remaining=remaining, inconsistent_guesses=state.inconsistent_guesses + (not inside))
        return self._end_turn(new, feedback_observation(value, self.options.prompt), valid=True, progress=progress)

    def _reject(self, state: GameState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(state, malformed_observation(parsed, self.options.prompt))

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
