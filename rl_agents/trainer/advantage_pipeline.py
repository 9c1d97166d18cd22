"""The driver's steps around credit: reward terms before it, group weights and rejected tokens after it.

All of them happen before rows are split over learners and micro-batches, so that denominators are global.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import AlgorithmSpec, Memory
from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row
from rl_agents.data.step_table import step_spans
from rl_agents.data.trajectory import Trajectory
from rl_agents.losses import CORRECTIONS, REF_KL, Unit, effective_share, kl_penalty, mismatch_metrics


def assign_credit(
    recipe: AlgorithmSpec,
    rows: Sequence[Row],
    trajectories: Sequence[Trajectory],
    settings: Settings,
    weights: Mapping[int, float],
    kl_coef: float,
    memory: Memory | None = None,
) -> dict[str, float]:
    """Fill the rows' advantages from their rewards and mask tokens that must not be trained on; return metrics.

    Tokens are rejected last, because credit needs all of them. Metrics, group weights and the mismatch correction
    exclude replayed rows (`Row.again`): their ratio is against the policy that sampled them.

    Args:
        recipe: supervised ones have no credit.
        rows: scored by the networks that the recipe needs.
        trajectories: ``Row.trajectory`` is an index of them.
        weights: factor on the advantages by group.
        kl_coef: weight of the KL in the reward.
        memory: state of the recipe's credit, if it has one.
    """
    if recipe.credit is None:
        return {}
    metrics = shape_rewards(rows, trajectories, settings, kl_coef)
    if memory is None:
        for part in settings.each.values():  # whitening is over the rows of one environment
            mine = [row for row in rows if settings.of(trajectories[row.trajectory].task_id) is part]
            credit = ALGORITHMS[part.advantages].credit if part.advantages else recipe.credit
            if mine and credit:
                credit(mine, trajectories, part)
    else:
        memory.credit(rows, trajectories)
        metrics.update(memory.metrics())
    own = _own(rows)
    for row in own:
        if row.advantages is not None and row.group_id in weights:
            row.advantages *= np.float32(weights[row.group_id])
    metrics.update(credit_metrics(own))
    if settings.overlong_filtering:
        metrics.update(filter_overlong(rows, trajectories))
    if gaps := [row.teacher_gap[row.mask > 0] for row in own if row.teacher_logprobs is not None]:
        metrics["actor/teacher_kl"] = float(np.concatenate(gaps).mean(dtype=np.float64))
    if settings.old_logprobs == "learner":
        metrics.update(correct_mismatch(own, settings))
        if settings.rollout_correction != "none":
            for row in rows:
                row.correction = np.ones(len(row), np.float32) if row.again else row.correction
    for row in own if settings.ref_kl_coef else ():
        row.components[REF_KL] = row.mask * np.float32(settings.ref_kl_coef)
    return metrics


def _own(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.again]


def shape_rewards(
    rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings, kl_coef: float
) -> dict[str, float]:
    """Add the overlong penalty and subtract ``kl_coef`` x KL from the token rewards; return metrics."""
    metrics: dict[str, float] = {}
    if settings.overlong_factor:
        metrics.update(_penalize_overlong(rows, trajectories, settings))
    if kl_coef:
        metrics.update(_subtract_kl(rows, kl_coef))
    return metrics


def _penalize_overlong(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings) -> dict[str, float]:
    factor, limits = settings.overlong_factor, [settings.of(t.task_id).max_response_tokens for t in trajectories]
    penalties = [
        [  # a summary has its own limit
            0.0
            if step.is_summary
            else overlong_penalty(
                len(step.response_ids), maximum, settings.overlong_cache or max(1, maximum // 5), factor=factor
            )
            for step in trajectory.steps
        ]
        for trajectory, maximum in zip(trajectories, limits, strict=True)
    ]
    for row in rows:
        for step, *_ in step_spans(row):
            row.rewards[np.flatnonzero(row.segments == step)[-1]] += penalties[row.trajectory][step]
    own = sorted(set(range(len(trajectories))) - {row.trajectory for row in rows if row.again})
    flat = [penalty for number in own for penalty in penalties[number]]
    return {"rollout/overlong_penalty": float(np.mean(flat)) if flat else 0.0}


def overlong_penalty(length: int, maximum: int, cache: int, *, factor: float = 1.0) -> float:
    """clamp(-(|y| - (L_max - L_cache))/L_cache·f, -f, 0): linear inside the cache, added before advantages.

    DAPO (Yu et al. 2025, eq. 13). Overlong *filtering* instead removes such responses from the loss.

    Args:
        length: |y|, sampled tokens.
        maximum: L_max, response budget in tokens.
        cache: L_cache, tokens before the budget over which the penalty grows; from 1 to L_max.
        factor: f, penalty at |y| >= L_max.

    Returns:
        A number in [-f, 0].
    """
    excess = (length - (maximum - cache)) / cache
    return -factor * min(max(excess, 0.0), 1.0)


def _subtract_kl(rows: Sequence[Row], coefficient: float) -> dict[str, float]:
    """r_j <- r_j - β·(lp_old - lp_ref)_j, before advantages (Ouyang et al. 2022, eq. 2).

    Unlike KL in the loss, returns credit it to earlier tokens; a group estimator (GRPO) uses only its sum.
    """
    total, tokens = 0.0, 0.0
    for row in rows:
        old = row.logprobs if row.old_logprobs is None else row.old_logprobs
        assert row.reference_logprobs is not None, "the reference scores rows before rewards are shaped"
        lp, reference, mask = _tensors(old, row.reference_logprobs, row.mask)
        kl = kl_penalty(lp, reference, mask, "k1")[0].numpy()
        row.rewards = row.rewards - np.float32(coefficient) * kl
        if not row.again:
            total, tokens = total + float(kl.sum(dtype=np.float64)), tokens + float(row.mask.sum())
    return {"actor/reward_kl_penalty": total / max(tokens, 1.0), "actor/reward_kl_penalty_coeff": coefficient}


def credit_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Return mean and deviation of the advantages, and the share of trajectories whose advantages are all 0."""
    advantages = np.concatenate([row.advantages[row.mask > 0] for row in rows if row.advantages is not None])
    silent: dict[int, bool] = {}
    for row in rows:
        silent[row.trajectory] = silent.get(row.trajectory, True) and not np.any(row.advantages)
    metrics = {
        "actor/advantage_mean": float(advantages.mean()),
        "actor/advantage_std": float(advantages.std()),
        "rollout/zero_advantage_share": float(np.mean(list(silent.values()))),
    }
    values = [row.values[read_at(row)] for row in rows if row.values is not None]
    if values:
        found = [row.returns[read_at(row)] for row in rows if row.returns is not None]
        targets = np.concatenate(found, dtype=np.float64)  # in float32 equal targets have a variance from rounding
        spread = float(targets.var())
        error = float((targets - np.concatenate(values)).var())
        metrics["critic/explained_variance"] = 1.0 - error / spread if spread > 0 else 0.0
    return metrics


