"""SituationPuzzles (T3, appendix C.1 and C.3).

The ``paper`` prompt is T3's figure 7 word for word. In ``compact``, a generated puzzle is its theme and the names of
its slots, and its story the values of those slots. A served judge gets T3's figure 9 word for word; if its reply is not
one of the four allowed ones, `JudgeError` is the cause of the episode's end. It never counts as "Unknown".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from rl_agents.envs.situation_puzzles import SPEC, SituationPuzzlesOptions, tasks
from rl_agents.envs.situation_puzzles.tasks import Puzzle, Reply
from rl_agents.envs.stateful import EpisodeState, StepResult, TaggedAction, TaggedEnv, malformed
from rl_agents.rewards.judges import OpenAIJudge
from rl_agents.rewards.wording import words
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.web.model_server import SHOWN

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

NO_QUESTION = "no-question"
TOO_LONG = "too-long"
MAX_QUESTION = 1000
#: A longer answer is cut: its F1 is near 0, and counting must stay cheap.
MAX_ANSWER = 20_000

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
_MEANINGS = {"yes": tasks.YES, "no": tasks.NO, "unknown": tasks.UNKNOWN, "this is not a question": tasks.NOT_A_QUESTION}


class RuleQuestionJudge:
    remote: ClassVar[bool] = False

    async def reply(self, puzzle: Puzzle, question: str) -> Reply:
        return tasks.rule_reply(puzzle, question)


class ServerQuestionJudge(OpenAIJudge):
    """A model behind a server with the prompt of figure 9; limits, retries and errors are those of `OpenAIJudge`."""

    async def reply(self, puzzle: Puzzle, question: str) -> Reply:
        text = PROMPT.format(surface=puzzle.surface, bottom=puzzle.bottom, question=question)
        about = f"{puzzle.puzzle_id} -> {question}"
        answer = await self._reply(text, about)
        found = _REPLY.match(read_thoughts(answer).words)
        if not found:
            raise self._error(f"replied {answer[:SHOWN]!r}, none of Yes, No and Unknown", about)
        return Reply(_MEANINGS[found[1].lower()])


#: ``reply`` answers a question about a puzzle, or raises `JudgeError`. ``remote`` judges wait for a server.
QuestionJudge = RuleQuestionJudge | ServerQuestionJudge


def make_judge(options: SituationPuzzlesOptions) -> QuestionJudge:
    return RuleQuestionJudge() if options.judge == "rule" else ServerQuestionJudge.from_keys(options)


@dataclass(frozen=True, slots=True)
class PuzzleState(EpisodeState):
    """The state of an episode: questions and replies, oldest first, and the answer's F1 by unit (0 before it)."""

    puzzle: Puzzle
    asked: tuple[tuple[str, Reply], ...] = ()
    f1: tuple[float, float] = (0.0, 0.0)


class SituationPuzzlesEnv(TaggedEnv[PuzzleState, SituationPuzzlesOptions]):
    """Ask yes-or-no questions, then tell the story behind a strange scene."""

    registered = SPEC
    answer_now = "No further question is possible. You must now present your answer inside <answer> and </answer>."
    reasons = MappingProxyType(
        {
            NO_QUESTION: "<interact> holds no words",
            TOO_LONG: f"a question may have {MAX_QUESTION} characters at most",
        }
    )

    def __init__(self, options: SituationPuzzlesOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._judge: QuestionJudge = make_judge(self.options)
        self.awaited = self._judge.remote
        self._unit = tasks.F1_UNITS.index(self.options.f1)

    def _begin(self, task_id: str) -> tuple[str, PuzzleState]:
        puzzle = tasks.find_puzzle(task_id, self.options.data)
        if not self._compact:
            return _PAPER_PROMPT.format(puzzle=puzzle.surface), PuzzleState(puzzle)
        slots = " ".join(slot for slot, _ in puzzle.slots)
        return f"{puzzle.theme} : {slots}" if slots else puzzle.surface, PuzzleState(puzzle)

    def question(self, content: str, state: PuzzleState) -> str | TaggedAction:
        """Return the text. The judge decides if it is a yes-or-no question."""
        if len(content) > MAX_QUESTION:
            return malformed(TOO_LONG)
        return content if words(content) else malformed(NO_QUESTION)

    def _story(self, puzzle: Puzzle) -> str:
        return " ".join(value for _, value in puzzle.slots) if self._compact and puzzle.slots else puzzle.bottom

    async def _ask(self, state: PuzzleState, question: str) -> StepResult:
        reply = await self._judge.reply(state.puzzle, question)
        new = replace(state, asked=(*state.asked, (question, reply)))
        observation = reply.text
        if self._compact:
            observation = "not-a-question" if observation == tasks.NOT_A_QUESTION else observation.lower()
        return self._end_turn(new, observation, valid=True, progress=not reply.stalls, query=question)

    def _answer(self, state: PuzzleState, answer: str) -> StepResult:
        reference = self._story(state.puzzle)
        word, char = (tasks.f1_score(answer[:MAX_ANSWER], reference, unit) for unit in tasks.F1_UNITS)
        earned = (word, char)[self._unit]
        new = replace(state, f1=(word, char))
        return self._end_turn(new, f"f1 {earned:.2f}", earned, valid=True, progress=None, terminated=True, query="")

    def _reject(self, state: PuzzleState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(state, self._malformed_text(parsed), query="")

    def _report(self, state: PuzzleState) -> dict[str, Any]:
        known = sorted({f"{' '.join(reply.topics) or question}: {reply.text}" for question, reply in state.asked})
        return {
            "task_id": state.puzzle.puzzle_id,
            "success": state.f1[self._unit] >= self.options.success_threshold,
            "references": [self._story(state.puzzle)],
            "anchor": f"{state.puzzle.puzzle_id} | {' | '.join(known)}",
            "metrics": {
                "questions": len(state.asked),
                "unknown_replies": sum(reply.stalls for _, reply in state.asked),
                "repeated_questions": len(state.asked) - len(known),
                "f1_word": state.f1[0],
                "f1_char": state.f1[1],
            },
        }


make = SituationPuzzlesEnv
