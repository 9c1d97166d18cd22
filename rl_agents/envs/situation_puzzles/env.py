"""SituationPuzzles as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most fifteen turns: yes-or-no questions to a judge who knows the story, and an answer that tells it.
Reward is the F1 of the answer and the story, in [0, 1], given on the turn that answers; without an answer it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.coroutines import finished
from rl_agents.envs.situation_puzzles import SPEC, SituationPuzzlesOptions, prompts
from rl_agents.envs.situation_puzzles.judges import QuestionJudge, make_judge
from rl_agents.envs.situation_puzzles.rules import F1_UNITS, Puzzle, Reply, f1_score, is_new
from rl_agents.envs.situation_puzzles.tasks import find_puzzle, task_ids
from rl_agents.envs.stateful import StepResult, TaggedEnv, observations
from rl_agents.envs.tags import TaggedAction


@dataclass(frozen=True, slots=True)
class PuzzleState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        asked: questions and the judge's replies, oldest first.
        f1: of the answer, by unit (`rules.F1_UNITS`); zeros before it.
    """

    puzzle: Puzzle
    asked: tuple[tuple[str, Reply], ...] = ()
    turns: int = 0
    f1: tuple[float, float] = (0.0, 0.0)
    done: bool = False


class SituationPuzzlesEnv(TaggedEnv[PuzzleState, SituationPuzzlesOptions]):
    """Ask yes-or-no questions, then tell the story behind a strange scene.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the puzzle and all that the judge has said, whatever
    the order), ``progress`` (None before the first turn, for malformed responses and for answers), ``query`` (the
    question), ``references`` (the story), and ``metrics``: ``turns``, ``questions``, ``unknown_replies``,
    ``repeated_questions``, ``f1_word`` and ``f1_char``.

    Raises:
        InputError: a bad option.
    """

    observation_space = observations(32768)
    registered = SPEC
    task_ids = staticmethod(task_ids)
    answer_now = prompts.PAPER_ANSWER_NOW

    def __init__(self, options: SituationPuzzlesOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._judge: QuestionJudge = make_judge(self.options)
        self.awaited = self._judge.remote
        self._unit = F1_UNITS.index(self.options.f1)

    def _begin(self, task_id: str) -> tuple[str, PuzzleState]:
        puzzle = find_puzzle(task_id, self.options.data, self.options.bad_data)
        return prompts.first_observation(puzzle, self.options.prompt), PuzzleState(puzzle)

    def step(self, action: str) -> Any:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Returns:
            The turn's result; with a served judge a coroutine that comes to it.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
            JudgeError: the judge's server gave no usable reply; the state is as before.
        """
        return self._played(self._turn(action))

    async def _turn(self, action: str) -> StepResult:
        result: StepResult = await finished(super().step(action))
        return result

    def _read(self, response: str, state: PuzzleState) -> TaggedAction:
        return prompts.parse_action(response)

    def _reasons(self) -> dict[str, str]:
        return prompts.PAPER_MALFORMED

    async def _ask(self, state: PuzzleState, question: str) -> StepResult:
        reply = await self._judge.reply(state.puzzle, question)
        progress = not reply.stalls
        if self.options.progress == "new":
            progress = reply.informative and is_new(reply, question, state.asked)
        new = replace(state, asked=(*state.asked, (question, reply)))
        observation = prompts.reply_observation(reply.text, self.options.prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=question)

    def _answer(self, state: PuzzleState, answer: str) -> StepResult:
        reference = prompts.story(state.puzzle, self.options.prompt)
        word, char = (f1_score(answer[: prompts.MAX_ANSWER], reference, unit) for unit in F1_UNITS)
        earned = (word, char)[self._unit]
        new = replace(state, f1=(word, char))
        return self._end_turn(new, f"f1 {earned:.2f}", earned, valid=True, progress=None, terminated=True, query="")

    def _reject(self, state: PuzzleState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(state, self._malformed_text(parsed), query="")

    def _info(self, state: PuzzleState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        known = sorted({f"{' '.join(reply.topics) or question}: {reply.text}" for question, reply in state.asked})
        return {
            "task_id": state.puzzle.puzzle_id,
            "success": state.f1[self._unit] >= self.options.success_threshold,
            "valid": valid,
            "progress": progress,
            "references": [prompts.story(state.puzzle, self.options.prompt)],
            "anchor": f"{state.puzzle.puzzle_id} | {' | '.join(known)}",
            "metrics": {
                "turns": float(state.turns),
                "questions": float(len(state.asked)),
                "unknown_replies": float(sum(reply.stalls for _, reply in state.asked)),
                "repeated_questions": float(len(state.asked) - len(known)),
                "f1_word": state.f1[0],
                "f1_char": state.f1[1],
            },
        }


make = SituationPuzzlesEnv
