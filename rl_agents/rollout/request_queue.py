"""Batches of work in progress on an env runner's event loop.

RLlib's env runner is a synchronous actor, and environments must be called in its main thread, which receives signals.
The event loop therefore runs only during a call of `RequestQueue.exchange`, which takes new batches, lets all batches
continue until enough are done, and returns those. Between two exchanges nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError

A = TypeVar("A")
#: The jobs of the batch in whose task this is read.
_jobs: ContextVar[list[asyncio.Future[Any]]] = ContextVar("jobs")


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Jobs that one env runner does concurrently and answers together.

    Attributes:
        number: unique among all batches of a runner.
        method: what to do with the jobs.
    """

    number: int
    method: str
    jobs: Sequence[Any] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Failures:
    """The part of a batch's answer about jobs without a result, which have to be repeated.

    Attributes:
        engine_errors: one line for each.
        input_error: a user error, which no retry fixes; else empty.
    """

    engine_errors: list[str] = field(default_factory=list)
    input_error: str = ""

    def note(self, error: BaseException) -> None:
        """Note why a job has no result; raise the error if it is neither an `EngineError` nor an `InputError`."""
        if isinstance(error, InputError):
            self.input_error = self.input_error or str(error)
        elif isinstance(error, EngineError):
            self.engine_errors.append(str(error) or type(error).__name__)
        else:
            raise error


async def gathered(jobs: Sequence[Coroutine[Any, Any, A]]) -> list[A | BaseException]:
    """Do a batch's jobs concurrently, so that `RequestQueue.in_progress` counts them; return the result of each."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    _jobs.get([]).extend(tasks)
    return await asyncio.gather(*tasks, return_exceptions=True)


class RequestQueue:
    def __init__(self, loop: asyncio.Runner, work: Callable[[JobBatch], Coroutine[Any, Any, Any]]) -> None:
        """All batches run on ``loop``.

        Args:
            work: does one batch and returns its answer; what it raises is raised by `exchange`.
        """
        self._loop, self._work = loop, work
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._jobs: dict[int, list[asyncio.Future[Any]]] = {}
        self._limit = asyncio.Timeout(None)

    def hurry(self) -> None:
        """Let an exchange in progress return as if its time were over, because its caller should know of something."""
        with contextlib.suppress(RuntimeError):  # it is over
            if self._limit.when() is not None:
                self._limit.reschedule(0.0)

    def in_progress(self) -> dict[int, int]:
        """Return the number of completed jobs of every batch that was not fetched."""
        return {number: sum(job.done() for job in self._jobs[number]) for number in self._tasks}

    def exchange(
        self, batches: Sequence[JobBatch] = (), wait_s: float | None = None, enough: int | None = None,
        drop: Collection[int] = (),
    ) -> dict[int, Any]:  # fmt: skip
        """Begin ``batches``, let all continue, and return the answers of completed ones by number.

        Args:
            wait_s: return after this time at the latest; None: wait until enough are done.
            enough: return as soon as this many are done; None: all.
            drop: numbers of batches to cancel.

        Raises:
            BaseException: raised by a batch; all other batches are canceled.
        """
        try:
            self._loop.run(self._advance(batches, wait_s, enough, drop))
            done = [number for number, task in self._tasks.items() if task.done()]
            return {number: self._tasks.pop(number).result() for number in done}
        except BaseException:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()
            raise

    def stop(self) -> None:
        """Cancel all batches, including dropped ones, and wait until they have released their resources."""
        self._tasks.clear()
        self._loop.run(_ended())

    async def _advance(
        self, batches: Sequence[JobBatch], wait_s: float | None, enough: int | None, drop: Collection[int]
    ) -> None:
        for number in drop:
            if number in self._tasks:
                self._tasks.pop(number).cancel()
        for batch in batches:
            context, jobs = copy_context(), list[asyncio.Future[Any]]()
            context.run(_jobs.set, jobs)
            self._jobs = {number: self._jobs[number] for number in self._tasks} | {batch.number: jobs}
            self._tasks[batch.number] = asyncio.create_task(self._work(batch), context=context)
        tasks = list(self._tasks.values())
        wanted = len(tasks) if enough is None else enough
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s) as self._limit:
                while running := [task for task in tasks if not task.done()]:
                    if len(tasks) - len(running) >= wanted:
                        return
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)


async def _ended() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
