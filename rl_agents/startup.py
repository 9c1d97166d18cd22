"""Faster process start: a run has many processes, and each imports a few thousand modules."""

from __future__ import annotations

import gc
import sys

#: New containers between two garbage collections (Python's default: 700 or 2,000). Frequent collections during imports
#: take a fifth of a process's start and find nothing.
NEW_CONTAINERS = 10_000
_SKLEARN = "sklearn"


def collect_less_often() -> None:
    """Collect cyclic garbage every `NEW_CONTAINERS` containers; a process needs at most a few MB more."""
    first, *others = gc.get_threshold()
    if 0 < first < NEW_CONTAINERS:  # 0: switched off
        gc.set_threshold(NEW_CONTAINERS, *others)


def settle_ray_worker() -> None:
    """Call `collect_less_often` in a process that Ray started for actors and tasks; others belong to their owner."""
    ray = sys.modules.get("ray._private.worker")
    if ray is not None and ray.global_worker.mode == ray.WORKER_MODE:
        collect_less_often()


def leave_out_sklearn() -> None:
    """Let transformers load models without scikit-learn, pandas and scipy (a second of CPU, 100 MB).

    If scikit-learn is installed, transformers imports it with every model, for a threshold of assisted generation that
    nothing here uses. Its cached check runs here once while the import is blocked. Call this before the first model
    class is imported; other imports of scikit-learn are not affected.
    """
    if _SKLEARN in sys.modules:
        return
    from transformers.utils import is_sklearn_available

    sys.modules[_SKLEARN] = None  # type: ignore[assignment]  # blocks the import
    try:
        is_sklearn_available()
    finally:
        del sys.modules[_SKLEARN]
