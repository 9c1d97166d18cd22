"""The engine interface over engine actors, for use inside a synchronous actor's ``asyncio.run``."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayTaskError

from rl_agents.inference.actor import Answer, Request
from rl_agents.inference.base import Completion, EngineError, RequestRefused, Sampling

#: Engines that a request may fail on: a prompt that ends their process must not reach all of them.
MAX_ENGINES = 2
#: Concurrent exchanges with one engine; the older one returns as soon as the newer one arrives.
MAX_EXCHANGES = 2
#: Engines that a caller uses at least, if there are so many.
FEWEST = 8


@dataclass
class PendingCompletion:
    """A coroutine's wait for one completion; ``held_s`` is `EngineLink.held_s` at its start, None while unknown."""

    future: asyncio.Future[Completion]
    deadline: float
    held_s: float | None


@dataclass
class EngineLink:
    index: int
    handle: Any
    place: str = ""
    inbox: list[Request] = field(default_factory=list)
    waiters: dict[int, PendingCompletion] = field(default_factory=dict)
    pump: asyncio.Task[None] | None = None
    work: asyncio.Event = field(default_factory=asyncio.Event)
    #: It failed since `RemoteEngine.set_handles`, and gets no requests unless there is no other.
    failed: bool = False
    #: Seconds for which the engine has held back calls for new weights, as last reported; None: not reported yet.
    held_s: float | None = None

    def hear(self, held_s: float) -> None:
        """Note the engine's report of the seconds for which it held back calls; a new engine counts from 0."""
        for waiter in self.waiters.values():
            if waiter.held_s is None or held_s < waiter.held_s:
                waiter.held_s = held_s
        self.held_s = held_s

    def deadline(self, waiter: PendingCompletion) -> float:
        """Return when a call has waited too long, without the time in which the engine loads weights."""
        if self.held_s is None or waiter.held_s is None:
            return waiter.deadline
        return waiter.deadline + self.held_s - waiter.held_s

    @property
    def name(self) -> str:
        return f"engine {self.index} ({self.place or 'pid and node unknown'})"


