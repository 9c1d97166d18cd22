"""What the agent reads, in two styles, and how its response is read.

``paper`` is figure 7 of T3 (appendix C.1) word for word. ``compact`` is for small starter models: a generated puzzle is
its theme and the names of its slots, and its story the values of those slots.
"""

from __future__ import annotations

from rl_agents.envs.situation_puzzles.rules import NOT_A_QUESTION, Puzzle
from rl_agents.envs.tags import TaggedAction, malformed, read_tags
from rl_agents.rewards.wording import words

_PAPER_PROMPT = """\
Let's play a situation puzzle game. I'll give you a puzzle.
You can interact with me for several turns during the question phase to reach the final answer. For each turn, you will:
- Review all previous questions and feedback.
- Ask me a yes-or-no question inside <interact> and </interact>.
- I will answer your latest question with "Yes", "No", or "Unknown".
- Repeat the process until you are confident in the answer.
If you believe you have confidently determined the correct solution, present your answer inside <answer> and </answer>.

Now, here's the puzzle:
Puzzle: {puzzle}"""

PAPER_ANSWER_NOW = "No further question is possible. You must now present your answer inside <answer> and </answer>."

NO_QUESTION = "no-question"
TOO_LONG = "too-long"
MAX_QUESTION = 1000
#: A longer answer is cut: its F1 is 0 for any purpose, and counting it must stay cheap.
MAX_ANSWER = 20_000

PAPER_MALFORMED = {
    NO_QUESTION: "<interact> holds no words",
    TOO_LONG: f"a question may have {MAX_QUESTION} characters at most",
}


def parse_action(response: str) -> TaggedAction:
    """Read one action from ``response``; see `rl_agents.envs.tags.read_tags`.

    A question must have words and not too many of them. Whether it is one that yes or no can answer is the judge's to
    say. Any answer is well-formed.
    """
    action = read_tags(response)
    if action.kind != "interact":
        return action
    if len(action.content) > MAX_QUESTION:
        return malformed(TOO_LONG)
    return action if words(action.content) else malformed(NO_QUESTION)


def first_observation(puzzle: Puzzle, style: str) -> str:
    if style != "compact":
        return _PAPER_PROMPT.format(puzzle=puzzle.surface)
    if not puzzle.slots:
        return puzzle.surface
    return f"{puzzle.given[0]} : {' '.join(slot for slot, _ in puzzle.slots)}"


def story(puzzle: Puzzle, style: str) -> str:
    if style == "compact" and puzzle.slots:
        return " ".join(value for _, value in puzzle.slots)
    return puzzle.bottom


def reply_observation(reply: str, style: str) -> str:
    """Return the judge's reply: its own words, or one word in the compact style."""
    if style == "compact":
        return "not-a-question" if reply == NOT_A_QUESTION else reply.lower()
    return reply
