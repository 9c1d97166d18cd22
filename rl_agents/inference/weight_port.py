"""The engine's end of a weight transfer: vLLM's calls in their order, with sampling held in between.

    READY --start--> STARTED --update--> UPDATED --finish--> READY
                                 update again: UPDATED
    READY --sleep--> ASLEEP --start--> STARTED
    any failure from start to finish --> BROKEN --start--> STARTED   (a whole update mends what was left half-way)

``init`` joins a group between two updates. An engine left half-way by another one's death gives that update up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from rl_agents.inference.base import EngineError, Weights
from rl_agents.inference.weights import layout, untied, write

#: One call to an engine: ``init``, ``start``, ``update`` or ``finish``, and what it brings.
Call = tuple[str, Mapping[str, Any]]

#: vLLM's worker methods behind our calls.
METHODS = {
    "init": ("init_weight_transfer_engine", "init_info"),
    "start": ("start_weight_update", None),
    "update": ("update_weights", "update_info"),
    "finish": ("finish_weight_update", None),
}
ABANDON = "rl_abandon"


class State(StrEnum):
    READY = "ready"
    STARTED = "started"
    UPDATED = "updated"
    BROKEN = "broken"
    ASLEEP = "asleep"


HALF_WAY = (State.STARTED, State.UPDATED)
#: The states in which a call may come, and the one after it; None: the same.
ORDER: dict[str, tuple[tuple[State, ...], State | None]] = {
    "init": ((State.READY, State.BROKEN, State.ASLEEP), None),
    "start": ((State.READY, State.BROKEN, State.ASLEEP), State.STARTED),
    "update": (HALF_WAY, State.UPDATED),
    "finish": ((State.UPDATED,), State.READY),
    "sleep": ((State.READY,), State.ASLEEP),
}


class TransferError(EngineError):
    """A weight transfer failed, or its calls came in the wrong order."""


class Port:
    """One engine's transfer. After a failure the engine samples nothing until a whole update has arrived."""

    def __init__(self, host: Any, shared_file: bool) -> None:
        """Serve an engine.

        Args:
            host: `VLLMEngine`: how calls are held and let continue, its workers, its sleep.
            shared_file: its workers live in other processes, which tensors cannot reach.
        """
        self._host, self._shared_file = host, shared_file
        self.state, self._one_at_a_time = State.READY, asyncio.Lock()
        self._version = 0
        #: What sleeps, in the order in which it must wake: the cache needs room that an update still takes.
        self._sleeping: list[str] = []

    async def run(self, *calls: Call, version: int) -> None:
        """Make ``calls`` one after the other; a finished update is of ``version``.

        Raises:
            TransferError: a call is out of order, or vLLM refuses it; the message names it.
        """
        async with self._one_at_a_time:
            for name, payload in calls:
                await self._checked(name, payload, version)

    async def load(self, weights: Weights, version: int) -> None:
        """Replace all weights by ``weights``, in one update without a group, even if another one was under way.

        Raises:
            EngineError: vLLM cannot load them; they may be loaded in part then, and nothing is sampled until others
                are. Or running calls do not end in time, and nothing has changed.
        """
        async with self._one_at_a_time:  # the call that holds the lock may be about to finish
            await self._abandon()
        try:
            with self._payload(weights) as payload:
                await self.run(("start", {}), ("update", payload), ("finish", {}), version=version)
        except TransferError as error:
            raise EngineError(f"vLLM cannot load weights of version {version}: {error}") from error

    @contextlib.contextmanager
    def _payload(self, weights: Weights) -> Iterator[dict[str, Any]]:
        """Yield what the workers receive: tensors, or a file with them (`weight_receivers`)."""
        if not self._shared_file:
            yield {"rl_tensors": weights}
            return
        tensors = untied(weights)
        index, nbytes = layout(tensors)
        with file_in_memory() as path:
            write(tensors, index, np.memmap(path, dtype=np.uint8, mode="w+", shape=(nbytes,)))
            plain = [(entry.name, entry.dtype, entry.shape, entry.offset) for entry in index]
            yield {"rl_file": path, "index": plain}

    async def sleep(self, level: int) -> None:
        """Free the GPU for the learner; nothing is sampled until an update.

        Raises:
            TransferError: the engine has no whole weights, or sleeps already.
            EngineError: running calls do not end in time; the engine stays awake.
        """
        async with self._one_at_a_time:
            self._check("sleep")
            await self._host.hold(self._version)
            try:
                await self._host.sleep(level)
            except BaseException as error:
                # What it freed is not known, so that an update must come: and calls must not be held until then.
                self.state = State.BROKEN
                await self._host.give_up(f"the engine did not fall asleep: {_reason(error)}")
                raise
            self._sleeping = ["weights", "kv_cache"]
            self.state = State.ASLEEP

    def _check(self, name: str) -> None:
        """Refuse a call that has no place here.

        Raises:
            TransferError: which call, and in which state.
        """
        if name not in ORDER:
            raise TransferError(f"no call {name!r} in a weight transfer")
        if self.state not in ORDER[name][0]:
            raise TransferError(f"{name} while the weight transfer is {self.state}")

    async def _checked(self, name: str, payload: Mapping[str, Any], version: int) -> None:
        if name == "init":  # the sender starts afresh: another engine was lost while this one was half-way
            await self._abandon()
        self._check(name)
        if name == "start" and self.state is not State.ASLEEP:  # calls to one that sleeps are held already
            await self._host.hold(version)
        try:
            if name == "start":
                await self._wake_up("weights")
            method, argument = METHODS[name]
            await self._host.worker(method, **({argument: dict(payload)} if argument else {}))
            if name == "finish":
                await self._wake_up("kv_cache")
                await self._host.release(version)
                self._version = version
        except BaseException as error:
            problem = TransferError(f"{name} of version {version} failed: {_reason(error)}")
            if name != "init":
                await self._fail(f"vLLM cannot load weights of version {version}: {problem}")
            if isinstance(error, Exception):
                raise problem from error
            raise
        self.state = ORDER[name][1] or self.state

    async def _wake_up(self, tag: str) -> None:
        if tag in self._sleeping:
            await self._host.wake_up([tag])
            self._sleeping.remove(tag)

    async def _abandon(self) -> None:
        """Give up an update left half-way, if there is one; nothing is sampled then until a whole one has arrived."""
        if self.state in HALF_WAY:
            await self._fail("an update of the weights was given up")

    async def _fail(self, reason: str) -> None:
        self.state = State.BROKEN
        with contextlib.suppress(Exception):  # vLLM ends an update under way in no other way than by a call that fails
            await self._host.worker("update_weights", update_info={ABANDON: True})
        await self._host.give_up(reason)


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
    lines = str(error).strip().splitlines() or [repr(error)]
    return f"{type(error).__name__}: {lines[0]}"
