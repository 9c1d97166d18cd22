"""With ``pytest -n 2 --dist loadgroup``: who shares a process, and what starts first.

Tests of the one Ray session stay together, and tests that start clusters and servers of their own; both begin at
once, as they take longest and wait the most. The rest goes file by file to whoever is idle.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ORDER = ["session", "processes", ""]


def group_of(item: pytest.Item) -> str:
    if item.get_closest_marker("ray") is None:
        return ""
    return "session" if "ray_session" in getattr(item, "fixturenames", ()) else "processes"


def assign(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker's process, name each item's group and sort; otherwise the order stays as it is."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: ORDER.index(group_of(item)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadGroupScheduling

    class GroupsElseFiles(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.split("::")[0] if group == nodeid else group

    return GroupsElseFiles(config, log) if config.getvalue("dist") == "loadgroup" else None


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first worker who asks makes, and the other waits for."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder
