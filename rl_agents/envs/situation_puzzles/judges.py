"""Who answers the agent's questions: the rule judge, or a model behind an OpenAI-compatible server.

The server's prompt is figure 9 of T3 (appendix C.1) word for word. A server that cannot be reached, or a reply that is
none of the four allowed ones, raises `JudgeError`: the episode ends with it as its cause. It never becomes "Unknown".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from rl_agents.envs.options import connect_judge
from rl_agents.envs.situation_puzzles import SituationPuzzlesOptions
from rl_agents.envs.situation_puzzles.rules import NO, NOT_A_QUESTION, UNKNOWN, YES, Puzzle, Reply, rule_reply
from rl_agents.rewards.judge import OpenAIJudge
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.web.model_server import SHOWN

PROMPT = """\
You are the referee of a game where players are shown a <Surface> and you are given the <Bottom>. You need to \
understand the entire story based on both the <Surface> and <Bottom>. Players will ask questions based on the \
<Surface>, and you need to judge whether their guesses are correct. Please strictly adhere to answering with only \
three specified responses: Yes, No, or Unknown, without any explanation.

## Judging Rules
- If the player's question matches the given <Surface> and <Bottom>: Please only answer "Yes" without any explanation.
- If the player's question contradicts the given story: Please only answer "No" without any explanation.
- If the answer to the player's question cannot be found in the <Surface> and <Bottom>, and cannot be deduced through \
reasoning: Please only answer "Unknown" without any explanation.
- If the player directly ask for the answer, please only answer "This is not a question, please propose your next \
question."
- If the player does not propose a question or question that not for solve the puzzle, please only answer "This is \
not a question, please propose your next question."

## Important Notes
1. Fully understand the cause, process, and outcome of the entire story, and make logical inferences.
2. If a conclusion cannot be drawn from the provided story or through reasonable inference, answer "Unknown".
3. Strictly adhere to answering with only the three specified responses: Yes, No, or Unknown. Do not provide \
additional explanations.
4. Carefully check whether the player ask for the answer, if a player do so, please only answer "This is not a \
question, please propose your next question."

## Examples
### Example 1: The Hiccuping Man
<Surface>
A man walks into a bar and asks the bartender for a glass of water. The bartender suddenly pulls out a gun and points \
it at him. The man smiles and says, "Thank you!" then calmly leaves. What happened?
<Bottom>
The man had hiccups and wanted a glass of water to cure them. The bartender realized this and chose to scare him with \
a gun. The man's hiccups disappeared due to the sudden shock, so he sincerely thanked the bartender before leaving.
Possible questions and corresponding answers:
Q: Does the man have a chronic illness? A: Unknown
Q: Was the man scared away? A: No
Q: Did the bartender want to kill the man? A: No
Q: Did the bartender intend to scare the man? A: Yes
Q: Did the man sincerely thank the bartender? A: Yes

## Question Content
### <Surface>
{surface}
### <Bottom>
{bottom}

Now, please judge the following player question:
{question}
Answer with only one of the three specified responses: Yes, No, or Unknown, without any explanation."""

_REPLY = re.compile(r"\W*(yes|no|unknown|this is not a question)\b", re.IGNORECASE)
_MEANINGS = {"yes": YES, "no": NO, "unknown": UNKNOWN, "this is not a question": NOT_A_QUESTION}


@dataclass(frozen=True, slots=True)
class RuleQuestionJudge:
    """See `rules.rule_reply`; ``match`` is its threshold for key questions."""

    remote: ClassVar[bool] = False
    match: float

    async def reply(self, puzzle: Puzzle, question: str) -> Reply:
        return rule_reply(puzzle, question, self.match)


class ServerQuestionJudge(OpenAIJudge):
    """A model behind a server, asked as in figure 9; timeouts, retries and errors are `OpenAIJudge`'s."""

    async def reply(self, puzzle: Puzzle, question: str) -> Reply:
        text = PROMPT.format(surface=puzzle.surface, bottom=puzzle.bottom, question=question)
        about = f"{puzzle.puzzle_id} -> {question}"
        answer = await self._reply(text, about)
        found = _REPLY.match(read_thoughts(answer).words)
        if not found:
            raise self._error(f"replied {answer[:SHOWN]!r}, none of Yes, No and Unknown", about)
        return Reply(_MEANINGS[found[1].lower()])


#: ``reply`` answers a question about a puzzle, or raises `JudgeError`; ``remote``: it waits for a server.
QuestionJudge = RuleQuestionJudge | ServerQuestionJudge


def make_judge(options: SituationPuzzlesOptions) -> QuestionJudge:
    """Build the judge that the environment's options describe.

    Raises:
        InputError: a server without URL or model; see `connect_judge`.
    """
    return RuleQuestionJudge(options.match) if options.judge == "rule" else connect_judge(ServerQuestionJudge, options)
