"""Places for environments that are alive: no more than may be, in the order of asking."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class Places:
    """Places of one event loop's environments.

    Args:
        limit: how many there are by now; 0: any number.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def admitted(self, count: int) -> None:
        """Wait for ``count`` places at once."""
        if not self._waiting and self._fits(count):
            self._taken += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(count)
            else:
                with contextlib.suppress(ValueError):  # `wake` has passed over it
                    self._waiting.remove((count, turn))
                self.wake()
            raise

    def spare(self) -> bool:
        """Take a place, if there is one that nobody waits for."""
        if self._waiting or not self._fits(1):
            return False
        self._taken += 1
        return True

    def release(self, count: int) -> None:
        """Give places back."""
        self._taken -= count
        self.wake()

    def wake(self) -> None:
        """Let those in who wait, as far as there are places."""
        while self._waiting and self._fits(self._waiting[0][0]):
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._taken += count
                turn.set_result(None)

    def _fits(self, count: int) -> bool:
        # Who needs more at once than may live gets them when nobody else has any.
        limit = self._limit()
        return not limit or not self._taken or self._taken + count <= limit
