"""PRS: progressive reward shaping. A later reward component counts only if the earlier ones are earned.

Unlike a weighted sum, the quality of an answer earns nothing while the rollout does not parse. So the policy learns
format, then tool use, then correctness. First the formulas, then the reward of whole episodes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from rl_agents.background import at_once, wait
from rl_agents.config import Settings
from rl_agents.data.failures import JUDGE
from rl_agents.data.trajectory import Trajectory
from rl_agents.data.tree import last_word
from rl_agents.errors import InputError
from rl_agents.rewards.judges import Judge, JudgeError, make_judge
from rl_agents.rewards.reading import Reading, read_episode
from rl_agents.rewards.wording import normalized


def process_reward(calls_parsed: Sequence[bool], answer_parsed: bool, *, require_tool_call: bool = False) -> float:
    """R_process = 1 all calls and the answer parse;  0 all calls parse, the answer does not;  -1 otherwise.

    Args:
        calls_parsed: for every tool call, whether it parsed and satisfied the tool's schema. May be empty.
        answer_parsed: there is a non-empty final answer.
        require_tool_call: return -1 if there is no call.
    """
    if not all(calls_parsed) or (require_tool_call and not calls_parsed):
        return -1.0
    return 1.0 if answer_parsed else 0.0


#: R_format if all required tag pairs are complete.
FORMAT_REWARD = 0.1


def short_form_reward(process: float, formatting: float, answer: float) -> float:
    """R = R_process + R_format, and + R_a once R_process >= 1; in [-1, 2.1].

    Args:
        process: R_process in {-1, 0, 1}.
        formatting: R_format in {0, 0.1}.
        answer: R_a in [0, 1], short-form BLEU.
    """
    return process + formatting + (answer if process >= 1.0 else 0.0)


def long_form_reward(process: float, formatting: float, judge: float, answer: float) -> float:
    """R = R_process + R_format, then + R_judge once R_process >= 1, then + R_a once R_judge >= 1; in [-1, 3.1].

    Args:
        judge: R_judge in {0, 1}: factual, without hallucination; ignored while R_process < 1.
        process, formatting, answer: as in `short_form_reward`.
    """
    reward = process + formatting
    if process < 1.0:
        return reward
    return reward + judge + (answer if judge >= 1.0 else 0.0)


def progressive_reward(components: Sequence[float], thresholds: Sequence[float]) -> float:
    """R = R₁ + 1{R₁ >= ε₁}·σ(R₂) + 1{R₁ >= ε₁, R₂ >= ε₂}·σ(R₃) + ... (PRS, eq. 15), σ the logistic function.

    This is the general form; the question-answering forms above add raw values. Thresholds apply to raw components. A
    reached stage always adds something, because σ(0) = ½.

    Args:
        components: R₁, R₂, ..., at least one.
        thresholds: ε₁, ε₂, ..., one fewer than the components.

    Raises:
        ValueError: the two lengths do not match.
    """
    if len(components) != len(thresholds) + 1:
        raise ValueError(f"{len(components)} components need {len(components) - 1} thresholds, got {len(thresholds)}")
    reward = components[0]
    for previous, threshold, component in zip(components, thresholds, components[1:], strict=False):
        if previous < threshold:
            break
        reward += _logistic(component)
    return reward


def _logistic(x: float) -> float:
    """1/(1 + e^{-x}) without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def short_form_bleu(prediction: str, references: str | Sequence[str]) -> float:
    """BLEU for short answers: BP·exp(1/N·Σ_n ln p_n), N = min(4, c), the best over the references.

    BLEU-4 would be 0 for every answer below four words, so the order depends on the length c of the prediction. p_n is
    the clipped n-gram precision, BP = 1 if c > r, else exp(1 - r/c).

    Args:
        prediction: the answer, to be normalized by `normalized`.
        references: one or several accepted answers.

    Returns:
        A number in [0, 1]; 0 for an empty prediction, or if an order has no overlap: no smoothing, as in the paper.
    """
    answers = [references] if isinstance(references, str) else references
    words = normalized(prediction).split()
    return max((_bleu(words, normalized(answer).split()) for answer in answers), default=0.0)


