"""SIGINT and SIGTERM as a request to stop that never leaves a half-written state."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Signal that ends the process immediately, because something suppresses exceptions.
LAST_SIGNAL = 3
EXIT_CODE = 130


class Interrupts:
    """Sets ``requested`` at the first signal, and raises KeyboardInterrupt where stopping immediately is safe.

    Outside of an `abortable` block the running code continues and checks ``requested`` when it is done. A second
    signal always raises. The third one ends the process without cleanup, because a bare ``except:`` may have suppressed
    the KeyboardInterrupt.
    """

    def __init__(self, waits: str = "") -> None:
        """
        Args:
            waits: line for stderr at a first signal after which the running code continues.
        """
        self.requested, self._waits = False, waits
        self._count = 0
        self._may_abort: Callable[[], bool] = lambda: False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Install the handlers; call it again after `ray.init`, which installs its own for SIGTERM."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            previous = signal.signal(number, self._handle)
            self._previous.setdefault(number, previous)

    @contextmanager
    def abortable(self, when: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Let a signal raise KeyboardInterrupt inside the block, as long as ``when()`` holds."""
        if self.requested:
            raise KeyboardInterrupt
        self._may_abort = when
        try:
            yield
        finally:
            self._may_abort = lambda: False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count >= LAST_SIGNAL:
            _say("ended by the third signal")
            os._exit(EXIT_CODE)
        again, self.requested = self.requested, True
        if again or self._may_abort():
            raise KeyboardInterrupt
        if self._waits:
            _say(self._waits)


def _say(line: str) -> None:
    """Write to stderr from a signal handler, which may have interrupted a print."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{line}\n".encode())


def event_loop() -> asyncio.Runner:
    """Return a new event loop in which a signal may raise KeyboardInterrupt without logged errors of ended tasks."""
    runner = asyncio.Runner()
    runner.get_loop().set_exception_handler(_report)
    return runner


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)
