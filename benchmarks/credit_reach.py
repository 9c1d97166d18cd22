"""How much credit reaches the first of three long steps: GAE over tokens and over steps, with two discounts.

    python -m benchmarks.credit_reach        # writes benchmarks/results/credit_reach.json

In the environment of benchmarks/long_thoughts.py the warm-start model acts while only a critic learns, so all four arms
have the same policy. The episodes after that give, for the door token of each room, where the choice is made:

- ``size``: root mean square of its advantage (before whitening), relative to that of the last room.
- ``correlation`` with the true advantage, expected return after the door minus before it: (right - p) / 3, where p is
  the share of right doors in that room. The other two doors add noise to the return: a perfect critic of equally
  likely doors would reach 1 / sqrt(3) = 0.58.
- ``theory``: the factor at the last sampled token of the step, gamma ** (number of later tokens, or steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.equal_steps import sets
from benchmarks.experiments import LONG_STEP_KEYS
from benchmarks.grid import trained
from benchmarks.long_thoughts import ROOMS
from benchmarks.report import command_line, markdown, save
from rl_agents.algorithms import ppo, register, steppo
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.data.samples import Row
from rl_agents.data.step_table import step_spans
from rl_agents.data.trajectory import Trajectory
from rl_agents.reporting.statistics import student_interval

#: Iterations in which the critic learns, how many of the last ones are evaluated, and repetitions.
ITERATIONS, READ, SEEDS = 8, 3, 3
ARMS = ("ppo, gamma 0.99", "ppo, gamma 0.95", "steppo, gamma 0.99", "steppo, gamma 0.95")
Floats = NDArray[np.float64]
#: Credit of the last sampled token of each step, sampled tokens after it, and whether the door was right: each an array
#: [episodes, rooms].
Doors = tuple[Floats, Floats, Floats]
SEEN: list[Doors] = []


def watched(recipe: AlgorithmSpec) -> AlgorithmSpec:
    """Return the algorithm with credit that is also appended to `SEEN`."""
    assert recipe.credit is not None
    inner = recipe.credit

    def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Any) -> None:
        inner(rows, trajectories, settings)
        SEEN.append(doors(rows, trajectories))

    return register(replace(recipe, name=f"watched-{recipe.name}", credit=credit))


def doors(rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> Doors:
    """Return the doors of complete episodes, from merged rows."""
    found = []
    for row in rows:
        spans, trajectory = step_spans(row), trajectories[row.trajectory]
        if len(spans) < len(ROOMS):
            continue  # it ran out of room for a response
        assert row.advantages is not None
        ends = [start + length - 1 for _, start, length in spans]
        after = [float(row.mask[end + 1 :].sum()) for end in ends]
        right = [trajectory.metrics[f"right_{room}"] for room in ROOMS]
        found.append(([float(row.advantages[end]) for end in ends], after, right))
    credit, after, right = (np.array(part) for part in zip(*found, strict=True))
    return credit, after, right


def measure(arm: str, seed: int) -> dict[str, list[float]]:
    SEEN.clear()
    keys = [key for key in LONG_STEP_KEYS[arm] if key.partition("=")[0] not in ("algo", "iterations", "critic_warmup")]
    algo = "watched-" + ("ppo" if arm.startswith("ppo") else "steppo")
    frozen = (f"algo={algo}", f"iterations={ITERATIONS}", f"critic_warmup={ITERATIONS}", "whiten=false")
    with trained(("--local", *sets((*keys, *frozen, "eval_episodes=0"))), seed):
        pass
    last = SEEN[-READ:]
    credit, after, right = (np.concatenate([one[part] for one in last]) for part in range(3))
    truth = (right - right.mean(axis=0)) / len(ROOMS)
    gamma = float(next(key[6:] for key in LONG_STEP_KEYS[arm] if key.startswith("gamma=")))
    size = np.sqrt((credit**2).mean(axis=0))
    units = after.mean(axis=0) if algo == "watched-ppo" else np.arange(len(ROOMS))[::-1]
    return {
        "size": (size / size[-1]).tolist(),
        "correlation": [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(credit.T, truth.T, strict=True)],
        "theory": (gamma**units).tolist(),
        "right": right.mean(axis=0).tolist(),
    }


def main() -> None:
    command_line(__doc__).parse_args()
    for recipe in (ppo.ALGORITHM, steppo.ALGORITHM):
        watched(recipe)
    figures = {arm: [measure(arm, seed) for seed in range(SEEDS)] for arm in ARMS}
    save("credit_reach", figures)
    print(table(figures))


def table(figures: dict[str, list[dict[str, list[float]]]]) -> str:
    """Return the first room's numbers with 95 % intervals over the seeds."""
    names = ("theory", "size", "correlation")
    rows = []
    for arm, seeds in figures.items():
        cells = [student_interval([seed[name][0] for seed in seeds]) for name in names]
        rows.append((arm, *(f"{cell.mean:.2g} [{cell.low:.2g}, {cell.high:.2g}]" for cell in cells)))
    return markdown((f"credit at the door of the {ROOMS[0]}, the first of {len(ROOMS)}", *names), rows)


if __name__ == "__main__":
    main()
