"""Child processes of tests."""

import contextlib
import socket

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