def read_at(row: Row) -> NDArray[np.bool_]:
    at: NDArray[np.bool_] = (row.mask if row.value_mask is None else row.value_mask) > 0
    return at


def filter_overlong(rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mask responses that were cut at the length limit, in the policy's loss and its denominators."""
    own = _own(rows)
    before = sum(float(row.mask.sum()) for row in own)
    for row in rows:
        for step, *_ in step_spans(row):
            if trajectories[row.trajectory].steps[step].finish_reason == "length":
                row.mask = np.where(row.segments == step, np.float32(0), row.mask)
    kept = sum(float(row.mask.sum()) for row in own)
    return {"rollout/overlong_filtered_share": 1.0 - kept / before if before else 0.0}


def correct_mismatch(rows: Sequence[Row], settings: Settings) -> dict[str, float]:
    """Fill ``correction``, mask rejected tokens, and return metrics of the logprob mismatch."""
    before = sum(float(row.mask.sum()) for row in rows)
    method = CORRECTIONS.get(settings.rollout_correction)
    unit = method.unit if method else "token"
    metrics = _mismatch_metrics(rows, unit)
    if method is None:
        return metrics
    # The method's own constants hold unless others are set.
    bounds = tuple(settings.rollout_correction_bounds) if settings.rollout_correction_bounds else None
    chosen = {"cap": settings.rollout_correction_cap or None, "bounds": bounds}
    for row in rows:
        given = {**chosen, "segments": torch.from_numpy(row.segments.astype(np.int64))[None]}
        options = {name: given[name] for name in method.options if given[name] is not None}
        correction = method.correct(*_tensors(_old(row), row.logprobs, row.mask), **options)
        row.correction, row.mask = correction.weights[0].numpy(), correction.mask[0].numpy()
    kept = sum(float(row.mask.sum()) for row in rows)
    metrics["rollout_corr/rollout_is_mean"] = _mean_correction(rows, unit)
    metrics["rollout_corr/rollout_rs_masked_fraction"] = 1.0 - kept / before if before else 0.0
    return metrics


def _mean_correction(rows: Sequence[Row], unit: Unit) -> float:
    """Return the mean weight over the kept units: tokens, steps or rows, regardless of the length of steps and rows."""
    kept = [(row, row.correction) for row in rows if row.correction is not None and row.mask.any()]
    if unit == "token":
        tokens = sum(float(row.mask.sum()) for row, _ in kept)
        return sum(float(weights.sum()) for _, weights in kept) / max(tokens, 1.0)
    found = [part.max() for row, weights in kept for part in _units(row, weights, unit)]  # equal within a unit
    return float(np.mean(found)) if found else 0.0


def _units(row: Row, values: FloatArray, unit: Unit) -> list[FloatArray]:
    """Return the values of a row's sampled tokens by unit; all together if the unit is a token or the row."""
    sampled = row.mask > 0
    if unit == "step":
        return [values[sampled & (row.segments == step)] for step in np.unique(row.segments[sampled])]
    return [values[sampled]] if sampled.any() else []


def _mismatch_metrics(rows: Sequence[Row], unit: Unit) -> dict[str, float]:
    joined = [np.concatenate([part(row) for row in rows]) for part in (_old, lambda r: r.logprobs, lambda r: r.mask)]
    found = mismatch_metrics(*_tensors(*joined))
    gaps = [gap for row in rows for gap in _units(row, _old(row) - row.logprobs, unit)]
    whole = [gap if unit == "token" else gap.sum(keepdims=True, dtype=np.float64) for gap in gaps]
    return {
        "rollout_corr/kl": float(found["mismatch_kl"]),
        "rollout_corr/k3_kl": float(found["mismatch_k3"]),
        "rollout_corr/old_logprob_diff_mean": float(found["mismatch_mean"]),
        "rollout_corr/old_logprob_diff_max": float(found["mismatch_max"]),
        "rollout_corr/ess": effective_share(np.concatenate([np.zeros(0), *whole])),
    }


def _old(row: Row) -> FloatArray:
    assert row.old_logprobs is not None, "the learner recomputes the log-probabilities before they are compared"
    return row.old_logprobs


def _tensors(*arrays: FloatArray) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.ascontiguousarray(array))[None] for array in arrays)
