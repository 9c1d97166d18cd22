"""The Ray that a command uses: a running cluster, or its own. Imports nothing heavy, so that commands start fast."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil


def cluster_address() -> str:
    """Return the address of the Ray cluster that a run joins; empty if it starts its own Ray.

    As in Ray: ``RAY_ADDRESS`` (set by `ray job submit`), else the head that `ray start` started on this machine, if it
    answers. ``RAY_ADDRESS=local`` starts Ray for the run alone.
    """
    named = os.environ.get("RAY_ADDRESS", "")
    if named not in ("", "auto"):
        return "" if named == "local" else named
    noted = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    local = noted.read_text(encoding="utf-8").strip() if noted.is_file() else ""
    return local if local and answers(local) else named


def answers(address: str, timeout_s: float = 3.0) -> bool:
    """Whether a server listens at ``host:port``, or at a URL with both."""
    host, _, port = address.rpartition("://")[2].split("/")[0].rpartition(":")
    try:
        with socket.create_connection((host or "localhost", int(port)), timeout=timeout_s):
            return True
    except (OSError, ValueError):
        return False


def takes_tokens(address: str) -> bool:
    """Whether the head on this machine at ``address`` requires tokens; true if its process cannot be read.

    Ray sends a token as soon as this machine has one. With a head that was started before, no actor could start.
    """
    port = f"--gcs_server_port={address.rpartition(':')[2]}"
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "gcs_server" and port in process.cmdline():
                return process.environ().get("RAY_AUTH_MODE") == "token"
    return True


def describe_session() -> str:
    """Return a sentence about the Ray of a run: a cluster and the reason for it, or its own."""
    named, address = os.environ.get("RAY_ADDRESS"), cluster_address()
    if not address:
        return "Ray starts on this machine for this command alone"
    if named:
        return f"joins the Ray cluster RAY_ADDRESS={named}"
    return f"joins the Ray cluster {address}, which runs on this machine (RAY_ADDRESS=local: start a Ray of its own)"