class RemoteEngine:
    """Sends each request to the engine with the fewest outstanding ones, among those of `engines_of`."""

    def __init__(
        self, handles: Sequence[Any], caller: str = "", timeout_s: float = 120.0, place: tuple[int, int] = (0, 1),
        failed: Callable[[int, str], None] = lambda engine, event: None,
    ) -> None:  # fmt: skip
        """Use the actors ``handles`` (`InferenceGroup.handles`).

        Args:
            caller: stable name of the env runner. When it returns after a crash, its earlier requests are dropped.
                Empty: every instance is its own caller.
            timeout_s: maximum wait for one completion, in seconds, without the time in which a sync held it back.
            place: number of this caller, and number of callers, which share out many engines.
            failed: receives an engine's index and the event for each request that the engine failed in.
        """
        self._client_id = f"{caller or uuid.uuid4().hex}/{uuid.uuid4().hex}"
        self._timeout_s, self._place, self._failed = timeout_s, place, failed
        self._ids = itertools.count()
        self._links: list[EngineLink] = []
        self.set_handles(handles)

    def set_handles(self, handles: Sequence[Any]) -> None:
        """Use these actors from now on, after `InferenceGroup.restore` has brought those back that failed."""
        known = {link.handle: link for link in self._links}
        chosen = [(index, handles[index]) for index in engines_of(len(handles), *self._place)]
        self._links = [known.get(handle) or EngineLink(index, handle) for index, handle in chosen]
        for link in self._links:
            link.failed = False

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample a response to ``prompt_ids``; a request that an engine fails in goes to another one, unchanged.

        Raises:
            RequestRefused: the engine does not support the request; others would not either.
            EngineError: `MAX_ENGINES`, or all, died, failed, or did not answer within ``timeout_s``.
        """
        tried: list[int] = []
        while True:
            left = (link for link in self._links if link.index not in tried)
            link = min(left, key=lambda link: (link.failed, len(link.waiters)))
            try:
                return await self._ask(link, prompt_ids, sampling)
            except RequestRefused:
                raise
            except EngineError as error:
                link.failed = True
                self._failed(link.index, str(error))
                tried.append(link.index)
                if len(tried) == min(MAX_ENGINES, len(self._links)):
                    raise

    async def _ask(self, link: EngineLink, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        request_id = next(self._ids)
        link.waiters[request_id] = PendingCompletion(future, time.monotonic() + self._timeout_s, link.held_s)
        link.inbox.append((request_id, list(prompt_ids), sampling))
        if link.pump is None or link.pump.done() or link.pump.get_loop() is not asyncio.get_running_loop():
            link.work = asyncio.Event()
            link.pump = asyncio.create_task(self._pump(link))
        link.work.set()
        try:
            return await future
        finally:
            link.waiters.pop(request_id, None)

    def close(self) -> None:
        """Forget the actors; they belong to `InferenceGroup`."""
        for link in self._links:
            if link.pump is not None and not link.pump.done():
                link.pump.cancel()

    async def _pump(self, link: EngineLink) -> None:
        exchanges: set[asyncio.Future[Answer]] = set()
        try:
            await asyncio.sleep(0)  # coroutines that start together share the first call
            await self._identify(link)
            while link.waiters or link.inbox:
                if (link.inbox and len(exchanges) < MAX_EXCHANGES) or not exchanges:
                    requests, link.inbox = link.inbox, []
                    exchanges.add(asyncio.ensure_future(link.handle.serve_batch.remote(self._client_id, requests)))
                exchanges -= await self._step(link, exchanges)
        except Exception as error:  # no request may wait forever, whatever the error
            reason = f"failed in generate, {len(link.waiters)} requests outstanding: {brief(error)}"
            text = self._late(link) if isinstance(error, TimeoutError) else f"{link.name} {reason}"
            for request_id in list(link.waiters):
                self._deliver(link, request_id, EngineError(text))
            link.place, link.held_s = "", None
        finally:
            for exchange in exchanges:
                exchange.cancel()
            link.inbox.clear()

    async def _step(self, link: EngineLink, exchanges: set[asyncio.Future[Answer]]) -> set[Any]:
        link.work.clear()
        new_work = asyncio.ensure_future(link.work.wait())
        first = min(map(link.deadline, link.waiters.values()), default=time.monotonic())
        patience = max(0.01, first - time.monotonic())
        wanted: set[asyncio.Future[Any]] = {*exchanges, new_work}
        done, _ = await asyncio.wait(wanted, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        new_work.cancel()
        over = done - {new_work}
        for exchange in over:
            replies, held_s = exchange.result()
            link.hear(held_s)
            for request_id, reply in replies:
                result = type(reply)(f"{reply} [{link.name}]") if isinstance(reply, EngineError) else reply
                self._deliver(link, request_id, result)
        self._expire(link)
        if over:
            await asyncio.sleep(0)  # the answered coroutines' next requests share the next exchange
        return over

    def _deliver(self, link: EngineLink, request_id: int, result: Completion | EngineError) -> None:
        waiter = link.waiters.pop(request_id, None)
        if waiter is None or waiter.future.done():
            return
        if isinstance(result, EngineError):
            waiter.future.set_exception(result)
        else:
            waiter.future.set_result(result)

    def _expire(self, link: EngineLink) -> None:
        now, text = time.monotonic(), self._late(link)
        for request_id in [key for key, waiter in link.waiters.items() if link.deadline(waiter) <= now]:
            self._deliver(link, request_id, EngineError(text))

    def _late(self, link: EngineLink) -> str:
        count = len(link.waiters)
        return f"{link.name} did not answer generate within {self._timeout_s:g} s, {count} requests outstanding"

    async def _identify(self, link: EngineLink) -> None:
        """Ask once where the engine runs, for error messages, and how long it has held back calls so far."""
        if not link.place:
            link.place, held_s = await asyncio.wait_for(link.handle.place.remote(), self._timeout_s)
            link.hear(held_s)


def engines_of(engines: int, caller: int, callers: int) -> list[int]:
    """Return the engines that one of several callers uses: twice its share, at least `FEWEST`, at most all.

    Every engine in use costs a caller an exchange per second, however few requests it has. The engines of neighbors
    overlap by half, so that load moves away from engines that are slow or dead.
    """
    count, first = max(FEWEST, math.ceil(2 * engines / callers)), caller * engines // callers
    return [(first + number) % engines for number in range(min(engines, count))]


def brief(error: Exception) -> str:
    """Return the most informative line of an error: the first of Ray's own errors, the last of a traceback."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1 if isinstance(error, RayTaskError) else 0].strip()}"
