"""Detection of a policy that has degraded below its start, from one sample of its success per iteration.

An iteration's sample is the mean over its tasks, m, with a standard error e between tasks and the number of tasks n
(`policy_sample`). A window of iterations pools them:

    M = Σ n·m / Σ n,    E² = Σ n²·e² / (Σ n)².

Of k sampled iterations, the first w and the last w are compared, w = min(`WINDOW`, k // 2). So the start is known after
two iterations, and more precisely until the window is full. The policy is *below* if

    M_start - M_now > z·√(E_start² + E_now²)

and has *degraded* if it is below twice in a row. In runs of 100 iterations without any change, z = 3.5 raises a false
alarm in fewer than 1 %, z = 3 in 2 to 3 % (tests/reporting/test_collapse_monitor.py).

All functions depend only on the records of metrics.jsonl, so a resumed run continues with the same verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_agents.data.trajectory import Trajectory

#: Tags of a sample: mean over tasks, its standard error, and the number of tasks.
SAMPLE, SAMPLE_SE, TASKS = (f"collapse_monitor/{name}" for name in ("sample", "sample_se", "tasks"))

#: Most iterations in a window; more if they have fewer than `LEAST_TASKS` together.
WINDOW = 8
#: Fewest tasks of a window; with fewer, its standard error is too uncertain.
LEAST_TASKS = 32
#: Drop of success that counts as degraded, in combined standard errors.
Z = 3.5
#: Tags of a record: last window, start, and whether the policy is below (1 or 0).
SUCCESS, SUCCESS_SE, START, START_SE, BELOW = (
    f"collapse_monitor/{name}" for name in ("success", "success_se", "start", "start_se", "below")
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Success on some tasks, with its standard error."""

    mean: float
    error: float
    tasks: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison after an iteration.

    Attributes:
        start, now: the first and the last window; None: too few tasks so far.
        below: the last window is below the first one by more than the noise.
        fallen: below twice in a row.
    """

    start: Sample | None = None
    now: Sample | None = None
    below: bool = False
    fallen: bool = False

    def tags(self) -> dict[str, float]:
        """Return its tags for a record."""
        if (start := self.start) is None or (now := self.now) is None:
            return {}
        found = {SUCCESS: now.mean, SUCCESS_SE: now.error, START: start.mean, START_SE: start.error}
        return {**found, BELOW: float(self.below)}

    def sentence(self) -> str:
        """Return both numbers as text."""
        assert self.start is not None and self.now is not None
        return (
            f"the policy has degraded below its start: success {self.now.mean:.2f} +- {self.now.error:.2f}, "
            f"at the start {self.start.mean:.2f} +- {self.start.error:.2f}"
        )


def pooled(samples: Sequence[Sample]) -> Sample:
    """Return the mean of independent samples, weighted by tasks, with its standard error."""
    tasks = sum(sample.tasks for sample in samples)
    mean = sum(sample.tasks * sample.mean for sample in samples) / tasks
    error = math.sqrt(sum((sample.tasks * sample.error) ** 2 for sample in samples)) / tasks
    return Sample(mean, error, tasks)


def compare(samples: Sequence[Sample]) -> Verdict:
    """Compare the last window with the first; `Verdict.fallen` stays false, which needs two iterations.

    Args:
        samples: of all iterations that have one, in order.
    """
    tasks = sum(sample.tasks for sample in samples)
    window = max(WINDOW, math.ceil(LEAST_TASKS * len(samples) / tasks)) if tasks else WINDOW
    width = min(window, len(samples) // 2)
    first, last = samples[:width], samples[len(samples) - width :]
    if min(sum(sample.tasks for sample in part) for part in (first, last)) < LEAST_TASKS:
        return Verdict()
    start, now = pooled(first), pooled(last)
    return Verdict(start, now, below=start.mean - now.mean > Z * math.hypot(start.error, now.error))


def samples(records: Sequence[Mapping[str, Any]]) -> list[Sample]:
    return [Sample(r[SAMPLE], r[SAMPLE_SE], r[TASKS]) for r in records if r.get(SAMPLE) is not None]


def judge(records: Sequence[Mapping[str, Any]]) -> Verdict:
    """Judge a run by its records, of which the last one may have no sample; then there is no verdict.

    Args:
        records: lines of metrics.jsonl.
    """
    if not records or records[-1].get(SAMPLE) is None:
        return Verdict()
    now, before = compare(samples(records)), compare(samples(records)[:-1])
    return Verdict(now.start, now.now, now.below, fallen=now.below and before.below)


def policy_sample(trajectories: Sequence[Trajectory], groups: int) -> dict[str, float]:
    """Mean success of the first task groups, m = Σ_g m_g / n, and its standard error e; empty without episodes.

        e² = max(Σ_g (m_g - m)² / ((n-1)·n), p·(1-p) / N),    p = (X + 1) / (N + 2)

    with X of N episodes solved: the second term keeps the error of a few tasks that happen to agree above 0.

    Later groups are not a sample of the policy: they were run because earlier ones agreed (dynamic sampling). Failed
    episodes are excluded.

    Args:
        trajectories: in the order in which they were requested.
        groups: number of groups of a first round.
    """
    first = set(list(dict.fromkeys(t.group_id for t in trajectories))[:groups])
    solved: dict[int, list[bool]] = {}
    for trajectory in trajectories:
        if trajectory.group_id in first and not trajectory.failed:
            solved.setdefault(trajectory.group_id, []).append(trajectory.success)
    if not solved:
        return {}
    means = np.array([np.mean(group) for group in solved.values()])
    episodes = sum(len(group) for group in solved.values())
    rate = (sum(map(sum, solved.values())) + 1) / (episodes + 2)
    between = float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0
    error = math.sqrt(max(between, rate * (1 - rate) / episodes))
    return {SAMPLE: float(means.mean()), SAMPLE_SE: error, TASKS: float(len(means))}
