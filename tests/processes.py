"""Child processes of tests."""

import contextlib
import os
import socket
from collections.abc import Callable

import psutil


def children_running(text: str, recursive: bool = False) -> list[int]:
    """Return the ids of running children (recursive: all descendants) whose command contains a text."""
    found = []
    for child in psutil.Process().children(recursive):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends while it is looked at; a zombie's command raises, too
            if child.status() != psutil.STATUS_ZOMBIE and any(text in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def forked(work: Callable[[], object]) -> int:
    """Do something in a fork, which need not import again; return its exit code, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
