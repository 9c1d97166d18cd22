"""How fast a server is asked: so many calls at once, pauses that hold for all of them, a slow start afterwards.

A server that is overloaded says how long to wait (``Retry-After``), or what is left of its limits
(``x-ratelimit-remaining-*`` and ``x-ratelimit-reset-*``). One call that hears it tells all others of that server. When
the pause is over a single call goes first, the one that has waited longest. Each success lets one more in, up to half
of what was too much; from there on it takes as many successes as there are calls under way (as TCP does).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from heapq import heappop, heappush

from rl_agents.queues import Line

#: Limits that are told by name; the bare ones are GitHub's and the IETF draft's.
LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
#: Seconds that calls wait for a server that asks for a pause; when it asks for more, they fail at once.
PATIENCE_S = 300.0
#: Numbers above it are seconds since 1970, not seconds from now.
EPOCH = 1_000_000_000
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d+)?")


class LongPause(Exception):
    """The server asks for a pause that nobody waits for."""


class Pace:
    """Lets calls of one server go; of one event loop.

    Args:
        server: whose, in messages.

    Attributes:
        bound: calls at once, at most.
        running: calls under way.
        line: where calls stand that wait for a place, or for the end of a pause.
    """

    def __init__(self, bound: int, server: str = "a server") -> None:
        self.bound = bound
        self.line = Line(f"{server}, asked by {bound} at once,")
        self.running = 0
        self._size = self._threshold = float(bound)
        self._until = 0.0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, ticket: int) -> None:
        """Wait for a place; lower tickets go first. Who has entered must `leave`.

        Raises:
            LongPause: the server has asked for more than `PATIENCE_S`.
        """
        if self.pause_left > PATIENCE_S:
            raise self._long_pause()
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (ticket, mine))
        self._admit()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self.leave()
            raise

    def leave(self) -> None:
        """Give a place back."""
        self.running -= 1
        self._admit()

    def pause(self, seconds: float, *, restart: bool = True) -> None:
        """Let nobody in for ``seconds``; then one at first (``restart``), or as many as before."""
        if restart and not self.pause_left:  # several calls hear it at the same time
            self._threshold = max(1.0, self._size / 2)
        self._until = max(self._until, asyncio.get_running_loop().time() + seconds)
        self.line.moves(seconds)
        if restart:
            self._size = 1.0
        if self.pause_left > PATIENCE_S:
            for _, other in self._waiting:
                if not other.done():
                    other.set_exception(self._long_pause())

    def succeeded(self, remaining: int | None) -> None:
        """A call was answered; ``remaining``: how many more the server will take for now."""
        self._size = min(self.bound, self._size + (1.0 if self._size < self._threshold else 1.0 / self._size))
        if remaining is not None:
            self._size = max(1.0, min(self._size, remaining))
        self._admit()

    @property
    def window(self) -> int:
        """Calls at once, for now."""
        return int(self._size)

    @property
    def pause_left(self) -> float:
        """Seconds until the next call may go."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    def _long_pause(self) -> LongPause:
        return LongPause(f"it asks to wait {self.pause_left:.0f} s, and no call waits longer than {PATIENCE_S:.0f} s")

    def _admit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.running < self.window:
            if self._waiting[0][1].done():  # cancelled
                heappop(self._waiting)
                continue
            if left := self.pause_left:
                self._timer = asyncio.get_running_loop().call_later(left, self._admit)
                return
            heappop(self._waiting)[1].set_result(None)
            self.running += 1
            self.line.moves()


def told_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a refusal asks to wait; None when it does not say, or says nothing usable."""
    if (milliseconds := seconds_in(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    said = headers.get("retry-after", "")
    if (seconds := seconds_in(said)) is not None:
        return seconds
    if (date := _date(said)) is not None:
        now = _date(headers.get("date", "")) or datetime.now(UTC)  # by the server's own clock, where it is known
        return max(0.0, (date - now).total_seconds())
    return used_up(headers)


def used_up(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a limit that is used up is reset; None when none is."""
    waits = [seconds_in(headers.get(reset, "")) for left, reset in LIMITS if _number(headers.get(left, "")) == 0]
    return max((wait for wait in waits if wait is not None), default=None)


def remaining_calls(headers: Mapping[str, str]) -> int | None:
    """Return how many calls the server will still take; None when it does not say."""
    found = [_number(headers.get(left, "")) for left, _ in LIMITS if "token" not in left]
    return min((int(number) for number in found if number is not None), default=None)


def seconds_in(text: str) -> float | None:
    """Read a span: ``7``, ``1.5``, ``6m0s``, ``20ms``, seconds since 1970, or an ISO date.

    >>> seconds_in("1m30.5s"), seconds_in("20ms"), seconds_in("7"), seconds_in("soon")
    (90.5, 0.02, 7.0, None)
    """
    text = text.strip()
    if (number := _number(text)) is not None:
        return number if number < EPOCH else max(0.0, number - time.time())
    if text and (found := _SPAN.fullmatch(text)):
        parts = (float(part or 0) for part in found.groups())
        return sum(part * unit for part, unit in zip(parts, (86400, 3600, 60, 1, 0.001), strict=True))
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time()) if date.tzinfo else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def _date(text: str) -> datetime | None:
    """Read an HTTP date."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
