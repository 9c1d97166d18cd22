"""One event loop in a separate thread for calls to other servers, whose connections and limits outlive their callers.

Judges are called from the driver's thread, from an env runner's event loop, and from synchronous code. Connections
belong to one loop. With one loop per process they stay open between batches, and all callers share a server's limit.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from rl_agents.queues import QueueWait
from rl_agents.time_limits import interrupt

T = TypeVar("T")
_lock = threading.Lock()
#: By process id: a fork has none of its parent's threads.
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def begin(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start ``work`` in the background; canceling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Block until ``work`` is done and return its result; an interrupt of the caller cancels it.

    Raises:
        RuntimeError: called in the background loop, which would wait for itself.
    """
    if _running() is _loops.get(os.getpid(), False):
        work.close()
        raise RuntimeError("wait() in the background loop would never return; await instead")
    future = begin(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, which runs in the background, from any loop; canceling this cancels it."""
    if _running() is _loops.get(os.getpid()):
        return await work
    return await asyncio.wrap_future(begin(work))


def abandon_if_blocked(seconds: float = 1.0) -> None:
    """Begin a new loop if a user's code, such as ``time.sleep`` in a coroutine, blocks the present one."""
    loop = _loop()
    try:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(seconds)
    except TimeoutError:
        with _lock:
            del _loops[os.getpid()]
        for thread in threading.enumerate():
            if thread.name == f"servers {id(loop)}":
                interrupt(thread.ident)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits.

    Raises:
        RuntimeError: it waits.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} waits for something and cannot be run at once")


def settled(answer: Any) -> Any:
    """Return ``answer``, or the result of a coroutine, for callers that cannot await."""
    return wait(answer) if inspect.iscoroutine(answer) else answer


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all concurrently; the first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class SharedAnswers(Generic[T]):
    """A cache of answers that are requested once, even by concurrent callers; failures are not kept.

    Args:
        limit: most answers; the oldest are removed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._answers: dict[Hashable, tuple[Future[T], QueueWait]] = {}
        self._lock = threading.Lock()

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the answer for ``key``; a caller that stops waiting does not cancel it for others."""
        with self._lock:
            known = self._answers.get(key)
            if known is None:
                call = QueueWait()
                with call.used():  # not a part of this caller's call: others may wait for it too
                    future = begin(ask())
                self._answers[key] = future, call
                while len(self._answers) > self._limit:
                    del self._answers[next(iter(self._answers))]
            else:
                future, call = known
        if known is None:  # outside of the lock, which `_forget` takes, perhaps at once
            future.add_done_callback(lambda done: self._forget(key, done))
        waiting = asyncio.wrap_future(future)
        # Else asyncio logs it as never retrieved.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        with call.followed():
            return await asyncio.shield(waiting)

    def _forget(self, key: Hashable, done: Future[T]) -> None:
        """Remove a failure, even if all callers have stopped waiting."""
        if done.cancelled() or done.exception() is not None:
            with self._lock:
                if key in self._answers and self._answers[key][0] is done:
                    del self._answers[key]


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=f"servers {id(loop)}", daemon=True).start()
        return loop
