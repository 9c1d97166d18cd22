"""SituationPuzzles as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most fifteen turns: yes-or-no questions to a judge who knows the story, and an answer that tells it.
Reward is the F1 of the answer and the story, in [0, 1], given on the turn that answers; without an answer it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.situation_puzzles.judges import QuestionJudge, make_judge
from rl_agents.envs.situation_puzzles.loader import BAD_DATA_RULES
from rl_agents.envs.situation_puzzles.prompts import (
    MAX_ANSWER,
    PROMPT_STYLES,
    answer_instruction,
    first_observation,
    malformed_observation,
    parse_action,
    reply_observation,
    story,
)
from rl_agents.envs.situation_puzzles.rules import F1_UNITS, PROGRESS_RULES, Puzzle, Reply, f1_score, is_new
from rl_agents.envs.situation_puzzles.tasks import PUZZLE_SETS, find_puzzle, task_ids
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
from rl_agents.envs.tags import TaggedAction
from rl_agents.errors import InputError

MAX_TURNS = 15
MALFORMED_RULES = ("retry", "end")


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


class SituationPuzzlesEnv(StatefulEnv[PuzzleState]):
    """Ask yes-or-no questions, then tell the story behind a strange scene.

    Args:
        puzzles: ``cases``, ``small`` or ``demo``: see `tasks`.
        data: folder with ``train.json`` and ``test.json`` in AR-Bench's format; its puzzles replace ours.
        bad_data: a record of the folder that cannot be used is an ``error``, or left out (``skip``).
        prompt: ``paper`` (figure 7) or ``compact`` (few words, for small models).
        malformed: a response that cannot be read counts as a turn and then: ``retry`` continues with a message that
            says what is wrong, ``end`` ends the episode with reward 0.
        progress: what ``info["progress"]`` means: ``informative`` (T3: the judge answered yes or no), or ``new``
            (also, the question was about something that no earlier one was about).
        f1: unit of the reward: ``word`` or ``char``.
        success_threshold: an answer with at least this F1 is a success; changes no reward.
        judge: ``rule`` (deterministic, needs nothing) or ``openai`` (a model behind a server).
        match: how like a key question must be for the rule judge, in (0, 1]; matters for ``data`` only.
        judge_url: of the server, up to and including ``/v1``.
        judge_model: its name on the server.
        judge_key_env: environment variable with the server's key; empty for none.
        judge_timeout_s: seconds that one request may take.
        judge_retries: further attempts after a timeout, a lost connection, or HTTP 429 or 5xx.
        max_turns: turns of the agent; after the last the episode is truncated.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the puzzle and all that the judge has said, whatever
    the order), ``progress`` (None before the first turn, for malformed responses and for answers), ``query`` (the
    question), ``references`` (the story), and ``metrics``: ``turns``, ``questions``, ``unknown_replies``,
    ``repeated_questions``, ``f1_word`` and ``f1_char``.

    Raises:
        InputError: a bad option.
    """

    observation_space = observations(32768)
    label = "SituationPuzzles"

    def __init__(
        self,
        *,
        puzzles: str = "cases",
        data: str = "",
        bad_data: str = "error",
        prompt: str = "paper",
        malformed: str = "retry",
        progress: str = "informative",
        f1: str = "word",
        success_threshold: float = 0.5,
        max_turns: int = MAX_TURNS,
        judge: str = "rule",
        **judge_options: Any,
    ) -> None:
        super().__init__(
            max_turns,
            puzzles=(puzzles, PUZZLE_SETS),
            bad_data=(bad_data, BAD_DATA_RULES),
            prompt=(prompt, PROMPT_STYLES),
            malformed=(malformed, MALFORMED_RULES),
            progress=(progress, PROGRESS_RULES),
            f1=(f1, F1_UNITS),
        )
        if not 0 < success_threshold <= 1:
            raise InputError(f"env.success_threshold is {success_threshold}: it must be above 0 and at most 1")
        self._judge: QuestionJudge = make_judge(judge, **judge_options)
        self._puzzles, self._data, self._bad_data = puzzles, data, bad_data
        self._prompt, self._malformed, self._progress = prompt, malformed, progress
        self._unit, self._threshold = F1_UNITS.index(f1), success_threshold

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id, or unusable data.
        """
        task_id = self._draw_task(seed, options, self._train_ids)
        self._state = PuzzleState(find_puzzle(task_id, self._data, self._bad_data))
        return first_observation(self._state.puzzle, self._prompt), self._info(self._state, valid=True, progress=None)

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
            JudgeError: the judge's server gave no usable reply; the state is as before.
        """
        state = self.state
        parsed = parse_action(action)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        if parsed.kind == "interact":
            return self._ask(state, parsed.content)
        return self._reject(state, parsed)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return answer_instruction(self._prompt)

    def _train_ids(self) -> list[str]:
        return task_ids("train", puzzles=self._puzzles, data=self._data, bad_data=self._bad_data)

    def _ask(self, state: PuzzleState, question: str) -> StepResult:
        reply = self._judge.reply(state.puzzle, question)
        progress = reply.informative
        if self._progress == "new":
            progress = progress and is_new(reply, question, state.asked)
        new = replace(state, asked=(*state.asked, (question, reply)))
        observation = reply_observation(reply.text, self._prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=question)

    def _answer(self, state: PuzzleState, answer: str) -> StepResult:
        reference = story(state.puzzle, self._prompt)
        word, char = (f1_score(answer[:MAX_ANSWER], reference, unit) for unit in F1_UNITS)
        earned = (word, char)[self._unit]
        new = replace(state, f1=(word, char))
        return self._end_turn(new, f"f1 {earned:.2f}", earned, valid=True, progress=None, terminated=True, query="")

    def _reject(self, state: PuzzleState, parsed: TaggedAction) -> StepResult:
        observation, ends = malformed_observation(parsed, self._prompt), self._malformed == "end"
        return self._end_turn(state, observation, valid=False, progress=None, terminated=ends, query="")

    def _info(self, state: PuzzleState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        known = sorted({f"{' '.join(reply.topics) or question}: {reply.text}" for question, reply in state.asked})
        return {
            "task_id": state.puzzle.puzzle_id,
            "success": state.f1[self._unit] >= self._threshold,
            "valid": valid,
            "progress": progress,
            "references": [story(state.puzzle, self._prompt)],
            "anchor": f"{state.puzzle.puzzle_id} | {' | '.join(known)}",
            "metrics": {
                "turns": float(state.turns),
                "questions": float(len(state.asked)),
                "unknown_replies": float(sum(not reply.informative for _, reply in state.asked)),
                "repeated_questions": float(len(state.asked) - len(known)),
                "f1_word": state.f1[0],
                "f1_char": state.f1[1],
            },
        }


def make(**options: Any) -> SituationPuzzlesEnv:
    """Create the environment; the options are those of `SituationPuzzlesEnv`."""
    return SituationPuzzlesEnv(**options)
