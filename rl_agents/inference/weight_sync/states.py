"""The order of the four calls of a weight transfer, as a state machine without any tensor in it.

    CLOSED --init--> READY --start--> STARTED --update--> UPDATED --finish--> READY
                                         update again: UPDATED
    any --failed--> BROKEN --start--> STARTED      (a whole update mends an engine that was left half-way)
    READY --sleep--> ASLEEP --wake--> READY      (level 1: the weights wait in the CPU's memory)
    READY --empty--> EMPTY                       (level 2: they are gone, and only a whole update brings others)
    ASLEEP, EMPTY --start--> STARTED
    any --close--> CLOSED

A transfer without a group (object store) begins in READY. Both ends keep one: the engine its own, and whoever drives
several engines one for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rl_agents.inference.base import EngineError


class State(StrEnum):
    """Where a weight transfer stands."""

    CLOSED = "closed"
    READY = "ready"
    STARTED = "started"
    UPDATED = "updated"
    BROKEN = "broken"
    ASLEEP = "asleep"
    EMPTY = "empty"


#: One call to an engine: ``init``, ``start``, ``update``, ``finish``, or ``close`` for vLLM's shutdown; what it brings.
Call = tuple[str, Mapping[str, Any]]

_NEXT: dict[tuple[State, str], State] = {
    (State.CLOSED, "init"): State.READY,
    (State.READY, "init"): State.READY,  # a group that lost a member is joined again
    (State.BROKEN, "init"): State.BROKEN,  # the model is still half-way
    (State.READY, "start"): State.STARTED,
    (State.BROKEN, "start"): State.STARTED,
    (State.STARTED, "update"): State.UPDATED,
    (State.UPDATED, "update"): State.UPDATED,
    (State.UPDATED, "finish"): State.READY,
    (State.READY, "sleep"): State.ASLEEP,
    (State.READY, "empty"): State.EMPTY,
    (State.ASLEEP, "wake"): State.READY,
    (State.ASLEEP, "init"): State.ASLEEP,
    (State.EMPTY, "init"): State.EMPTY,
    (State.ASLEEP, "start"): State.STARTED,
    (State.EMPTY, "start"): State.STARTED,
    (State.CLOSED, "close"): State.CLOSED,
    (State.READY, "close"): State.CLOSED,
    (State.BROKEN, "close"): State.BROKEN,
}
_WHY = {
    "init": "an update is under way; finish it first",
    "start": "an update is under way already; finish it first",
    "update": "no update was started",
    "finish": "nothing was sent since the update was started",
    "close": "an update is under way; finish it first",
    "sleep": "only an engine with whole weights that is awake goes to sleep",
    "empty": "only an engine with whole weights that is awake goes to sleep",
    "wake": "there is no sleep from which it could wake with its weights",
}


class TransferError(EngineError):
    """A weight transfer failed, or its calls came in the wrong order."""


class Machine:
    """Refuses calls that are out of order. ``init`` may be left out where nothing has to be joined."""

    def __init__(self, state: State = State.READY) -> None:
        self.state = state

    def check(self, call: str) -> None:
        """Refuse a call that has no place here.

        Raises:
            TransferError: which call, in which state, and why not.
        """
        if (self.state, call) not in _NEXT:
            why = "the transfer is not initialized" if self.state is State.CLOSED else _WHY[call]
            raise TransferError(f"{call} while the weight transfer is {self.state}: {why}")

    def done(self, call: str) -> None:
        """Move on: ``call`` has succeeded."""
        self.check(call)
        self.state = _NEXT[self.state, call]

    def failed(self, call: str) -> None:
        """``call`` has failed: from its start on, an update leaves the model half-way."""
        if call in ("start", "update", "finish") or self.state in (State.STARTED, State.UPDATED):
            self.state = State.BROKEN
