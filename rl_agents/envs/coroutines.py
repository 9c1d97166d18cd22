"""Coroutines of environments: run piece by piece, so that each piece can be guarded like a plain call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from rl_agents.queues import Deadline

T = TypeVar("T")
#: Seconds that a cancelled call has for its clean-up, before it is no longer awaited.
CANCEL_S = 1.0
#: A loop that comes so much later than it should has stood still.
LATE_S = 1.0
#: Runs one piece: (function, argument) -> what it returns.
RunPiece = Callable[[Callable[[Any], Any], Any], Any]


async def finished(answer: Any) -> Any:
    """Return what a function of an environment returned, or what it comes to where it is a coroutine function."""
    return await answer if isinstance(answer, Awaitable) else answer


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``change(answer)``; a coroutine that comes to it where the answer is one.

    So a wrapper passes on what the environment is: coroutines stay coroutines, plain functions plain.
    """
    return _then(answer, change) if isinstance(answer, Awaitable) else change(answer)


async def _then(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return await finished(change(await answer))


class Pieces:
    """An awaitable that runs another one, every piece between two of its waits by way of ``run``."""

    def __init__(self, awaitable: Awaitable[T], run: RunPiece) -> None:
        self._awaitable, self._run, self._left = awaitable, run, False

    def leave(self) -> None:
        """Have the next thing that is thrown into a wait end the other one, whatever it would make of it."""
        self._left = True

    def __await__(self) -> Generator[Any, Any, Any]:
        """See the class; what is thrown into a wait, such as a cancellation, goes on into the other one."""
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
    """Wait until ``task`` is done, or its time is over."""
    while not task.done() and not deadline.problem():
        await asyncio.wait({task}, timeout=deadline.pause)


async def within(deadline: Deadline, pieces: Pieces, awaitable: Awaitable[T]) -> T:
    """Await something that awaits ``pieces``, until its time is over.

    It is cancelled then, and `CANCEL_S` later left: a coroutine may swallow its cancellation. Where the loop stood
    still in the meantime, as a runner's does while its work is not fetched, it gets that time back, once.

    Raises:
        TimeoutError: the time is over.
        RuntimeError: it was cancelled, and not from here.
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
            task.exception()  # looked at, so that asyncio does not complain
