"""One iteration of a search: ticks and updates in turn, until the budget is spent or all environments fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.tree_search.explorer import Expand, Explorer
from rl_agents.rollout.tree_search.metrics import merge_updates

#: Samples and the number of the update -> metrics of the update.
Learn = Callable[[Sequence[Trajectory], int], Mapping[str, float]]


def run_iteration(
    explorer: Explorer, sync: Callable[[], bool], expand: Expand, learn: Learn
) -> tuple[list[Trajectory], dict[str, float]]:
    """Search and learn; each tick is trained on before the next one.

    Args:
        sync: gives the engines the newest weights; returns False if they have them already.
        expand: sends requests to env runners.
        learn: makes the optimizer steps of one update.

    Returns:
        The trajectories that ended, and metrics of updates and costs.
    """
    finished: list[Trajectory] = []
    updates: list[Mapping[str, float]] = []
    costs = dict.fromkeys(("timing_s/rollout", "timing_s/sync", "search/syncs"), 0.0)
    explorer.begin_iteration()
    while explorer.has_budget():
        started = time.perf_counter()
        costs["search/syncs"] += sync()
        costs["timing_s/sync"] += time.perf_counter() - started
        requests = explorer.select(expand)
        expansions = expand([request.spec for request in requests])
        costs["timing_s/rollout"] += time.perf_counter() - started
        tick = explorer.update(requests, expansions)
        finished += tick.finished
        if tick.samples:
            updates.append(learn(tick.samples, len(updates)))
    explorer.end_iteration()
    merged = merge_updates(updates) or {"actor/skipped_iterations": 1.0}
    if merged.get("search/optimizer_steps"):  # the iteration made an update, if not after every tick
        merged.pop("actor/skipped_iterations", None)
    return finished, {"search/optimizer_steps": 0.0, **merged, **costs}
