"""With ``pytest -n 3 --dist loadfile``: which files share a process, and what starts first.

Files that use a Ray session stay together, in two groups of which each has its own, and files that start clusters and
servers of their own; all three begin at once, as they take longest and wait the most. The rest goes file by file to
whoever is idle. The first process compiles the tests, and the others read what it has written.
"""

import fcntl
import functools
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ORDER = ["training session", "session", "processes", ""]
#: What the others import meanwhile: they need it anyway.
LIBRARIES = ("rl_agents.trainer.algorithm", "transformers.models.auto.auto_factory")
#: Folders whose tests train with actors: half of what needs a session.
TRAINING = {"learner", "orchestrator", "trainer", "tree_search"}


@functools.cache
def group_of(file: Path) -> str:
    """Read it from the source, as the process that distributes the tests has not imported them."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    shared = "ray_session" in text or "inference.rig" in text  # the rig's engines live in the session, too
    session = "training session" if file.parent.name in TRAINING else "session"
    return session if shared else "processes" if "pytest.mark.ray" in text else ""


def sort_items(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, put the groups first; otherwise keep the order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: ORDER.index(group_of(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class GroupsElseFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return group_of(config.rootpath / file) or file

    return GroupsElseFiles(config, log) if config.getvalue("dist") == "loadfile" else None


def wait_for_the_first(config: pytest.Config, limit_s: float = 90.0) -> None:
    """Before a worker collects: each would compile every test, and pytest's changes to assertions take half of that."""
    worker = getattr(config, "workerinput", None)
    if worker is None or worker["workerid"] == "gw0" or sys.dont_write_bytecode:
        return
    for name in LIBRARIES:
        importlib.import_module(name)
    deadline = time.monotonic() + limit_s
    while not collected(worker).exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def say_collected(config: pytest.Config, done: bool = True) -> None:
    """After the first worker's collection, successful or not; the file is deleted when the worker ends."""
    worker = getattr(config, "workerinput", {"workerid": ""})
    if worker["workerid"] == "gw0":
        collected(worker).touch() if done else collected(worker).unlink(missing_ok=True)


def collected(worker: dict[str, Any]) -> Path:
    """Return this run's marker file."""
    return Path(tempfile.gettempdir()) / f"pytest-collected-{worker['testrunuid']}"


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first worker creates and the other waits for."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder
