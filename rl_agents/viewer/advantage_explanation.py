"""Explanations of advantages: the formula that gives the recorded number.

A pool records advantages, but not their computation. Each explanation repeats a formula with the data of the pool, and
is returned only if it agrees with the record. If none does (whitening over a batch, penalties, weights, or a method of
a plugin), a page shows the inputs without a formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl_agents.advantages import FloatArray, grpo, leave_one_out, rloo, step_gae, tolerance

#: Tolerance for a different order and precision of the computation.
TOLERANCE = 2e-3


class Member(NamedTuple):
    """A member of a group: its return (a sibling's reward) and the advantage of the step to explain."""

    name: str
    total: float
    advantage: float | None


Formula = Callable[[Sequence[float]], FloatArray]
#: Name, formula in words, and function of a group's returns.
GROUP_FORMULAS: tuple[tuple[str, str, Formula], ...] = (
    ("standardized", "(R − mean of the group) / standard deviation", lambda r: grpo(r, [0] * len(r))),
    ("standardized", "(R − mean of the group) / population deviation",
     lambda r: grpo(r, [0] * len(r), std="population")),
    ("centered", "R − mean of the group", lambda r: grpo(r, [0] * len(r), std="none")),
    ("leave one out", "R − mean of the others", lambda r: rloo(r, [0] * len(r))),
    ("leave one out", "(R − mean of the others) / their deviation", lambda r: leave_one_out(r, [0] * len(r))),
)  # fmt: skip


def equal_returns(members: Sequence[Member], batch: Sequence[float]) -> dict[str, Any] | None:
    """Explain advantages of 0 by returns that differ, but count as equal in ``batch``, whose returns it holds."""
    totals = [member.total for member in members]
    least = tolerance(np.array(batch))
    if any(member.advantage for member in members) or not 0 < max(totals) - min(totals) <= least:
        return None
    words = f"0, because returns that differ by at most {least:.1g} count as equal in this batch"
    return {"kind": "equal", "formula": words, "result": 0.0, "divisor": None, **group_figures(totals)}


def from_group(members: Sequence[Member], name: str) -> dict[str, Any] | None:
    """Explain an advantage by the group's returns; None if no formula gives the recorded value.

    All members with an advantage are compared, so that an accidental match of one does not count.
    """
    totals = [member.total for member in members]
    known = {index: member.advantage for index, member in enumerate(members) if member.advantage is not None}
    if len(members) < 2 or not known or not all(map(math.isfinite, totals)):
        return None
    place = next((index for index, member in enumerate(members) if member.name == name), None)
    if place not in known:
        return None
    for kind, words, formula in GROUP_FORMULAS:
        values = formula(totals)
        if all(abs(float(values[index]) - a) <= TOLERANCE * max(1.0, abs(a)) for index, a in known.items()):
            figures, result = group_figures(totals), float(values[place])
            divisor = (totals[place] - figures["mean"]) / result if abs(result) > TOLERANCE else figures["deviation"]
            return {"kind": kind, "formula": words, "result": result, "divisor": divisor, **figures}
    return None


def from_weighted_group(members: Sequence[Member], name: str, factors: Sequence[float]) -> dict[str, Any] | None:
    """Explain an advantage by the group's returns and a common factor of its advantages.

    Args:
        factors: of a task that was drawn once, twice, ... (VSPO); [1] without factors.

    Returns:
        The result of `from_group`, with ``times`` and ``factor`` if the factor is not 1.
    """
    for times, factor in enumerate(factors, start=1):
        plain = [m._replace(advantage=None if m.advantage is None else m.advantage / factor) for m in members]
        found = from_group(plain, name)
        if found is not None and (factor == 1 or abs(found["result"]) > TOLERANCE):
            weighed = {} if factor == 1 else {"times": times, "factor": factor}
            return {**found, **weighed, "result": found["result"] * factor}
    return None


def group_figures(totals: Sequence[float]) -> dict[str, Any]:
    finite = [total for total in totals if math.isfinite(total)]
    if not finite:
        return {"members": len(totals), "mean": None, "deviation": None}
    deviation = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
    return {"members": len(totals), "mean": float(np.mean(finite)), "deviation": deviation}


def from_values(
    episodes: Sequence[Sequence[tuple[float, float | None, float | None]]], settings: Mapping[str, Any]
) -> list[list[dict[str, float]]] | None:
    """Explain advantages by the critic: TD errors and their sums for each step; None if they do not fit.

    Args:
        episodes: (reward, value, advantage) of every step of the available episodes of the batch, linear dialogues.
        settings: the run's, for γ and λ.

    Returns:
        For every step: TD error ``delta``, sum ``gae`` and, after whitening, ``result``. Whitening uses the mean and
        the deviation of the whole batch, which are unknown here. Both are fitted to the recorded advantages and must
        then agree with all of them. chain-gae's transition correction is also unknown, so with one
        (``transition_prior``) steps have no ``result``.
    """
    gamma, lam = float(settings.get("gamma", 1.0)), float(settings.get("gae_lambda", 1.0))
    found, recorded, computed = [], [], []
    for steps in episodes:
        if not steps or any(value is None or advantage is None for _, value, advantage in steps):
            return None
        rewards, values = [r for r, _, _ in steps], [float(v or 0.0) for _, v, _ in steps]
        following = [*range(1, len(steps)), -1]
        sums = step_gae(rewards, values, following, gamma=gamma, lam=lam, final_values=[0.0] * len(steps)).advantages
        after = [*values[1:], 0.0]
        deltas = [r + gamma * a - v for r, v, a in zip(rewards, values, after, strict=True)]
        found.append([{"delta": d, "gae": float(s)} for d, s in zip(deltas, sums, strict=True)])
        computed += [float(s) for s in sums]
        recorded += [float(a or 0.0) for _, _, a in steps]
    scale = _affine(computed, recorded)
    if scale is None:
        return found if settings.get("transition_prior") else None
    slope, offset = scale
    for steps_found in found:
        for step in steps_found:
            step.update(result=slope * step["gae"] + offset, mean=-offset / slope, deviation=1 / slope)
    return found


def _affine(computed: Sequence[float], recorded: Sequence[float]) -> tuple[float, float] | None:
    """Return (slope, offset) that map all computed values to the recorded ones; None if there are none."""
    x, y = np.asarray(computed), np.asarray(recorded)
    if np.allclose(x, y, atol=TOLERANCE):
        return 1.0, 0.0
    if x.size < 4 or float(np.ptp(x)) < 1e-9:  # two numbers always fit
        return None
    slope, offset = (float(v) for v in np.polyfit(x, y, 1))
    return (slope, offset) if slope > 1e-6 and np.allclose(slope * x + offset, y, atol=TOLERANCE) else None
