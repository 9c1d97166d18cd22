"""What the agent reads, in two styles, and how its response is read.

``paper`` is figure 8 of T3 (appendix C.1) word for word; ``compact`` says the same in a few words with numbers and
feedback as one word each, for small starter models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rl_agents.envs.guess_numbers.rules import Feedback, code_error, feedback_word
from rl_agents.envs.guess_numbers.tasks import Task

PROMPT_STYLES = ("paper", "compact")

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

_PAPER_ANSWER_NOW = "No further guess is possible. You must now present your answer inside <answer> and </answer>."
COMPACT_ANSWER_NOW = "<answer>"

NO_ACTION = "no-action"
SEVERAL_ACTIONS = "several-actions"
NOT_A_CODE = "not-a-code"

_PAPER_MALFORMED = {
    NO_ACTION: "found neither <interact>...</interact> nor <answer>...</answer> after your reasoning",
    SEVERAL_ACTIONS: "found more than one <interact> or <answer>; give exactly one per turn",
    NOT_A_CODE: "the guess inside <interact> must be one number of the game",
}


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """What a response asks for.

    Attributes:
        kind: ``interact``, ``answer`` or ``malformed``.
        code: the guess or answer without white space; empty when malformed.
        problem: for a malformed response, ``no-action``, ``several-actions`` or ``not-a-code``.
        detail: a sentence about the problem, where there is more to say.
    """

    kind: str
    code: str = ""
    problem: str = ""
    detail: str = ""


_TAG = re.compile(r"<(interact|answer)>(.*?)</\1>", re.DOTALL)


def parse_action(response: str, a: int, b: int) -> ParsedAction:
    """Read one action from ``response``.

    Only the text after the last ``</think>`` counts (all of it when there is none). It must hold exactly one complete
    ``<interact>...</interact>`` or ``<answer>...</answer>``; two tags, equal or not, are malformed, so nobody can
    guess twice in a turn. White space inside the tag is dropped. A guess must be a code of the game; an answer need
    not be, as every answer is final and is simply right or wrong.
    """
    found = _TAG.findall(response.rpartition("</think>")[2])
    if not found:
        return ParsedAction("malformed", problem=NO_ACTION)
    if len(found) > 1:
        return ParsedAction("malformed", problem=SEVERAL_ACTIONS)
    kind, content = found[0]
    code = "".join(content.split())
    error = code_error(code, a, b)
    if kind == "interact" and error:
        return ParsedAction("malformed", problem=NOT_A_CODE, detail=error)
    return ParsedAction(kind, code=code)


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


def answer_instruction(style: str) -> str:
    """Return the words that ask for the answer at once; the compact style has one word that the starter knows."""
    return COMPACT_ANSWER_NOW if style == "compact" else _PAPER_ANSWER_NOW


def feedback_observation(value: Feedback, style: str) -> str:
    """Return the answer to a guess: one word, or the sentence of figure 8."""
    return feedback_word(value) if style == "compact" else _PAPER_FEEDBACK.format(x=value[0], y=value[1])


def malformed_observation(action: ParsedAction, style: str) -> str:
    """Tell the agent that, and why, its response could not be read."""
    if style == "compact":
        return f"invalid {action.problem}"
    reason = _PAPER_MALFORMED[action.problem] + (f" ({action.detail})" if action.detail else "")
    return f"Your last response was not valid: {reason}.\nNow it is your turn:"
