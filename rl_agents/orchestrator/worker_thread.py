"""A thread beside the learners': how it starts, is told to end, is waited for, and hands over what it raised.

Whoever shares tables with it guards them by ``changed``, and notifies it when they have changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds between two looks at whether the thread lives.
POLL_S = 0.5
#: Seconds that the thread may take to notice that its env runners are gone.
CLOSE_S = 10.0


class Beside:
    """One thread at a time.

    Attributes:
        changed: guards what is shared with the thread.
        closing: the thread is to end; it looks itself.
        error: what it raised.
    """

    def __init__(self, name: str, changed: threading.Condition | None = None) -> None:
        """
        Args:
            name: of the thread.
            changed: of another thread that shares the same tables; None: there is none.
        """
        self.changed = changed or threading.Condition()
        self.closing = False
        self.error: BaseException | None = None
        self._name = name
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether there is a thread, alive or not."""
        return self._thread is not None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Have a new thread do ``work``, which looks at ``closing`` now and then."""

        def watched() -> None:
            try:
                work()
            except BaseException as error:
                self.error = error
            finally:
                with self.changed:
                    self.changed.notify_all()

        self._thread = threading.Thread(target=watched, name=self._name, daemon=True)
        self._thread.start()

    def wait(self, until: Callable[[], bool]) -> bool:
        """Wait, with ``changed``, until something is so or the thread has ended; return whether it is so."""
        while not (so := until()) and self.alive:
            self.changed.wait(POLL_S)
        return so or until()  # it may have become so just before the end

    def reason(self) -> BaseException:
        """Return why the thread has ended, for whoever needs what it will not bring."""
        return self.error or RuntimeError(f"the thread of {self._name} has ended")

    def close(self) -> None:
        """Tell the thread to end; does not wait for it."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, when env runners are gone; gives up after some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def end(self) -> None:
        """Tell the thread to end, wait for as long as it takes, and forget it and its error."""
        self.close()
        while self.alive:
            assert self._thread is not None
            self._thread.join(POLL_S)  # in slices: an interrupt arrives in between
        self._thread, self.error, self.closing = None, None, False
