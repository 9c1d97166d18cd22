"""What a search's advantage pays for: novelty, progress and success apart, and what each part does to the true success.

    python -m benchmarks.exact_worlds.parts --methods 3spo "3spo α=1" --worlds loops household --iterations 5

R is a sum of three parts (3SPO, eq. 2) and A is linear in R once the deviation of the group is known, so that A and its
gradient are sums of three parts as well: A_part = (R_part - mean R_part)/(std R + 1e-6). ⟨g_part, ∇J⟩ says whether
success rises by a part's update, with the exact ∇J of the policy that sampled.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.exact_worlds.arms import ARMS
from benchmarks.exact_worlds.learn import Optimiser
from benchmarks.exact_worlds.searches import SearchMethod, SearchRun, ascent_of
from benchmarks.exact_worlds.world import World, exact_gradient, gradient, policy, success, values
from benchmarks.exact_worlds.worlds import WORLDS
from rl_agents.credit.statistics import FloatArray
from rl_agents.rollout.branching import Expansion
from rl_agents.search.explorer import Request
from rl_agents.search.states import Outcomes, state_key, step_rewards

PARTS = ("novelty", "progress", "success")


@dataclass
class Found:
    """Sums over the steps that were learned from.

    Attributes:
        square: Σ A_part², [parts].
        match: Σ A_part·A_true, [parts].
        true: Σ A_true².
        gain: Σ over ticks of ⟨g_part, ∇J⟩/(|g|·|∇J|), [parts]; g is the whole gradient.
        ticks, steps, groups: how many; a group that agreed has no advantage and is not among ``taught``.
    """

    square: FloatArray = field(default_factory=lambda: np.zeros(3))
    match: FloatArray = field(default_factory=lambda: np.zeros(3))
    true: float = 0.0
    gain: FloatArray = field(default_factory=lambda: np.zeros(3))
    ticks: int = 0
    steps: int = 0
    groups: int = 0
    taught: int = 0

    def row(self) -> str:
        """Share of A and cosine with the true advantages, part by part; mean gain per tick, part by part."""
        size = np.sqrt(np.maximum(self.square, 1e-300))
        cosine = np.where(self.square > 0, self.match / (size * np.sqrt(max(self.true, 1e-300))), 0.0)
        share = self.square / max(self.square.sum(), 1e-300)
        columns = zip(share, cosine, self.gain / max(self.ticks, 1), strict=True)
        cells = [f"{s:.2f} / {c:+.2f} / {g:+.3f}" for s, c, g in columns]
        return " | ".join([*cells, f"{self.taught / max(self.groups, 1):.2f}"])


class PartsRun(SearchRun):
    """A search that is watched."""

    def __init__(self, world: World, method: SearchMethod, seed: int) -> None:
        super().__init__(world, method, seed)
        self.found = Found()

    def look(self, requests: Sequence[Request], expansions: Sequence[Expansion]) -> None:
        """Advantages of a tick, part by part."""
        true = values(self.world, self.chosen).advantages[:, 0]
        rows: list[tuple[int, int, int]] = []
        parts: list[FloatArray] = []
        for request, expansion in zip(requests, expansions, strict=True):
            if request.rollouts < 2:
                continue
            found = self._parts(request, expansion)
            rows += [(*child.step.prompt_ids, child.step.response_ids[0]) for child in expansion.children]  # type: ignore[misc]
            parts.append(found)
            self.found.groups += 1
            self.found.taught += bool(np.abs(found.sum(axis=0)).max() > 1e-9)
        if not parts:
            return
        state, time, action = np.array(rows).T
        advantages, real = np.concatenate(parts, axis=1), true[time, state, action]
        self.found.square += (advantages**2).sum(axis=1)
        self.found.match += advantages @ real
        self.found.true += float(real @ real)
        self.found.steps += len(rows)
        self._gain(np.asarray(state), np.asarray(action), advantages)

    def _parts(self, request: Request, expansion: Expansion) -> FloatArray:
        """A_part of the children of a state, [parts, children]."""
        node, settings, states = request.search.current, self.settings, self.explorer.states
        assert node is not None
        children = expansion.children
        keys = tuple(state_key(request.search.task_id, child.answer.anchor, settings) for child in children)
        led = Outcomes(keys, tuple(bool(c.end_cause) for c in children), tuple(c.success for c in children))
        quiet = "none" if settings.novelty == "none" else "zero"
        arms = (
            replace(settings, score_difference="none", success_weight=0.0),
            replace(settings, novelty=quiet, success_weight=0.0),
            replace(settings, novelty=quiet, score_difference="none"),
        )
        path = node.path_keys()
        rewards = np.array([step_rewards(path, led, states, arm) for arm in arms])
        whole = step_rewards(path, led, states, settings)
        assert np.allclose(rewards.sum(axis=0), whole)
        scale = whole.std(ddof=1) + 1e-6 if settings.step_norm == "mean_std" else 1.0
        return np.asarray((rewards - rewards.mean(axis=1, keepdims=True)) / scale)

    def _gain(self, state: FloatArray, action: FloatArray, advantages: FloatArray) -> None:
        run = np.zeros(state.size, dtype=np.int64)
        each = [gradient(self.world, self.chosen, run, state, action, part).reshape(-1) for part in advantages]
        exact = exact_gradient(self.world, self.chosen).reshape(-1)
        length = float(np.linalg.norm(sum(each)) * np.linalg.norm(exact))
        self.found.ticks += 1
        if length > 1e-12:
            self.found.gain += np.array([part @ exact for part in each]) / length


def watch(world: World, method: SearchMethod, *, lr: float, iterations: int, seeds: int) -> list[tuple[Found, float]]:
    """What was found in each iteration, all seeds together, and the mean success after it."""
    found = [Found() for _ in range(iterations)]
    reached = np.zeros(iterations)
    for seed in range(seeds):
        run, optimiser, weights = PartsRun(world, method, 1000 * (1 + seed)), Optimiser(lr), world.weights[None].copy()
        run.chosen = policy(world, weights)
        for iteration in range(iterations):
            run.found = found[iteration]
            for samples in run.iteration():
                weights = weights + ascent_of(world, run, optimiser, [samples])
                run.chosen = policy(world, weights)
            reached[iteration] += float(success(world, run.chosen)[0]) / seeds
    return list(zip(found, reached.tolist(), strict=True))


def main() -> None:
    """Print a table per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=["loops", "household"], choices=list(WORLDS))
    parser.add_argument("--methods", nargs="+", default=["3spo"], metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=5)
    args = parser.parse_args()
    for name in args.worlds:
        world = WORLDS[name]()
        print(f"\n{name}: share of A² / cosine with the true advantage / gain of a tick\n")
        print(
            "| | iteration | " + " | ".join(PARTS) + " | groups that taught | success |\n|---|---|---|---|---|---|---|"
        )
        for arm in args.methods:
            method = ARMS[arm].method
            if not isinstance(method, SearchMethod):
                parser.error(f"{arm} is no search")
            rows = watch(world, method, lr=ARMS[arm].lr, iterations=args.iterations, seeds=args.seeds)
            for number, (row, reached) in enumerate(rows, 1):
                print(f"| {arm} | {number} | {row.row()} | {reached:.3f} |", flush=True)


if __name__ == "__main__":
    main()
