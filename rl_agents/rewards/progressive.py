"""PRS on whole episodes: read the text, ask the judge where its stage is reached, put R on the last step.

The formulas are in `rl_agents.rewards.prs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_agents.background import at_once, wait
from rl_agents.config import Settings
from rl_agents.data.failures import JUDGE
from rl_agents.data.trajectory import Trajectory
from rl_agents.data.tree import last_word
from rl_agents.errors import InputError
from rl_agents.rewards.judge import Judge, JudgeError
from rl_agents.rewards.judges import make_judge
from rl_agents.rewards.prs import (
    format_reward,
    judge_needed,
    long_form_reward,
    process_reward,
    progressive_reward,
    short_form_bleu,
    short_form_reward,
)
from rl_agents.rewards.reading import Reading, read_episode


@dataclass(slots=True)
class Score:
    """The parts of one episode's reward; None where the stage was not reached."""

    process: float
    formatting: float
    judge: float | None = None
    answer: float | None = None

    @property
    def base(self) -> float:
        return self.process + self.formatting

    def parts(self) -> dict[str, float | None]:
        """By name, as ``facts["prs"]`` has them."""
        return {"process": self.process, "format": self.formatting, "judge": self.judge, "answer": self.answer}


@dataclass
class ProgressiveReward:
    """The reward ``prs``; see docs/algorithms/prs.md for its keys.

    Attributes:
        judge: None for the short form.
        thresholds: ε₁ on R_process + R_format and ε₂ on R_judge; the general form only.
        judged: whether the judge ever gave a verdict.
    """

    form: str
    tags: tuple[str, ...]
    require_tool_call: bool
    judge: Judge | None
    thresholds: tuple[float, ...] = (1.0, 1.0)
    judged: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> ProgressiveReward:
        return cls(
            settings.prs_form,
            tuple(settings.prs_tags),
            settings.prs_require_tool_call,
            None if settings.prs_form == "short" else make_judge(settings),
            tuple(settings.prs_thresholds),
        )

    @property
    def waits(self) -> bool:
        return self.judge is not None and self.judge.remote

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """See `Reward.apply`; R goes to the step that had the last word, the environment's return to ``facts``.

        Raises:
            InputError: the environment names no references, or the judge has never answered at all.
        """
        played = [t for t in trajectories if t.steps and not t.failed]
        readings = [read_episode(t, self.tags) for t in played]
        scores = [self._first_stage(reading) for reading in readings]
        failures = self._ask_judge(readings, scores)
        for trajectory, reading, score, failure in zip(played, readings, scores, failures, strict=True):
            trajectory.facts["environment_return"] = trajectory.episode_return
            trajectory.facts["prs"] = score.parts()
            if failure:
                trajectory.failed, trajectory.end_cause = True, f"{JUDGE}: {failure}"
                trajectory.metrics["judge_failed"] = 1.0
                continue
            if self._answer_counts(score):
                score.answer = self._bleu(trajectory, reading)
            self._write(trajectory, score)
        return self.metrics(trajectories)

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """See `Reward.metrics`: means over the episodes that reached a stage, and how many did."""
        return _metrics([t for t in trajectories if "prs" in t.facts])

    def _first_stage(self, reading: Reading) -> Score:
        process = process_reward(reading.calls_parsed, bool(reading.answer), require_tool_call=self.require_tool_call)
        return Score(process, format_reward(reading.tags_complete))

    def _judge_counts(self, score: Score) -> bool:
        if self.form == "general":
            return score.base >= self.thresholds[0]
        return self.form == "long" and judge_needed(score.process)

    def _answer_counts(self, score: Score) -> bool:
        if self.form == "short":
            return score.process >= 1.0
        return score.judge is not None and score.judge >= (self.thresholds[1] if self.form == "general" else 1.0)

    def _ask_judge(self, readings: Sequence[Reading], scores: Sequence[Score]) -> list[str]:
        """Fill ``Score.judge`` where its stage is reached; return one failure, or an empty text, per episode."""
        failures = [""] * len(scores)
        due = [i for i, score in enumerate(scores) if self._judge_counts(score)]
        if self.judge is None or not due:
            return failures
        asked = self._verdicts([readings[i] for i in due])
        verdicts = wait(asked) if self.judge.remote else at_once(asked)
        for i, verdict in zip(due, verdicts, strict=True):
            if isinstance(verdict, JudgeError):
                failures[i] = str(verdict)
            else:
                scores[i].judge, self.judged = verdict, True
        if not self.judged:
            raise InputError(f"the judge answered none of {len(due)} questions: {failures[due[-1]]}")
        return failures

    async def _verdicts(self, readings: Sequence[Reading]) -> list[float | JudgeError]:
        """Ask about all answers at the same time; how many the judge has before it at once is its own matter."""
        if self.judge is not None and not self.judge.remote:
            return [await self._verdict(reading) for reading in readings]
        return await asyncio.gather(*map(self._verdict, readings))

    async def _verdict(self, reading: Reading) -> float | JudgeError:
        assert self.judge is not None
        try:
            return await self.judge.verdict(reading)
        except JudgeError as error:
            return error

    def _bleu(self, trajectory: Trajectory, reading: Reading) -> float:
        if not reading.references:
            raise InputError(
                f"reward=prs compares answers with references, and the environment names none for task "
                f"{trajectory.task_id} (info['references'])"
            )
        return short_form_bleu(reading.answer, reading.references)

    def _total(self, score: Score) -> float:
        judge, answer = score.judge or 0.0, score.answer or 0.0
        if self.form == "short":
            return short_form_reward(score.process, score.formatting, answer)
        if self.form == "long":
            return long_form_reward(score.process, score.formatting, judge, answer)
        return progressive_reward([score.base, judge, answer], self.thresholds)

    def _write(self, trajectory: Trajectory, score: Score) -> None:
        for step in trajectory.steps:
            step.reward = 0.0
        trajectory.steps[last_word(trajectory)].reward = self._total(score)
        trajectory.facts["prs"] = score.parts()


def _metrics(scored: Sequence[Trajectory]) -> dict[str, float]:
    if not scored:
        return {}
    parts = [trajectory.facts["prs"] for trajectory in scored]
    judged = [part["judge"] for part in parts if part["judge"] is not None]
    answers = [part["answer"] for part in parts if part["answer"] is not None]
    lost = sum(bool(trajectory.metrics.get("judge_failed")) for trajectory in scored)
    metrics = {
        "reward/process_mean": float(np.mean([part["process"] for part in parts])),
        "reward/format_mean": float(np.mean([part["format"] for part in parts])),
        "reward/answer_stage_share": len(answers) / len(parts),
        "reward/judge_calls": float(len(judged) + lost),
        "reward/judge_failures": float(lost),
        "reward/environment_return_mean": float(np.mean([t.facts["environment_return"] for t in scored])),
    }
    if judged:
        metrics["reward/judge_mean"] = float(np.mean(judged))
    if answers:
        metrics["reward/answer_mean"] = float(np.mean(answers))
    return metrics
