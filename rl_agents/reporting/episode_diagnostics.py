"""Warnings about the episodes of a run or an evaluation: causes of failures, and problems of most episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_agents.advantages import ROUNDING, tolerance
from rl_agents.config import Settings
from rl_agents.data.failures import FailedEpisodes
from rl_agents.data.tasks import by_environment
from rl_agents.data.trajectory import Trajectory
from rl_agents.installation import called
from rl_agents.reporting.statistics import few_tasks

#: Training iterations over which failed episodes are counted, so that a short outage does not end a run.
WINDOW = 3
#: Share of the episodes above which a problem is reported.
MOST = 0.5
#: Change of a share after which it is reported again.
NEWS = 0.25

#: Why most groups agree, at a success rate of at most 0.2, at most 0.8, and above.
TASKS_ARE = (
    "few tasks are ever solved: choose easier tasks, imitate first, or raise group_size",
    "tasks are too easy or too hard: raise group_size, choose other tasks, or set dynamic_sampling where it exists",
    "most tasks are solved: harder tasks, or stop",
)


def _cut(episodes: Sequence[Trajectory], invalid_only: bool = False) -> float:
    """Return the share with a response cut at the token limit; with ``invalid_only``, only invalid responses count."""
    cut = [[s for s in t.steps if s.finish_reason == "length"] for t in episodes]
    return _share(any(not (invalid_only and step.valid) for step in steps) for steps in cut)


@dataclass(frozen=True)
class Caution:
    """A problem that most episodes may share.

    Attributes:
        share: of episodes with the problem.
        text: after "NN % of the episodes", with keys of the run in braces.
    """

    name: str
    share: Callable[[Sequence[Trajectory], Mapping[str, Any]], float]
    text: str


CAUTIONS = (
    Caution(
        "context", lambda episodes, _: _share(t.end_cause == "context_length" for t in episodes),
        "are cut by the context (max_model_len={max_model_len}) before the task ends, and count as not solved: raise "
        "max_model_len, lower max_response_tokens={max_response_tokens}, or set context=window(n) or summary(n)",
    ),
    Caution(
        "response", lambda episodes, _: _cut(episodes),
        "have a response cut at max_response_tokens={max_response_tokens}, so that its end is missing: raise it (and "
        "max_model_len={max_model_len} with it)",
    ),
    Caution(
        "validity", lambda episodes, _: _share(not any(s.valid for s in t.steps) for t in episodes if t.steps),
        "never contain a valid action: compare the format that the prompt asks for with the actual responses "
        "(trajectories/latest.md of a run); imitate the environment's scripted player first ({imitate}), or use "
        "a larger model",
    ),
    Caution(
        # Siblings of a search mostly agree, and it also trains on paths; the KL from a teacher is a gradient, too.
        "advantage",
        lambda _, record: (
            0.0
            if record.keys() & {"search/sampled_steps", "actor/ref_kl"}
            else float(record.get("rollout/zero_advantage_share") or 0.0)
        ),
        "have no advantage, because all that they are compared with got the same return, and give no gradient: {why}",
    ),
)  # fmt: skip


#: Effective sample size over samples (`rl_agents.losses.effective_share`) below which a warning is given.
LEAST_EFFECTIVE = 0.3
EFFECTIVE = (
    "the effective sample size is {share:.0%} of the samples: the policy is far from the one that sampled them, or is "
    "another model; train on newer sessions (lower async_level or max_staleness), for fewer iterations or with a lower "
    "lr, or raise kl_coef"
)


@dataclass
class EpisodeWatch:
    """Count failed episodes, and report each problem once, and again after a large change of its share."""

    settings: Settings
    _told: dict[str, float] = field(default_factory=dict)
    _recent: deque[FailedEpisodes] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def after_training(self, episodes: Sequence[Trajectory], record: Mapping[str, Any]) -> list[str]:
        """Return the warnings for an iteration's episodes."""
        failed = FailedEpisodes.of(self._alive(episodes))
        self._recent.append(failed)
        ends = self._too_many(sum(self._recent, FailedEpisodes()))  # `check_training` will say it
        return ([] if ends else self._failures("episodes", failed)) + self._cautions(episodes, record)

    def after_evaluation(self, episodes: Sequence[Trajectory]) -> list[str]:
        """Return the warnings for an evaluation's failed episodes and few tasks."""
        few = few_tasks(len(episodes), len({t.task_id for t in episodes}))
        lines = [few] * self._is_news("few tasks", float(bool(few)), 0.0)
        return self._failures("evaluation episodes", FailedEpisodes.of(episodes)) + lines

    def of_policy(self, episodes: Sequence[Trajectory]) -> list[str]:
        """Return the warnings for an evaluation outside of training."""
        return self.after_evaluation(episodes) + self._cautions(episodes, {})

    def check_training(self) -> None:
        """End the run if episodes of its last iterations failed too often.

        Raises:
            EpisodesFail: all episodes failed, or more than ``max_failed_share``.
        """
        self._check("episodes", sum(self._recent, FailedEpisodes()))

    def check_evaluation(self, episodes: Sequence[Trajectory]) -> None:
        """As `check_training`, for an evaluation, whose success rate would be meaningless."""
        self._check("evaluation episodes", FailedEpisodes.of(self._alive(episodes)))

    def _alive(self, episodes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return the episodes except those of environments that fail wholly while another of several does not."""
        shares = by_environment(self.settings.parts, episodes).values()
        return [t for own in shares if not all(t.failed for t in own) for t in own] or episodes

    def _check(self, what: str, failed: FailedEpisodes) -> None:
        if self._too_many(failed):
            limit = self.settings.max_failed_share
            raise failed.error(f"{failed.sentence(what)} (max_failed_share={limit:g})")

    def _too_many(self, failed: FailedEpisodes) -> bool:
        # Errors of agents, such as parse errors, depend on the policy: they end a run only if all episodes fail.
        limit = self.settings.max_failed_share * failed.total
        return failed.share == 1.0 or failed.causes.total() - failed.agent_errors > limit

    def _cautions(self, episodes: Sequence[Trajectory], record: Mapping[str, Any]) -> list[str]:
        played, lines = [t for t in episodes if not t.failed], []
        model = "" if self.settings.model == "starter" else f" --model {self.settings.model} --output DIR"
        imitate = f"{called()} sft --env {self.settings.env}{model}"
        solved = _share(t.success and not t.failed for t in episodes)
        for caution in CAUTIONS if played else ():
            share = caution.share(played, record)
            # With a limit that the user set, count only invalid actions, because short answers may be intended.
            if caution.name == "response" and "max_response_tokens" in self.settings.explicit:
                share = _cut(played, invalid_only=True)
            if self._is_news(caution.name, share, MOST):
                why = _close_returns(played) or TASKS_ARE[(solved > 0.2) + (solved > 0.8)]
                text = caution.text.format(**self.settings.to_dict(), imitate=imitate, why=why)
                lines.append(f"{share:.0%} of the episodes {text}")
        return lines + self._effective(float(record.get("rollout_corr/ess", 1.0)))

    def _effective(self, share: float) -> list[str]:
        """Warn if the effective sample size is small, and again only after it has recovered."""
        was_low, low = "effective" in self._told, share < LEAST_EFFECTIVE
        if low:
            self._told["effective"] = share
        else:
            self._told.pop("effective", None)
        return [EFFECTIVE.format(share=share)] if low and not was_low else []

    def _failures(self, what: str, failed: FailedEpisodes) -> list[str]:
        return [failed.sentence(what)] if self._is_news(f"failed {what}", failed.share, 0.0) else []

    def _is_news(self, name: str, share: float, least: float) -> bool:
        if share <= least:
            if name in self._told and share <= self._told[name] - NEWS:
                del self._told[name]
            return False
        if name in self._told and abs(share - self._told[name]) < NEWS:
            return False
        self._told[name] = share
        return True


def _close_returns(episodes: Sequence[Trajectory]) -> str:
    """Return an advice if the returns of most groups that count as equal differ by more than rounding; else nothing."""
    returns, groups = (np.array([getattr(t, name) for t in episodes]) for name in ("episode_return", "group_id"))
    alone = np.unique(groups).size == groups.size  # compared with the whole batch
    spreads = [float(np.ptp(returns[alone | (groups == group)])) for group in np.unique(groups)]
    least, noise, span = tolerance(returns), ROUNDING * float(np.abs(returns).max()), float(np.ptp(returns))
    if 2 * sum(noise < spread <= least for spread in spreads) <= sum(spread <= least for spread in spreads):
        return ""
    wide = f"bound its extreme values, as all returns span {span:.3g}"
    advice = wide if span > 1 else "multiply the reward, so that its range is about 1"
    return f"most returns differ, but by at most {least:.1g}, which counts as equal: {advice} (docs/algorithms/grpo.md)"


def _share(flags: Any) -> float:
    items = [bool(flag) for flag in flags]
    return sum(items) / len(items) if items else 0.0
