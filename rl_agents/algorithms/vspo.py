"""VSPO: GRPO that moves the weight of tasks without variance to the most valuable tasks (PRS/VSPO, eq. 16-21).

DAPO refills a batch with fresh tasks after dropping the uniform ones. VSPO refills it from the batch itself, with
probability proportional to exp(V/T). A task drawn N times is kept once with its advantage multiplied by α - (α-1)/N,
which *replaces* the factor N that N copies would give. The loss denominator stays the original number of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages import BoolArray, FloatArray, IntArray
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, credit, policy_loss
from rl_agents.config.options import key, off, on
from rl_agents.data.selection import Selected
from rl_agents.data.step_table import penalized_return

if TYPE_CHECKING:
    from rl_agents.data.trajectory import Trajectory


SamplingMode = Literal["value", "random", "none"]
ValueScale = Literal["paper", "span"]
#: The paper's ε: the population variance below which a task counts as uniform; a task at it stays. The shared
#: `rl_agents.advantages.tolerance` is ours and compares ranges: it decides which groups' advantages are 0.
MINIMUM_VARIANCE = 1e-6


class TaskValues(NamedTuple):
    """Per task: ``values`` V_x, population ``variances`` σ²_x and ``kept``, true where σ²_x reaches the threshold."""

    values: FloatArray
    variances: FloatArray
    kept: BoolArray


class Selection(NamedTuple):
    """Per task: ``counts`` N_x (0 = dropped), factor ``weights`` on the advantage, draw ``probabilities``."""

    counts: IntArray
    weights: FloatArray
    probabilities: FloatArray


def value_scores(rewards: Sequence[ArrayLike], scale: ValueScale = "paper") -> TaskValues:
    """V_x = (R_max - μ_x)·σ²_x: tasks that are uncertain and not yet solved; R_max over all tasks of the batch.

    The value grows with the third power of the rewards' scale: at T = 0.1, tasks that draw 0.47, 0.18 and 0.34 with
    rewards in [0, 1] draw 1, 0 and 0 with the same rewards times 4.1, the span of PRS's long form. ``span`` divides the
    values by (R_max - R_min)³ of the batch, so that T means the same for every reward.

    Args:
        rewards: one [rollouts] array per task.
        scale: ``paper`` (equation 17 as printed) or ``span``.

    Raises:
        ValueError: no task, or a task without rollouts.
    """
    tasks = [np.asarray(reward, dtype=np.float64) for reward in rewards]
    if not tasks or any(task.size == 0 for task in tasks):
        raise ValueError("value_scores needs at least one task and one rollout per task")
    best = max(float(task.max()) for task in tasks)
    means = np.array([task.mean() for task in tasks])
    variances = np.array([task.var() for task in tasks])
    span = best - min(float(task.min()) for task in tasks) if scale == "span" else 1.0
    return TaskValues((best - means) * variances / (span**3 or 1.0), variances, variances >= MINIMUM_VARIANCE)


def softmax(values: ArrayLike, temperature: float) -> FloatArray:
    """p_x = exp(V_x/T)/Σ exp(V/T), the maximum subtracted first; T > 0."""
    scaled = np.asarray(values, dtype=np.float64) / temperature
    exponentials = np.exp(scaled - scaled.max())
    probabilities: FloatArray = exponentials / exponentials.sum()
    return probabilities


def smoothing_weight(counts: ArrayLike, alpha: float, *, clip: bool) -> FloatArray:
    """ω(N) = α - (α-1)/N for N >= 1, 0 for N = 0: grows from 1 to α instead of without bound.

    Args:
        counts: N_x.
        alpha: α >= 1 (2 is the paper's best).
        clip: False gives N itself ("no clip").
    """
    count = np.asarray(counts, dtype=np.float64)
    smooth = alpha - (alpha - 1.0) / np.maximum(count, 1.0) if clip else count
    weight: FloatArray = np.where(count > 0, smooth, 0.0)
    return weight


def vspo(
    rewards: Sequence[ArrayLike],
    generator: np.random.Generator,
    *,
    mode: SamplingMode,
    temperature: float,
    alpha: float,
    clip: bool,
    scale: ValueScale = "paper",
) -> Selection:
    """Drop uniform tasks (B₀), draw |B₀| tasks from the rest with replacement, N_x = 1 + draws, weight ω(N_x).

    PRS/VSPO equations 16-21. Multiply every advantage of task x by its weight; without a uniform task, or without any
    other, this is plain GRPO with weights of 1.

    Args:
        rewards: one [rollouts] array per task of the batch.
        generator: the only source of randomness.
        mode: ``value``: p = softmax(V/T);  ``random``: uniform p;  ``none``: no resampling, plain GRPO.
        temperature: T of the softmax.
        alpha, clip: see `smoothing_weight`.
        scale: see `value_scores`.
    """
    tasks = value_scores(rewards, scale)
    total, kept = tasks.kept.size, int(tasks.kept.sum())
    if mode == "none" or kept in (0, total):
        return Selection(np.ones(total, dtype=np.int64), np.ones(total), np.zeros(total))
    probabilities = np.zeros(total)
    drawn_from = tasks.values[tasks.kept] if mode == "value" else np.zeros(kept)
    probabilities[tasks.kept] = softmax(drawn_from, temperature)
    draws = generator.multinomial(total - kept, probabilities[tasks.kept])
    counts = np.zeros(total, dtype=np.int64)
    counts[tasks.kept] = 1 + draws
    return Selection(counts, smoothing_weight(counts, alpha, clip=clip), probabilities)


@dataclass
class VspoKeys(GrpoKeys):
    """VSPO"""

    vspo_mode: SamplingMode = key(
        "value", "How replacements for tasks without variance are drawn: by task value, uniformly, or not at all"
    )
    vspo_temperature: float = key(0.1, "Temperature of the softmax over task values", gt=0, needs=on(vspo_mode="value"))
    vspo_scale: ValueScale = key(
        "paper",
        "Task values as printed, or divided by the cubed range of the batch's rewards",
        needs=on(vspo_mode="value"),
    )
    vspo_alpha: float = key(
        2.0,
        "Upper bound of the weight alpha - (alpha-1)/N of a task drawn N times",
        ge=1,
        needs=off(vspo_mode="none") + on("vspo_clip"),
    )
    vspo_clip: bool = key(
        True, "Bound the weight of a repeatedly drawn task; off: the weight is N", needs=off(vspo_mode="none")
    )


def select(trajectories: Sequence[Trajectory], settings: VspoKeys, generator: np.random.Generator) -> Selected:
    """V_x = (R_max - μ_x)·σ²_x; one draw from softmax(V/T) per uniform task; factor α - (α-1)/N on the advantage.

    One copy of every task stays, so that the loss denominator is that of the original batch. Uniform tasks stay too:
    their advantages are 0 anyway, and they keep their share of a KL term.
    """
    groups = np.array([t.group_id for t in trajectories])
    names = np.unique(groups)
    keep = np.ones(groups.size, dtype=bool)
    if not names.size:
        return Selected(keep)
    returns = np.array([penalized_return(t, settings.invalid_action_penalty) for t in trajectories])
    chosen = vspo(
        [returns[groups == name] for name in names],
        generator,
        mode=settings.vspo_mode,
        temperature=settings.vspo_temperature,
        alpha=settings.vspo_alpha,
        clip=settings.vspo_clip,
        scale=settings.vspo_scale,
    )
    metrics = {
        "select/dropped_share": float(np.mean(chosen.counts == 0)),
        "select/count_max": float(chosen.counts.max()),
        "select/weight_mean": float(chosen.weights[chosen.counts > 0].mean()),
    }
    weights = dict(zip(names.tolist(), chosen.weights.tolist(), strict=True))
    return Selected(keep, weights=weights, metrics=metrics)


ALGORITHM = AlgorithmSpec(
    name="vspo",
    summary="GRPO that moves the weight of tasks whose rollouts all agree to the most valuable tasks of the batch",
    reference="PRS and VSPO (arXiv 2512.07478), equations 16-21",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    one_round=lambda settings: True,
    defaults={"loss_agg_mode": "traj-mean-token-mean", "kl_coef": 1e-3},
    keys=VspoKeys,
    grouped=True,
)
