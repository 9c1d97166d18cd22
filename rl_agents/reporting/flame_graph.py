"""A flame graph of a run: where its processes spend their time, sampled by py-spy, which Ray Serve brings."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: prctl's option by which any process of the same user may read this one, where Yama restricts that to its parent.
PR_SET_PTRACER, ANY = 0x59616D61, -1
#: Samples per second.
RATE = 50
#: Seconds in which py-spy must have attached, and in which it must have drawn the graph.
ATTACHING_S, DRAWING_S = 30.0, 120.0


@contextmanager
def flame_graph(path: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Sample this process and those that it started while the block runs, and write ``path``, an SVG.

    A run does not end because it cannot be sampled: ``note`` gets the reason.
    """
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        note("no flame graph: py-spy is not installed (pip install py-spy)")
        yield
        return
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY), 0, 0, 0)
    options = ("--subprocesses", "--function", "--rate", str(RATE), "--pid", str(os.getpid()), "--output", str(path))
    spy = subprocess.Popen([found, "record", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert spy.stdout is not None
    try:
        select.select([spy.stdout], [], [], ATTACHING_S)  # its first line comes when it has attached, or cannot
        yield
    finally:
        note(f"flame graph: {path}" if (said := _drawn(spy)) is None else f"no flame graph: {said}")


def _drawn(spy: subprocess.Popen[bytes]) -> str | None:
    """Let py-spy draw the graph, and return what it said instead; None: it is drawn."""
    spy.send_signal(signal.SIGINT)
    try:
        said, _ = spy.communicate(timeout=DRAWING_S)
    except subprocess.TimeoutExpired:
        spy.kill()
        spy.communicate()
        return f"py-spy was not done after {DRAWING_S:.0f} s"
    return " ".join(said.decode(errors="replace").split()) if spy.returncode else None
