"""What the agent reads, in two styles, and how its response is read.

``paper`` is figure 8 of T3 (appendix C.1) word for word; ``compact`` says the same in a few words with numbers and
feedback as one word each, for small starter models.
"""

from __future__ import annotations

from dataclasses import replace

from rl_agents.envs.guess_numbers.rules import Feedback, code_error, feedback_word
from rl_agents.envs.guess_numbers.tasks import Task
from rl_agents.envs.tags import TaggedAction, malformed, read_tags

_PAPER_PROMPT = """\
Let's play a number guessing game. The rules are as follows:
I have a secret {num_digits}-digit number in mind, composed of digits from 1 to {num_uniques}, with no repeated \
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
information.</think> <interact>{initial_guess}</interact>
{initial_feedback}"""

_PAPER_FEEDBACK = (
    "The feedback of your latest guess: {x} digits are present in the answer and in the correct positions, "
    "{y} digits are present in the answer but in the different positions.\nNow it is your turn:"
)

PAPER_ANSWER_NOW = "No further guess is possible. You must now present your answer inside <answer> and </answer>."

NOT_A_CODE = "not-a-code"


def parse_action(response: str, a: int, b: int) -> TaggedAction:
    """Read one action from ``response``; see `rl_agents.envs.tags.read_tags`.

    White space inside the tag is dropped. A guess must be a code of the game; an answer need not be, as every answer
    is final and is simply right or wrong.
    """
    action = read_tags(response)
    code = "".join(action.content.split())
    error = code_error(code, a, b)
    if action.kind == "interact" and error:
        return malformed(NOT_A_CODE, error)
    return replace(action, content=code)


def first_observation(task: Task, value: Feedback, style: str) -> str:
    """Return the task description with the first guess and its feedback ``value``."""
    group = task.subgroup
    if style == "compact":
        return f"{group.a} of {group.b} : {task.first_guess} {feedback_word(value)}"
    return _PAPER_PROMPT.format(
        num_digits=group.a,
        num_uniques=group.b,
        initial_guess=task.first_guess,
        initial_feedback=feedback_observation(value, style),
    )


def feedback_observation(value: Feedback, style: str) -> str:
    """Return the answer to a guess: one word, or the sentence of figure 8."""
    return feedback_word(value) if style == "compact" else _PAPER_FEEDBACK.format(x=value[0], y=value[1])
