"""One iteration of searching: ticks and updates in turn, until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_agents.data.trajectory import Trajectory
from rl_agents.search.explorer import Expand, Explorer
from rl_agents.search.groups import reach_weights
from rl_agents.search.metrics import merge_updates

#: Siblings, weights of their groups, and the number of the update -> metrics of the update.
Learn = Callable[[Sequence[Trajectory], Mapping[int, float], int], Mapping[str, float]]


def run_iteration(
    explorer: Explorer, sync: Callable[[], bool], expand: Expand, learn: Learn
) -> tuple[list[Trajectory], dict[str, float]]:
    """Search and learn.

    Args:
        sync: gives the engines the newest weights; false when they have them.
        expand: asks env runners.
        learn: makes the optimiser steps of one update.

    Returns:
        The trajectories that ended, and metrics of updates and costs.
    """
    settings = explorer.settings
    finished: list[Trajectory] = []
    held: list[Trajectory] = []
    updates: list[Mapping[str, float]] = []
    costs: dict[str, Any] = {"timing_s/rollout": 0.0, "timing_s/sync": 0.0, "search/syncs": 0.0}
    explorer.begin()
    while explorer.has_budget():
        started = time.perf_counter()
        costs["search/syncs"] += sync()
        costs["timing_s/sync"] += time.perf_counter() - started
        requests = explorer.plan(expand)
        tick = explorer.apply(requests, expand([request.spec for request in requests]))
        costs["timing_s/rollout"] += time.perf_counter() - started
        finished += tick.finished
        held += tick.siblings
        if held and (settings.search_update == "step" or not explorer.has_budget()):
            weights = reach_weights(held) if settings.search_weights == "reach" else {}
            updates.append(learn(held, weights, len(updates)))
            held = []
    explorer.end()
    steps = sum(not update.get("actor/skipped_iterations") for update in updates)
    costs["search/optimiser_steps"] = float(settings.epochs * settings.minibatches * steps)
    return finished, {**(merge_updates(updates) or {"actor/skipped_iterations": 1.0}), **costs}
