"""Runs between a runner and an agent's process, so that no process of the agent outlives either.

    python -I -S child.py GRACE_S PROGRAM ARGUMENT ...

This separate program imports only the standard library, since it is started for every agent, in about 20 ms. When its
standard input closes, because the agent's time is over or the runner died, the agent's process group gets SIGTERM, and
after ``GRACE_S`` seconds everything is killed; a byte on standard input means without delay. When the agent ends, all
processes that it started are killed, also those that left its process group: on Linux, orphans become children of this
process (PR_SET_CHILD_SUBREAPER).

The exit code is the agent's, or 128 plus the number of the signal that ended it, as in a shell.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: Exit codes of a shell: no such program, and no permission to run it.
NOT_FOUND, NOT_ALLOWED = 127, 126
#: Seconds that killed descendants have to end.
SWEEP_S = 5.0


def main(arguments: list[str]) -> int:
    grace_s, command = float(arguments[0]), arguments[1:]
    on_linux(PR_SET_CHILD_SUBREAPER, 1)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    agent = start(command)
    try:
        return exit_code(supervise(agent, wake, grace_s))
    finally:
        sweep(agent)


def on_linux(option: int, value: int) -> None:
    """Call ``prctl`` on Linux."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def start(command: list[str]) -> int:
    """Start the agent in a new session with empty standard input, and return its process id."""
    parent, (begun, ready) = os.getpid(), os.pipe()
    child = os.fork()
    if child:
        os.close(ready)
        os.read(begun, 1)  # before, a signal to its group reaches nothing
        return child
    try:
        os.setsid()
        on_linux(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(ready)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except BaseException as error:
        os.write(2, f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED)


def supervise(agent: int, wake: int, grace_s: float) -> int:
    """Wait until the agent ends or is ended, and return its status as `os.waitpid` does."""
    held, deadline = True, float("inf")
    while (status := reaped(agent)) is None:
        left = min(max(deadline - time.monotonic(), 0.0), 3600.0)
        ready = select.select([0, wake] if held else [wake], [], [], left)[0]
        signals = os.read(wake, 4096) if wake in ready else b""
        if held and (0 in ready or set(signals) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}):
            held = False
            patient = not (0 in ready and os.read(0, 1))
            deadline = time.monotonic() + (grace_s if patient else 0.0)
            kill(agent, signal.SIGTERM if patient else signal.SIGKILL, group=True)
        elif time.monotonic() >= deadline:
            kill(agent, signal.SIGKILL, group=True)
            deadline = float("inf")
    return status


def reaped(agent: int) -> int | None:
    """Collect ended children, including orphans, and return the agent's status if it is among them."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return signal.SIGKILL.value
        if process == agent:
            return status
        if not process:
            return None


def sweep(agent: int) -> None:
    """Kill remaining descendants. Orphans of killed ones become our children, so repeat until there are none."""
    kill(agent, signal.SIGKILL, group=True)
    deadline = time.monotonic() + SWEEP_S
    while time.monotonic() < deadline:
        for child in children():
            kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def children() -> list[int]:
    """Return the ids of this process's children, from Linux's ``/proc``; none on other systems."""
    own, found = str(os.getpid()).encode(), []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else ()):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[1] == own:
                found.append(int(name))
    return found


def kill(process: int, number: int, group: bool = False) -> None:
    """Send a signal to a process or its group, which may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(process, number)


def exit_code(status: int) -> int:
    """Return a status of `os.waitpid` as a shell's exit code."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
