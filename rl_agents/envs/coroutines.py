"""Coroutines of environments, run in pieces, so that each piece can be guarded like a plain call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from rl_agents.queues import Deadline

T = TypeVar("T")
#: Seconds for the clean-up of a canceled call; after them it is no longer awaited.
CANCEL_S = 1.0
#: A loop that is late by more seconds than this was blocked.
LATE_S = 1.0
#: Runs one piece: (function, argument) -> result.
RunPiece = Callable[[Callable[[Any], Any], Any], Any]


async def finished(answer: Any) -> Any:
    """Return the result of an environment's function, which may be a coroutine function."""
    return await answer if isinstance(answer, Awaitable) else answer


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``change(answer)``, or a coroutine that returns it if the answer is awaitable.

    So a wrapper of an environment has coroutine functions exactly where the environment has them.
    """
    return _then(answer, change) if isinstance(answer, Awaitable) else change(answer)


async def _then(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return await finished(change(await answer))


class Pieces:
    """An awaitable that runs another one: every piece between two of its waits is passed to ``run``."""

    def __init__(self, awaitable: Awaitable[T], run: RunPiece) -> None:
        self._awaitable, self._run, self._left = awaitable, run, False

    def leave(self) -> None:
        """Let the next exception that is thrown into a wait end the inner awaitable, even if it would handle it."""
        self._left = True

    def __await__(self) -> Generator[Any, Any, Any]:
        """See the class. Exceptions that are thrown into a wait, such as cancellations, are passed on."""
        pieces: Any = self._awaitable.__await__()
        go_on, value = pieces.send, None

        def piece(given: Any) -> tuple[bool, Any]:
            # A StopIteration must not pass through a generator that keeps a context.
            try:
                return False, go_on(given)
            except StopIteration as stop:
                return True, stop.value

        while True:
            done, shown = self._run(piece, value)
            if done:
                return shown
            try:
                go_on, value = pieces.send, (yield shown)
            except BaseException as error:
                if self._left:
                    with contextlib.suppress(BaseException):
                        pieces.close()
                    raise
                go_on, value = pieces.throw, error


async def over(task: asyncio.Future[Any], deadline: Deadline) -> None:
    """Wait until ``task`` is done or the deadline has passed."""
    while not task.done() and not deadline.problem():
        await asyncio.wait({task}, timeout=deadline.pause)


async def within(deadline: Deadline, pieces: Pieces, awaitable: Awaitable[T]) -> T:
    """Await ``awaitable``, which awaits ``pieces``, until the deadline.

    After the deadline it is canceled, and abandoned `CANCEL_S` later, because a coroutine may swallow its
    cancellation. If the loop was blocked in the meantime, as a runner's is while its work is not fetched, the deadline
    is extended by that time, once.

    Raises:
        TimeoutError: the deadline has passed.
        RuntimeError: it was canceled from elsewhere.
    """
    task: asyncio.Future[T] = asyncio.ensure_future(awaitable)
    try:
        await over(task, deadline)
        if not task.done() and not deadline.stuck and (late := -deadline.left) > LATE_S:
            deadline.extend(late + min(late, deadline.seconds))
            await over(task, deadline)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise RuntimeError("the environment cancelled its own call")
        return task.result()
    finally:
        if not task.done():
            await _ended(task, pieces)


async def _ended(task: asyncio.Future[Any], pieces: Pieces) -> None:
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=CANCEL_S)
    finally:
        if not task.done():
            pieces.leave()
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_S)
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
