"""The compared arms, and the accuracy of their step advantages: bias, variance and cosine relative to the exact
advantages, and the cosine of the gradient with the exact one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.exact_worlds.learn import Curve, Samples, SearchMethod, SearchRun, budget_of, learn, learn_search
from benchmarks.exact_worlds.methods import (
    Maker,
    chain_of,
    gigpo_advantages,
    grpo_advantages,
    hgpo_advantages,
    memoryless,
    steppo_of,
)
from benchmarks.exact_worlds.walks import Budget, Sampler
from benchmarks.exact_worlds.world import World, exact_gradient, gradient, policy, values
from rl_agents.advantages import FloatArray, IntArray

#: Length of an optimizer step with one update per iteration, and with one update per tick.
LR, TICK_LR = 1.0, 0.3


@dataclass(frozen=True)
class Arm:
    """A method and its optimizer step.

    Attributes:
        method: from whole episodes, or a search.
        lr: length of a step.
        trust: see `learn`.
    """

    method: Maker | SearchMethod
    lr: float = LR
    trust: float = 0.0

    def curve(self, world: World, *, seeds: int, iterations: int, lr: float | None = None) -> Curve:
        rate = self.lr if lr is None else lr
        if isinstance(self.method, SearchMethod):
            return learn_search(world, self.method, lr=rate, seeds=seeds, iterations=iterations)
        return learn(world, self.method, lr=rate, seeds=seeds, iterations=iterations, trust=self.trust)


def _search(**keys: Any) -> Arm:
    return Arm(SearchMethod(keys), TICK_LR)


BASELINES = {
    "grpo": Arm(memoryless(grpo_advantages)),
    "gigpo": Arm(memoryless(gigpo_advantages)),
    "hgpo": Arm(memoryless(hgpo_advantages)),
    "steppo": Arm(steppo_of()),
}
#: The chain of states as the critic of ordinary episodes.
CHAIN = {
    "chain λ=0": Arm(chain_of(0.0)),
    "chain λ=0.5": Arm(chain_of(0.5)),
    "chain λ=0.9": Arm(chain_of(0.9)),
    "chain λ=0.95": Arm(chain_of(0.95)),
    "chain λ=1": Arm(chain_of(1.0)),
    "chain λ=0.95, solved again": Arm(chain_of(0.95, imitate=0.3)),
}
#: With replay as in the product, for several λ.
LAMBDA = {
    **{
        f"again, λ={lam:g}": Arm(chain_of(lam, imitate=0.3, bounded=True, clipped=True)) for lam in (0.5, 0.7, 0.8, 0.9)
    },
    **{
        f"again, λ={lam:g}, corrected": Arm(chain_of(lam, imitate=0.3, bounded=True, clipped=True, corrected=2.0))
        for lam in (0.5, 0.7)
    },
    "again, bounded, clipped": Arm(chain_of(0.95, imitate=0.3, bounded=True, clipped=True)),
}
#: One change each.
PARTS = {
    "groups of 8": Arm(chain_of(0.9, size=8)),
    "solved again": Arm(chain_of(0.9, imitate=0.3)),
    "long steps": Arm(chain_of(0.9), lr=4.0),
    "long steps, trust region": Arm(chain_of(0.9), lr=4.0, trust=0.01),
}
#: 3spo, its published reading, and one change of either.
SEARCHES = {
    "3spo": _search(),
    "3spo, w/o paths": _search(path_weight=0.0),
    "3spo, counts": _search(score_rate="counts"),
    "3spo, difference of scores": _search(score_difference="score"),
    "3spo, 4 paths": _search(search_max_finished=4),
    "published": _search(reading="published"),
    "published, no gate": _search(reading="published", score_gate="off"),
}
ARMS: dict[str, Arm] = {**BASELINES, **CHAIN, **LAMBDA, **PARTS, **SEARCHES}
#: Sets of arms; searches cost a hundred times as much CPU.
SETS = {
    "main": (*BASELINES, *CHAIN),
    "lambda": ("grpo", *LAMBDA),
    "parts": ("grpo", "chain λ=0.9", *PARTS),
    "searches": tuple(SEARCHES),
}


# --- accuracy of step advantages

#: Iterations with the same policy; those before the last fill memories.
ITERATIONS = 4


def quality(world: World, arm: Arm, *, runs: int, seed: int = 0) -> dict[str, float]:
    """Judge an arm under the world's first policy.

    Returns:
        step_cosine: of Â and A over all trained steps.
        bias, deviation: of Â given time, state and action, in units of the root mean square of A, after rescaling.
        cosine: of an iteration's gradient and the exact one, mean over runs.
        mean_cosine: of the mean gradient of all runs and the exact one; 1 means an unbiased direction.
        noise: variance of an iteration's gradient divided by the square of its mean.
    """
    chosen = policy(world, world.weights[None])
    collect = _searched if isinstance(arm.method, SearchMethod) else _played
    run, steps = collect(world, arm, np.repeat(chosen, runs, axis=0), seed)
    true = values(world, chosen).advantages[:, 0]
    if not steps.state.size:
        return {}
    found = _steps(steps, true)
    ascents = gradient(
        world, np.repeat(chosen, runs, axis=0), run, steps.state, steps.action, steps.advantage * steps.weight
    ).reshape(runs, -1)
    exact = exact_gradient(world, chosen).reshape(-1)
    mean = ascents.mean(axis=0)
    found["cosine"] = float(np.mean([_cosine(ascent, exact) for ascent in ascents]))
    found["mean_cosine"] = _cosine(mean, exact)
    found["noise"] = float(((ascents - mean) ** 2).sum(axis=1).mean() / max(float(mean @ mean), 1e-300))
    return found


def _steps(steps: Samples, true: FloatArray) -> dict[str, float]:
    real = true[steps.time, steps.state, steps.action]
    scale = float(steps.advantage @ real) / max(float(real @ real), 1e-300)
    if scale <= 0:  # the advantages point elsewhere, so there is no scale
        return {"step_cosine": _cosine(steps.advantage, real), "bias": np.nan, "deviation": np.nan}
    place = np.ravel_multi_index((steps.time, steps.state, steps.action), true.shape)
    count = np.bincount(place, minlength=true.size)
    mean = np.bincount(place, steps.advantage, true.size) / np.maximum(count, 1)
    size = scale * np.sqrt(np.mean(real**2))
    bias = np.sqrt(np.sum(count * (mean - scale * true.reshape(-1)) ** 2) / count.sum()) / size
    deviation = np.sqrt(np.mean((steps.advantage - mean[place]) ** 2)) / size
    return {"step_cosine": _cosine(steps.advantage, real), "bias": float(bias), "deviation": float(deviation)}


def _cosine(one: FloatArray, other: FloatArray) -> float:
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else 0.0


def _played(world: World, arm: Arm, chosen: FloatArray, seed: int) -> tuple[IntArray, Samples]:
    assert not isinstance(arm.method, SearchMethod)
    runs = len(chosen)
    method, budget = arm.method(world, runs), Budget(budget_of(world), np.zeros(runs))
    generator = np.random.default_rng(seed)
    for _ in range(ITERATIONS):
        budget.left[:] = budget.steps  # every iteration has samples
        batch = method(Sampler(world, chosen, generator), budget)
    steps = batch.steps
    return steps.run, Samples(steps.state, steps.action, steps.time, batch.advantages, steps.reach)


def _searched(world: World, arm: Arm, chosen: FloatArray, seed: int) -> tuple[IntArray, Samples]:
    assert isinstance(arm.method, SearchMethod)
    run: list[IntArray] = []
    kept: list[Samples] = []
    for number in range(len(chosen)):
        search = SearchRun(world, arm.method, seed + 1000 * (1 + number))
        search.chosen = chosen[:1]
        for iteration in range(ITERATIONS):
            for samples in search.iteration():
                if iteration == ITERATIONS - 1:
                    kept.append(samples)
                    run.append(np.full(samples.state.size, number))
    if not kept:
        none = np.zeros(0, dtype=np.int64)
        return none, Samples(none, none, none, np.zeros(0), np.zeros(0))
    return np.concatenate(run), Samples(*(np.concatenate(part) for part in zip(*kept, strict=True)))
