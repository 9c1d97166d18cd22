"""One iteration of searching: ticks and updates in turn, until the budget is spent or environments break everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rl_agents.data.trajectory import Trajectory
from rl_agents.search.explorer import Expand, Explorer
from rl_agents.search.metrics import merge_updates

#: Samples and the number of the update -> metrics of the update.
Learn = Callable[[Sequence[Trajectory], int], Mapping[str, float]]


def run_iteration(
    explorer: Explorer, sync: Callable[[], bool], expand: Expand, learn: Learn
) -> tuple[list[Trajectory], dict[str, float]]:
    """Search and learn.

    Args:
        sync: gives the engines the newest weights; false when they have them.
        expand: asks env runners.
        learn: makes the optimiser steps of one update.

    Returns:
        The trajectories that ended, and metrics of updates and costs. ``search/optimiser_steps`` counts updates that
        were not skipped.
    """
    finished: list[Trajectory] = []
    updates: list[Mapping[str, float]] = []
    costs = {"timing_s/rollout": 0.0, "timing_s/sync": 0.0, "search/syncs": 0.0}
    explorer.begin_iteration()
    while explorer.has_budget():
        started = time.perf_counter()
        costs["search/syncs"] += sync()
        costs["timing_s/sync"] += time.perf_counter() - started
        requests = explorer.select(expand)
        tick = explorer.update(requests, expand([request.spec for request in requests]))
        costs["timing_s/rollout"] += time.perf_counter() - started
        finished += tick.finished
        if tick.samples:
            updates.append(learn(tick.samples, len(updates)))
    explorer.end_iteration()
    costs["search/optimiser_steps"] = float(sum(not update.get("actor/skipped_iterations") for update in updates))
    return finished, {**(merge_updates(updates) or {"actor/skipped_iterations": 1.0}), **costs}
