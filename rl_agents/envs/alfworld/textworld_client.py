"""The client's end of a worker process that plays ALFWorld games on TextWorld (`textworld_worker`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

MAX_ANSWER = 4_000_000


class WorkerError(RuntimeError):
    """A worker was killed, ended or did not answer in time: this episode is over, the next one gets a new worker."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the engine says.

    Attributes:
        text: the feedback; of a reset the room and the task.
        admissible: the commands that do something now, sorted.
        won: whether the goal holds.
    """

    text: str
    admissible: tuple[str, ...]
    won: bool


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A state of a game that can be returned to, in this process or another: the commands that led to it."""

    game: str
    commands: tuple[str, ...]


class Worker:
    """The client's end of one worker process."""

    def __init__(self, sock: socket.socket, pid: int = 0) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self.pid = pid

    def request(
        self,
        message: dict[str, Any],
        timeout_s: float,
        doing: str,
        attach: int | None = None,
        refused: type[Exception] = WorkerError,
    ) -> Any:
        """Send a request and return the answer.

        Raises:
            WorkerError: the process is gone or did not answer in time (it is killed then).
            refused: the process could not do it.
        """
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                deadline = time.monotonic() + timeout_s
                self._sock.settimeout(timeout_s)
                if attach is None:
                    self._sock.sendall(data)
                else:
                    socket.send_fds(self._sock, [data], [attach])
                answer = self._read(deadline)
        except TimeoutError:
            self.kill()
            raise WorkerError(f"TextWorld worker {self.pid}: no answer within {timeout_s:g} s to: {doing}") from None
        except OSError as error:
            self.close()
            raise WorkerError(f"TextWorld worker {self.pid} ended during: {doing} ({error})") from None
        if "error" in answer:
            raise refused(f"TextWorld worker {self.pid}: {doing}: {answer['error']}")
        return answer

    def _read(self, deadline: float) -> Any:
        buffer = bytearray()
        while not buffer.endswith(b"\n"):
            self._sock.settimeout(max(1e-3, deadline - time.monotonic()))
            data = self._sock.recv(1 << 16)
            if not data:
                raise OSError("killed, or crashed")
            buffer += data
            if len(buffer) > MAX_ANSWER:
                raise OSError(f"its answer is longer than {MAX_ANSWER} bytes")
        return json.loads(buffer)

    def hello(self, timeout_s: float) -> Any:
        """Return the first line of a root process."""
        try:
            return self._read(time.monotonic() + timeout_s)
        except TimeoutError:
            raise OSError(f"no sign of life within {timeout_s:g} s") from None

    def fork(self, timeout_s: float) -> Worker:
        """Return a copy of the process as it is now."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answer = self.request({"op": "fork"}, timeout_s, "fork", attach=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return Worker(ours, answer["pid"])

    def kill(self) -> None:
        """End the process at once. Its socket is still open, so that the id is still its own."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let the process end."""
        self._sock.close()


def step(worker: Worker, command: str, timeout_s: float) -> Observation:
    """Play ``command`` in a worker."""
    return observation(worker.request({"op": "step", "command": command}, timeout_s, f"step '{command[:80]}'"))


def observation(answer: Any) -> Observation:
    """Read what a worker answers to ``load`` and ``step``."""
    return Observation(answer["text"], tuple(answer["admissible"]), answer["won"])
