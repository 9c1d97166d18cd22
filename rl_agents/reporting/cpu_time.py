"""What a run costs in CPU time."""

from __future__ import annotations

import psutil


def cpu_seconds() -> float:
    """CPU time of this process and its descendants so far, among them the actors of a Ray started here."""
    total, me = 0.0, psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
