"""GuessNumbers (T3, appendix C.1 and C.3).

The ``paper`` prompt is T3's figure 8 word for word. In ``compact``, numbers and feedback are one word each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from rl_agents.envs.guess_numbers import SPEC, GuessNumbersOptions, tasks
from rl_agents.envs.guess_numbers.tasks import Feedback, Task
from rl_agents.envs.stateful import EpisodeState, StepResult, TaggedAction, TaggedEnv, malformed

_PAPER_PROMPT = """\
Let's play a number guessing game. The rules are as follows:
I have a secret {a}-digit number in mind, composed of digits from 1 to {b}, with no repeated \
digits. You will take turns guessing the number, using feedback after each guess to progressively narrow down the \
possibilities.
For each turn, you will:
- Review all previous guesses and feedback.
- Think through your reasoning process inside <think> and </think>. The reasoning should show how your belief about \
the secret number evolves based on the accumulated evidence.
- Make a strategic guess inside <interact> and </interact>, based on your current belief.
- Receive feedback of your latest guess describing: how many digits are present in the answer and in the correct \
positions, and how many digits are present in the answer but in the different positions.
- Repeat the process until you are confident in the answer. If you believe you have confidently found the correct \
number, present your answer inside <answer> and </answer>.

Game start.
Now it is your turn: <think>No prior knowledge. Start with a random guess that covers diverse digits to gather \
information.</think> <interact>{guess}</interact>
{feedback}"""

_PAPER_FEEDBACK = (
    "The feedback of your latest guess: {x} digits are present in the answer and in the correct positions, "
    "{y} digits are present in the answer but in the different positions.\nNow it is your turn:"
)

NOT_A_CODE = "not-a-code"


@dataclass(frozen=True, slots=True)
class GameState(EpisodeState):
    task: Task
    remaining: tuple[str, ...]
    inconsistent_guesses: int = 0
    success: bool = False


class GuessNumbersEnv(TaggedEnv[GameState, GuessNumbersOptions]):
    """Find a secret code from ``xAyB`` feedback."""

    registered = SPEC
    answer_now = "No further guess is possible. You must now present your answer inside <answer> and </answer>."
    your_turn = "\nNow it is your turn:"
    reasons = MappingProxyType({NOT_A_CODE: "the guess inside <interact> must be one number of the game"})

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = tasks.find_task(task_id)
        group, guess = task.subgroup, task.first_guess
        value: Feedback = (group.x0, group.y0)
        state = GameState(task, tasks.consistent(tasks.codes(group.a, group.b), guess, value))
        if self._compact:
            return f"{group.a} of {group.b} : {guess} {self._feedback(value)}", state
        return _PAPER_PROMPT.format(a=group.a, b=group.b, guess=guess, feedback=self._feedback(value)), state

    def _feedback(self, value: Feedback) -> str:
        """Return the feedback to a guess: one word, or the sentence of figure 8."""
        return tasks.feedback_word(value) if self._compact else _PAPER_FEEDBACK.format(x=value[0], y=value[1])

    def question(self, content: str, state: GameState) -> str | TaggedAction:
        """Return a code of the game; white space is removed."""
        code = "".join(content.split())
        error = tasks.code_error(code, state.task.subgroup.a, state.task.subgroup.b)
        return malformed(NOT_A_CODE, error) if error else code

    def _answer(self, state: GameState, answer: str) -> StepResult:
        code = "".join(answer.split())
        new = replace(state, success=code == state.task.secret)
        observation, inside = "correct" if new.success else "wrong", code in state.remaining
        return self._end_turn(new, observation, float(new.success), valid=True, progress=inside, terminated=True)

    def _ask(self, state: GameState, guess: str) -> StepResult:
        value = tasks.feedback(state.task.secret, guess)
        remaining = tasks.consistent(state.remaining, guess, value)
        progress = inside = guess in state.remaining  # T3's rule
        if self.options.progress == "shrunk":
            progress = tasks.set_progresses(guess, state.remaining, remaining)
        new = replace(state, remaining=remaining, inconsistent_guesses=state.inconsistent_guesses + (not inside))
        return self._end_turn(new, self._feedback(value), valid=True, progress=progress)

    def _report(self, state: GameState) -> dict[str, Any]:
        group = state.task.subgroup
        return {
            "task_id": state.task.task_id,
            "success": state.success,
            "references": [state.task.secret],
            "anchor": f"{group.a} of {group.b} : {' '.join(state.remaining)}",
            "metrics": {"inconsistent_guesses": state.inconsistent_guesses, "hypotheses_left": len(state.remaining)},
        }


make = GuessNumbersEnv
