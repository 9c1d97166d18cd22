"""What step advantages know: bias, variance and cosine against the true ones, and of the gradient against the exact."""

from __future__ import annotations

import numpy as np

from benchmarks.exact_worlds.arms import Arm
from benchmarks.exact_worlds.learn import budget_of
from benchmarks.exact_worlds.searches import Samples, SearchMethod, SearchRun
from benchmarks.exact_worlds.walks import Budget, Sampler
from benchmarks.exact_worlds.world import World, exact_gradient, gradient, policy, values
from rl_agents.advantages.statistics import FloatArray, IntArray

#: Iterations under the same policy: those before the last fill memories.
ITERATIONS = 4


def quality(world: World, arm: Arm, *, runs: int, weights: FloatArray | None = None, seed: int = 0) -> dict[str, float]:
    """Judge an arm under one policy, the first one unless ``weights`` say else.

    Returns:
        step_cosine: of Â and A over all steps that were learned from.
        bias, deviation: of Â given time, state and action, in units of the root mean square of A, after the best scale.
        cosine: mean over the runs, of an iteration's gradient and the exact one.
        mean_cosine: of the mean gradient of all runs and the exact one: 1 is unbiased in direction.
        noise: variance of an iteration's gradient by the square of its mean.
    """
    own = world.weights if weights is None else weights
    chosen = policy(world, own[None])
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
    """Cosine, bias and deviation over steps."""
    real = true[steps.time, steps.state, steps.action]
    scale = float(steps.advantage @ real) / max(float(real @ real), 1e-300)
    if scale <= 0:  # nothing to scale by: it points elsewhere
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
        budget.left[:] = budget.steps  # nobody owes: every iteration has samples
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
