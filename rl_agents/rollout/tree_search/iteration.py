"""One iteration of a search: ticks and updates in turn, in one thread or in two.

`run_iteration` alternates ticks and updates until the budget is spent or all environments fail. With ``async_level=1``
the states of the next tick are chosen and expanded, with the weights from before the update, while the learner trains
on the last tick. The last tick of an iteration is trained on before the iteration ends, so that a checkpoint is
complete.
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
#: When a tick is trained on: before the next one, after it in one thread, or alongside it in two threads.
Order = Literal["before", "after", "beside"]
#: Seconds between two checks whether the other thread lives.
POLL_S = 0.5


def run_iteration(
    explorer: Explorer, sync: Callable[[], bool], expand: Expand, learn: Learn, order: Order = "before"
) -> tuple[list[Trajectory], dict[str, float]]:
    """Search and learn.

    Args:
        sync: gives the engines the newest weights; returns False if they have them already.
        expand: sends requests to env runners; in a thread of its own with ``order="beside"``.
        learn: makes the optimizer steps of one update.
        order: ``after`` and ``beside`` are ``async_level=1``, with the same results.

    Returns:
        The trajectories that ended, and metrics of updates and costs.
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
            with contextlib.suppress(Exception):  # env runners must be free afterwards
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
    merged = merge_updates(updates) or {"actor/skipped_iterations": 1.0}
    if merged.get("search/optimizer_steps"):  # the iteration made an update, if not after every tick
        merged.pop("actor/skipped_iterations", None)
    return finished, {"search/optimizer_steps": 0.0, **merged, **costs}


def _expand(explorer: Explorer, expand: Expand) -> tuple[Sequence[Request], Sequence[Expansion], float]:
    """Choose the states of a tick and expand them; return requests, expansions and seconds."""
    started = time.perf_counter()
    requests = explorer.select(expand)
    expansions = expand([request.spec for request in requests])
    return requests, expansions, time.perf_counter() - started


def _begin(work: Callable[[], R], *, threaded: bool) -> Callable[[], R]:
    """Do work in a thread or at once; return a function that waits for its result, or raises its error."""
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
