"""Faster process start: a run has many processes, and each imports a few thousand modules."""

from __future__ import annotations

import contextlib
import gc
import sys

#: New containers between two looks for garbage (Python: 700 or 2,000). What modules define is no garbage, and who looks
#: for it again and again while they are imported spends a fifth of a process's start.
NEW_CONTAINERS = 10_000
_SKLEARN = "sklearn"


def collect_less_often() -> None:
    """Look for garbage in cycles after `NEW_CONTAINERS`, not after each 700: a process holds some MB more at most."""
    first, *others = gc.get_threshold()
    if 0 < first < NEW_CONTAINERS:  # 0: somebody has switched it off
        gc.set_threshold(NEW_CONTAINERS, *others)


def settle_ray_worker() -> None:
    """`collect_less_often` where this is a process that Ray started for actors and tasks; any other is its owner's."""
    ray = sys.modules.get("ray._private.worker")
    if ray is None:
        return
    with contextlib.suppress(AttributeError):  # another Ray: as Python has it
        if ray.global_worker.mode == ray.WORKER_MODE:
            collect_less_often()


def leave_out_sklearn() -> None:
    """Have transformers load models without scikit-learn (with pandas and scipy: a second of CPU, 100 MB).

    Where it is installed, transformers imports it with every model, for a threshold of assisted generation that nothing
    here uses; it goes without where it is not. So it is asked once whether there is any, while there seems to be none,
    and remembers. To call before the first model class is imported; other imports of scikit-learn are not affected.
    """
    if _SKLEARN in sys.modules:  # paid already
        return
    with contextlib.suppress(ImportError):  # another transformers: as it likes
        from transformers.utils import is_sklearn_available

        sys.modules[_SKLEARN] = None  # type: ignore[assignment]  # Python's own way to say: not to be found
        try:
            is_sklearn_available()
        finally:
            del sys.modules[_SKLEARN]
