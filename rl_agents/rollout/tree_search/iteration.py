"""One iteration of searching: ticks and updates in turn, until the budget is spent or environments break everything.

With a lag of 1 the next tick's states are chosen and expanded while the learner learns from the last tick, by the
weights that it learns with: an update later than they are now. The last tick of an iteration is learned from before
the iteration ends, so that a checkpoint holds all there is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Literal, TypeVar

from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.branching import Expansion
from rl_agents.rollout.tree_search.explorer import Expand, Explorer, Request
from rl_agents.rollout.tree_search.metrics import merge_updates

R = TypeVar("R")

#: Samples and the number of the update -> metrics of the update.
Learn = Callable[[Sequence[Trajectory], int], Mapping[str, float]]
#: When a tick is learned from: before the next one begins; after it, in one thread; or beside it, in two.
Order = Literal["before", "after", "beside"]
#: Seconds between two looks at whether the other thread lives.
POLL_S = 0.5


def run_iteration(
    explorer: Explorer, sync: Callable[[], bool], expand: Expand, learn: Learn, order: Order = "before"
) -> tuple[list[Trajectory], dict[str, float]]:
    """Search and learn.

    Args:
        sync: gives the engines the newest weights; false when they have them.
        expand: asks env runners; in a thread of its own with ``order="beside"``.
        learn: makes the optimizer steps of one update.
        order: ``after`` and ``beside`` are a lag of 1, with the same results.

    Returns:
        The trajectories that ended, and metrics of updates and costs. ``search/optimizer_steps`` counts updates that
        were not skipped.
    """
    finished: list[Trajectory] = []
    updates: list[Mapping[str, float]] = []
    costs = dict.fromkeys(("timing_s/rollout", "timing_s/sync", "search/syncs"), 0.0)
    costs |= {"timing_s/wait_rollout": 0.0} if order == "beside" else {}
    waiting: list[Trajectory] = []

    def learn_from_last_tick() -> None:
        if waiting:
            updates.append(learn(waiting.copy(), len(updates)))
            waiting.clear()

    explorer.begin_iteration()
    while explorer.has_budget():
        if order == "before":
            learn_from_last_tick()
        started = time.perf_counter()
        costs["search/syncs"] += sync()
        costs["timing_s/sync"] += time.perf_counter() - started
        expanded = _begin(lambda: _expand(explorer, expand), threaded=order == "beside")
        try:
            learn_from_last_tick()
        except Exception:
            with contextlib.suppress(Exception):  # env runners must be free for whoever goes on
                expanded()
            raise
        asked = time.perf_counter()
        requests, expansions, seconds = expanded()
        if order == "beside":
            costs["timing_s/wait_rollout"] += time.perf_counter() - asked
        tick = explorer.update(requests, expansions)
        costs["timing_s/rollout"] += seconds
        finished += tick.finished
        waiting += tick.samples
    learn_from_last_tick()
    explorer.end_iteration()
    costs["timing_s/rollout"] += costs["timing_s/sync"]
    costs["search/optimizer_steps"] = float(sum(not update.get("actor/skipped_iterations") for update in updates))
    return finished, {**(merge_updates(updates) or {"actor/skipped_iterations": 1.0}), **costs}


def _expand(explorer: Explorer, expand: Expand) -> tuple[Sequence[Request], Sequence[Expansion], float]:
    """Choose the states of a tick and expand them; how long that took comes last."""
    started = time.perf_counter()
    requests = explorer.select(expand)
    expansions = expand([request.spec for request in requests])
    return requests, expansions, time.perf_counter() - started


def _begin(work: Callable[[], R], *, threaded: bool) -> Callable[[], R]:
    """Do some work, in a thread of its own or at once; return what waits for its result, or raises what it raised."""
    if not threaded:
        done = work()
        return lambda: done
    result: Future[R] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name="expansions", daemon=True)
    thread.start()

    def finish() -> R:
        while not result.done() and thread.is_alive():
            wait([result], POLL_S)
        return result.result(0)

    return finish
