"""The engine's end of a weight transfer: vLLM's four calls in their order, with sampling held in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rl_agents.inference.base import EngineError, Weights
from rl_agents.inference.weight_sync.states import Call, Machine, State, TransferError
from rl_agents.inference.weights import layout, untied, write

#: vLLM's worker methods behind our calls.
METHODS = {
    "init": ("init_weight_transfer_engine", "init_info"),
    "start": ("start_weight_update", None),
    "update": ("update_weights", "update_info"),
    "finish": ("finish_weight_update", None),
    "close": ("shutdown_weight_transfer_engine", None),
}
ABANDON = "rl_abandon"


class Host(Protocol):
    """An engine, as its port sees it."""

    async def hold(self, version: int) -> None:
        """Make no step from now on; or raise, and nothing has changed."""
        ...

    async def release(self, version: int) -> None:
        """Go on sampling, as ``version``; no cached prefix is used again."""
        ...

    async def give_up(self, reason: str) -> None:
        """In the place of `release`: answer calls with ``reason`` until a whole update has arrived."""
        ...

    async def worker(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of all workers between two steps."""
        ...

    async def sleep(self, level: int) -> None:
        """Free GPU memory: vLLM's sleep."""
        ...

    async def wake_up(self, tags: list[str]) -> None:
        """Take it again: vLLM's wake_up."""
        ...


class Port:
    """One engine's transfer. After a failure the engine samples nothing until a whole update has arrived."""

    def __init__(self, host: Host, shared_file: bool) -> None:
        """Serve ``host``; ``shared_file``: its workers live in other processes, which tensors cannot reach."""
        self._host, self._shared_file = host, shared_file
        self._machine, self._one_at_a_time = Machine(), asyncio.Lock()
        self._version = 0
        #: What sleeps, in the order in which it must wake: the cache needs room that an update still takes.
        self._sleeping: list[str] = []

    @property
    def state(self) -> State:
        """Where the transfer stands."""
        return self._machine.state

    async def run(self, calls: Sequence[Call], version: int) -> None:
        """Make ``calls`` one after the other; a finished update is of ``version``.

        Raises:
            TransferError: a call is out of order, or vLLM refuses it; the message names it.
        """
        async with self._one_at_a_time:
            for name, payload in calls:
                await self._checked(name, payload, version)

    async def load(self, weights: Weights, version: int) -> None:
        """Replace all weights by ``weights``, in one update without a group, whatever update was under way.

        Raises:
            EngineError: vLLM cannot load them; they may be loaded in part then, and nothing is sampled until others
                are. Or running calls do not end in time, and nothing has changed.
        """
        await self.abandon()
        try:
            if not self._shared_file:
                await self.run([("start", {}), ("update", {"rl_tensors": weights}), ("finish", {})], version)
                return
            tensors = untied(weights)
            index, nbytes = layout(tensors)
            with file_in_memory() as path:
                write(tensors, index, np.memmap(path, dtype=np.uint8, mode="w+", shape=(nbytes,)))
                plain = [(entry.name, entry.dtype, entry.shape, entry.offset) for entry in index]
                payload = {"rl_file": path, "index": plain}
                await self.run([("start", {}), ("update", payload), ("finish", {})], version)
        except TransferError as error:
            raise EngineError(f"vLLM cannot load weights of version {version}: {error}") from error

    async def sleep(self, level: int) -> None:
        """Free the GPU for the learner; nothing is sampled until `wake`, or an update, of which level 2 needs one.

        Raises:
            TransferError: the engine has no whole weights, or sleeps already.
            EngineError: running calls do not end in time; the engine stays awake.
        """
        call = "sleep" if level == 1 else "empty"
        async with self._one_at_a_time:
            self._machine.check(call)
            await self._host.hold(self._version)
            try:
                await self._host.sleep(level)
            except BaseException as error:
                # What it freed is not known, so that an update must come: and calls must not be held until then.
                self._machine.failed("start")
                await self._host.give_up(f"the engine did not fall asleep: {_reason(error)}")
                raise
            self._sleeping = ["weights", "kv_cache"]
            self._machine.done(call)

    async def wake(self) -> None:
        """Go on with the weights that fell asleep.

        Raises:
            TransferError: there are none.
        """
        async with self._one_at_a_time:
            self._machine.check("wake")
            await self._rouse("weights", "kv_cache")
            await self._host.release(self._version)
            self._machine.done("wake")

    async def abandon(self) -> None:
        """Give up an update left half-way, if there is one; nothing is sampled then until a whole one has arrived."""
        async with self._one_at_a_time:  # whoever holds the lock may be about to finish
            await self._abandon()

    async def _abandon(self) -> None:
        if self._machine.state in (State.STARTED, State.UPDATED):
            await self._fail("update", "an update of the weights was given up")

    async def _checked(self, name: str, payload: Mapping[str, Any], version: int) -> None:
        if name not in METHODS:
            raise TransferError(f"no call {name!r} in a weight transfer")
        if name == "init":  # the sender starts afresh: another engine was lost while this one was half-way
            await self._abandon()
        self._machine.check(name)
        if name == "start" and self._machine.state not in (State.ASLEEP, State.EMPTY):  # these are held already
            await self._host.hold(version)
        try:
            if name == "start":
                await self._rouse("weights")
            method, argument = METHODS[name]
            await self._host.worker(method, **({argument: dict(payload)} if argument else {}))
            if name == "finish":
                await self._rouse("kv_cache")
                await self._host.release(version)
                self._version = version
        except BaseException as error:
            problem = TransferError(f"{name} of version {version} failed: {_reason(error)}")
            await self._fail(name, f"vLLM cannot load weights of version {version}: {problem}")
            if isinstance(error, Exception):
                raise problem from error
            raise
        self._machine.done(name)

    async def _rouse(self, *tags: str) -> None:
        for tag in [tag for tag in tags if tag in self._sleeping]:
            await self._host.wake_up([tag])
            self._sleeping.remove(tag)

    async def _fail(self, call: str, reason: str) -> None:
        self._machine.failed(call)
        if self._machine.state is State.BROKEN and call in ("start", "update", "finish"):
            await self._forget()
            await self._host.give_up(reason)

    async def _forget(self) -> None:
        """Have vLLM forget an update under way: it ends one in no other way than by a call that fails."""
        with contextlib.suppress(Exception):  # that is how it answers; a dead worker is found by whoever calls next
            await self._host.worker("update_weights", update_info={ABANDON: True})


@contextlib.contextmanager
def file_in_memory() -> Iterator[str]:
    """Make an empty file that child processes can open by its path; a process that is killed leaves none behind."""
    if not hasattr(os, "memfd_create"):  # not Linux
        with tempfile.NamedTemporaryFile(prefix="rl-agents-sync-") as file:
            yield file.name
        return
    number = os.memfd_create("rl-agents-sync")
    try:
        yield f"/proc/{os.getpid()}/fd/{number}"
    finally:
        os.close(number)


def _reason(error: BaseException) -> str:
    """Return the line of an error that says most."""
    lines = str(error).strip().splitlines() or [repr(error)]
    return f"{type(error).__name__}: {lines[0]}"