def _bleu(candidate: list[str], reference: list[str]) -> float:
    if not candidate or not reference:
        return 0.0
    orders = min(4, len(candidate))
    total = 0.0
    for n in range(1, orders + 1):
        found, expected = _ngrams(candidate, n), _ngrams(reference, n)
        overlap = sum((found & expected).values())
        if overlap == 0:
            return 0.0
        total += math.log(overlap / sum(found.values()))
    brevity = min(0.0, 1.0 - len(reference) / len(candidate))
    return math.exp(brevity + total / orders)


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


@dataclass(slots=True)
class RewardStages:
    """The parts of one episode's reward; None if the stage was not reached."""

    process: float
    format: float
    judge: float | None = None
    answer: float | None = None

    @property
    def base(self) -> float:
        return self.process + self.format


@dataclass
class ProgressiveReward:
    """The reward ``prs``; for its keys see docs/algorithms/prs.md.

    Attributes:
        judge: None for the short form.
        thresholds: ε₁ for R_process + R_format and ε₂ for R_judge; only in the general form.
        judged: the judge has returned a verdict at least once.
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
        """See `Reward.apply`. The last step of the final conversation gets R; ``facts`` keep the environment's return.

        Raises:
            InputError: the environment gives no references, or the judge has never answered.
        """
        played = [t for t in trajectories if t.steps and not t.failed]
        readings = [read_episode(t, self.tags) for t in played]
        scores = [self._first_stage(reading) for reading in readings]
        failures = self._ask_judge(readings, scores)
        for trajectory, reading, score, failure in zip(played, readings, scores, failures, strict=True):
            trajectory.facts["environment_return"] = trajectory.episode_return
            if failure:
                trajectory.failed, trajectory.end_cause = True, f"{JUDGE}: {failure}"
                trajectory.metrics["judge_failed"] = 1.0
            else:
                if self._answer_counts(score):
                    score.answer = self._bleu(trajectory, reading)
                for step in trajectory.steps:
                    step.reward = 0.0
                trajectory.steps[last_word(trajectory)].reward = self._total(score)
            trajectory.facts["prs"] = asdict(score)
        return self.metrics(trajectories)

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """See `Reward.metrics`: means over the episodes that reached a stage, and the share that did."""
        scored = [t for t in trajectories if "prs" in t.facts]
        return _metrics(scored) if scored else {}

    def _first_stage(self, reading: Reading) -> RewardStages:
        process = process_reward(reading.calls_parsed, bool(reading.answer), require_tool_call=self.require_tool_call)
        return RewardStages(process, FORMAT_REWARD if reading.tags_complete else 0.0)

    def _judge_counts(self, score: RewardStages) -> bool:
        if self.form == "general":
            return score.base >= self.thresholds[0]
        return self.form == "long" and score.process >= 1.0

    def _answer_counts(self, score: RewardStages) -> bool:
        if self.form == "short":
            return score.process >= 1.0
        return score.judge is not None and score.judge >= (self.thresholds[1] if self.form == "general" else 1.0)

    def _ask_judge(self, readings: Sequence[Reading], scores: Sequence[RewardStages]) -> list[str]:
        """Fill ``judge`` of scores that reach its stage; return a failure, or an empty text, for every episode."""
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
        """Ask about all answers concurrently; the judge's server limits the number of requests."""
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
                f"reward=prs compares answers with references, and the environment gives none for task "
                f"{trajectory.task_id} (info['references'])"
            )
        return short_form_bleu(reading.answer, reading.references)

    def _total(self, score: RewardStages) -> float:
        judge, answer = score.judge or 0.0, score.answer or 0.0
        if self.form == "short":
            return short_form_reward(score.process, score.format, answer)
        if self.form == "long":
            return long_form_reward(score.process, score.format, judge, answer)
        return progressive_reward([score.base, judge, answer], self.thresholds)


def _metrics(scored: Sequence[Trajectory]) -> dict[str, float]:
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
