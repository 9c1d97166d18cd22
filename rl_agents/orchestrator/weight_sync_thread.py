"""A stream's upkeep: engines get the newest weights, and who is lost is brought back, beside what is being played.

A thread of its own does both, one after the other, so that an engine is never given weights and restored at once.
Env runners go on meanwhile, and finished episodes are collected: a push waits for the engines' calls, perhaps for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rl_agents.errors import RolloutError
from rl_agents.orchestrator.fault_tolerance import COME_BACK_S, RESTART_PATIENCE_S
from rl_agents.orchestrator.rollout_buffer import Sampled
from rl_agents.orchestrator.worker_thread import Beside

#: Seconds between two looks at who is back.
LOOK_S = 0.5
#: Seconds without any env runner after which a run ends.
GONE_S = 6 * RESTART_PATIENCE_S


class Upkeep:
    """One thread for weights and losses.

    Attributes:
        beside: the thread; what it raises is in its ``error``.
        push_s: seconds that the last weights took to reach the engines.
    """

    def __init__(
        self, producer: Sampled, changed: threading.Condition, *, arrived: Callable[[int], None],
        blamed: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        Args:
            changed: guards what the stream's threads share.
            arrived: called with the iterations whose weights the engines have; ``changed`` is held.
            blamed: called when a task is known to have ended a runner's process.
        """
        self.beside, self.push_s = Beside("upkeep", changed), 0.0
        self._producer, self._changed, self._arrived, self._blamed = producer, changed, arrived, blamed
        #: Weights that the engines wait for, with their version and iteration.
        self._offered: tuple[Any, int, int] | None = None
        self._struck = False
        #: When those who are lost are not waited for any more; None: nobody is.
        self._until: float | None = None
        self._alone_since: float | None = None
        self._looked = 0.0

    def start(self) -> None:
        """Begin; what was offered is pushed first."""
        self.beside.start(self._work)

    def offer(self, weights: Any, version: int, iteration: int) -> None:
        """Have the engines get ``weights``; None: those offered before are these, or they have them.

        Args:
            iteration: whose weights they are.
        """
        with self._changed:
            if weights is None and self._offered is not None:
                weights = self._offered[0]
            self._offered = (weights, version, iteration)
            self._changed.notify_all()

    def pending(self) -> bool:
        """Whether the engines wait for weights; ``changed`` is the caller's."""
        return self._offered is not None

    def strike(self) -> None:
        """Something was lost: look after all."""
        with self._changed:
            self._struck = True
            self._changed.notify_all()

    def restoring(self) -> bool:
        """Whether what was lost should not be played again yet: engines come back, or it is not known who is blamed."""
        with self._changed:
            return self._struck or self._until is not None

    def _work(self) -> None:
        while not self.beside.closing:
            self._restore_engines()
            self._push()
            self._welcome()
            with self._changed:
                if not (self._struck or self._offered or self.beside.closing):
                    self._changed.wait(LOOK_S)

    def _restore_engines(self) -> None:
        with self._changed:
            if not self._struck:
                return
            self._until, self._struck = time.monotonic() + COME_BACK_S, False
        self._producer.workers().collector.losses.restore_engines()

    def _push(self) -> None:
        with self._changed:
            offered = self._offered
        if offered is None:
            return
        weights, version, iteration = offered
        started = time.perf_counter()
        if weights is not None:
            self._producer.push(weights, version)
        with self._changed:
            self.push_s = time.perf_counter() - started
            self._arrived(iteration)
            if self._offered is offered:
                self._offered = None
            self._changed.notify_all()

    def _welcome(self) -> None:
        """Take in who is back, and let the others go on after a while."""
        losses, now = self._producer.workers().collector.losses, time.monotonic()
        if losses.runners.absent() and now - self._looked >= LOOK_S:
            self._looked = now
            if losses.welcome(0.0):
                self._blamed()
        late = self._until is not None and now >= self._until
        for event in losses.overdue(COME_BACK_S) if late else []:
            print(f"[rl_agents] {event}", flush=True)
        with self._changed:
            if late or not losses.awaited():
                self._until = None
        self._check_alone(losses.runners.absent(), now, alone=not losses.runners.ids())

    def _check_alone(self, absent: list[int], now: float, *, alone: bool) -> None:
        """Give up when nobody has been there for long; raises `RolloutError`."""
        self._alone_since = (self._alone_since or now) if alone else None
        if self._alone_since is not None and now - self._alone_since >= GONE_S:
            names = ", ".join(map(str, absent))
            raise RolloutError(f"no env runner is alive: {names} did not come back within {GONE_S:.0f} s")
