"""A gate for calls and weight updates, which excludes them from each other (``weight_switch=wait``).

A sync lets running calls end while new ones wait, loads the weights, and lets the new ones continue. A call counts as
running once the engine may work on it. Calls that wait because the batch is full do not delay a sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from rl_agents.inference.base import EngineError

logger = logging.getLogger(__name__)


class OverlapClock:
    """Counts the seconds in which at least one of several overlapping activities was in progress."""

    def __init__(self) -> None:
        self._total, self._since, self._count = 0.0, 0.0, 0

    def begin(self) -> None:
        if not self._count:
            self._since = time.monotonic()
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._total += time.monotonic() - self._since

    def seconds(self) -> float:
        """Return the seconds so far, including an activity in progress."""
        return self._total + (time.monotonic() - self._since if self._count else 0.0)


@dataclass(eq=False, slots=True)
class Running:
    """A call that the engine works on, for the error of a sync that waits too long."""

    prompt_tokens: int
    max_tokens: int
    since: float = field(default_factory=time.monotonic)


def overdue(version: int, patience_s: float, calls: Collection[Running]) -> EngineError:
    """Return the error of a sync that has waited too long for running calls."""
    oldest = min(calls, key=lambda call: call.since)
    seconds = time.monotonic() - oldest.since
    return EngineError(
        f"sync to version {version} waited {patience_s:g} s for {len(calls)} running calls, the longest for "
        f"{seconds:.1f} s so far ({oldest.prompt_tokens} prompt tokens, up to {oldest.max_tokens} to sample); the old "
        f"weights stay. Lower max_response_tokens, raise engine_timeout_s, or set weight_switch=keep"
    )


class Gate:
    """Admits `Running` calls or one sync at a time, within one event loop, first come, first served."""

    def __init__(self, room: int, patience_s: float, keep: bool = False, patient: bool = True) -> None:
        """
        Args:
            room: maximum concurrent calls.
            patience_s: seconds that a sync waits for running calls.
            keep: syncs neither wait for calls nor hold them back.
            patient: after ``patience_s`` a sync fails; False: it loads the weights under the running calls.
        """
        #: Time in which calls are held back for new weights, which clients do not count toward their timeout.
        self.held = OverlapClock()
        self._room, self._patience_s, self._keep, self._patient = room, patience_s, keep, patient
        self._running: set[Running] = set()
        self._waiting: dict[asyncio.Future[None], Running] = {}
        self._syncs = 0
        self._idle = asyncio.Event()
        self._loading = asyncio.Lock()

    @property
    def running(self) -> int:
        """Number of running calls."""
        return len(self._running)

    @contextlib.asynccontextmanager
    async def call(self, call: Running) -> AsyncIterator[None]:
        if self._syncs or self._waiting or len(self._running) >= self._room:
            await self._turn(call)
        else:
            self._running.add(call)
        try:
            yield
        finally:
            self._leave(call)

    @contextlib.asynccontextmanager
    async def update(self, version: int) -> AsyncIterator[None]:
        """Load weights inside; one sync at a time.

        Raises:
            EngineError: running calls did not end in time.
        """
        self.held.begin()
        self._syncs += not self._keep
        try:
            async with self._loading:
                await self._drain(version)
                yield
        finally:
            self._syncs -= not self._keep
            self.held.end()
            self._let_in()

    async def _turn(self, call: Running) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = call
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            self._leave(call)  # it may have been admitted just now
            raise
        call.since = time.monotonic()

    def _let_in(self) -> None:
        # Admitted calls count as running before they wake, so that consecutive syncs cannot starve them.
        while self._waiting and not self._syncs and len(self._running) < self._room:
            turn = next(iter(self._waiting))
            call = self._waiting.pop(turn)
            if not turn.done():
                self._running.add(call)
                turn.set_result(None)

    def _leave(self, call: Running) -> None:
        self._running.discard(call)
        if not self._running:
            self._idle.set()
        self._let_in()

    async def _drain(self, version: int) -> None:
        deadline = time.monotonic() + self._patience_s
        while self._running and not self._keep:
            self._idle = asyncio.Event()  # of this event loop, which may differ from the last one's
            try:
                await asyncio.wait_for(self._idle.wait(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                if self._patient:
                    raise overdue(version, self._patience_s, self._running) from None
                logger.warning("new weights under %d running calls, after %g s", self.running, self._patience_s)
                return
