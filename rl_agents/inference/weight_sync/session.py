"""Who drives the transfer into several engines: nobody who dies or hangs there makes the driver wait beyond a deadline.

The collective runs on a daemon thread, the engines' calls have a deadline, and the first failure closes the group, so
that the survivors stop waiting too. What failed is tried again without those that were lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rl_agents.inference.weight_sync.links import Link, Plan
from rl_agents.inference.weight_sync.states import Call, Machine, State

#: Seconds between two looks at whether this end's part of a collective has failed.
LOOK_S = 0.1
#: Seconds that engines have after the deadline, once the group is closed: whoever only waited for another answers then.
GRACE_S = 5.0
#: Tries of an update that failed although no engine was lost.
TRIES = 2


@dataclass(frozen=True)
class Outcome:
    """What came of one engine's calls, and why.

    ``ok``; ``failed``: it lives; ``gone``: it lives, and what it was to load does not; ``dead``; ``late``.
    """

    kind: str
    text: str = ""

    @property
    def lost(self) -> bool:
        """Whether the engine can take no part any more."""
        return self.kind in ("dead", "late")


@dataclass(frozen=True)
class Step:
    """One phase of a transfer, as it went: for tables and logs."""

    phase: str
    seconds: float
    outcomes: Mapping[int, Outcome]


class Peers(Protocol):
    """The engines, however they are reached."""

    def send(self, engine: int, calls: Sequence[Call], version: int, packed: Any) -> Any:
        """Begin calls of an engine's port, or loading ``packed``; return what `wait` waits for."""
        ...

    def wait(self, pending: Mapping[int, Any], timeout_s: float) -> dict[int, Outcome]:
        """Return the outcomes that there are after at most ``timeout_s``, as soon as there is one."""
        ...


class TransferFailed(Exception):
    """A phase failed; ``outcomes`` by engine, ``here``: what went wrong at this end."""

    def __init__(self, outcomes: dict[int, Outcome], here: str = "") -> None:
        texts = [f"engine {i}: {o.kind} {o.text}" for i, o in outcomes.items() if o.kind != "ok"]
        super().__init__("; ".join(texts) or here)
        self.outcomes = outcomes


class Session:
    """The transfers of one run over one link."""

    def __init__(self, peers: Peers, link: Link, on_phase: Callable[[str], None] = lambda phase: None) -> None:
        """Drive ``peers``; ``on_phase`` hears each phase (``init``, ``update``) when it begins."""
        self._peers, self._link, self._on_phase = peers, link, on_phase
        self._machine = Machine(State.CLOSED)
        self.members: tuple[int, ...] = ()
        #: Who has finished the update under way: it is not sent to them again because another one failed.
        self._arrived: set[int] = set()
        #: How the last update went.
        self.steps: list[Step] = []

    def update(self, engines: Sequence[int], weights: Any, version: int, timeout_s: float) -> dict[int, Outcome]:
        """Give ``weights`` to ``engines``; without those that die or hang on the way, which are tried no more.

        Args:
            engines: who shall have them.
            weights: as the link takes them.
            version: of the weights.
            timeout_s: for one try; there are at most `TRIES` more than engines.

        Returns:
            What came of the engines that do not have them; empty when all do.
        """
        problems: dict[int, Outcome] = {}
        self.steps, tries = [], 0
        self._arrived.clear()
        while members := [engine for engine in engines if engine not in problems and engine not in self._arrived]:
            try:
                self._open(members, version, timeout_s)
                self._send(members, weights, version, timeout_s)
                return problems
            except TransferFailed as failure:
                self.close()
                lost = {engine: outcome for engine, outcome in failure.outcomes.items() if outcome.lost}
                problems |= lost
                tries += not lost
                if tries >= TRIES:
                    problems |= {i: o for i, o in failure.outcomes.items() if o.kind != "ok"}
                    left = [i for i in members if i not in problems and i not in self._arrived]
                    problems |= {i: Outcome("failed", str(failure)) for i in left}
        return problems

    def close(self) -> None:
        """Drop the group: the next update makes a new one."""
        self._link.close()
        self._machine, self.members = Machine(State.CLOSED), ()

    def _open(self, members: Sequence[int], version: int, timeout_s: float) -> None:
        if tuple(members) == self.members and self._machine.state is State.READY:
            return
        self.close()
        self._machine.check("init")
        plan = self._link.open(members, timeout_s)
        if plan is not None:
            self._round("init", plan, version, timeout_s)
        self._machine.done("init")
        self.members = tuple(members)

    def _send(self, members: Sequence[int], weights: Any, version: int, timeout_s: float) -> None:
        self._machine.done("start")
        try:
            self._round("update", self._link.update(members, weights, timeout_s), version, timeout_s)
        except TransferFailed as failure:  # one call to an engine is the whole update
            self._arrived |= {i for i, outcome in failure.outcomes.items() if outcome.kind == "ok"}
            raise
        self._machine.done("update")
        self._machine.done("finish")

    def _round(self, phase: str, plan: Plan, version: int, timeout_s: float) -> None:
        """Make all calls of ``plan`` and its collective at the same time.

        Raises:
            TransferFailed: one of them did not succeed.
        """
        started = time.monotonic()
        self._on_phase(phase)
        pending = {i: self._peers.send(i, calls, version, plan.packed) for i, calls in plan.calls.items()}
        collective = Collective(plan.alongside)
        outcomes: dict[int, Outcome] = {}
        deadline = started + timeout_s
        while pending and time.monotonic() < deadline + GRACE_S:
            outcomes |= self._peers.wait(pending, LOOK_S)
            pending = {i: call for i, call in pending.items() if i not in outcomes}
            failed = collective.error is not None or any(outcome.kind != "ok" for outcome in outcomes.values())
            if failed or time.monotonic() > deadline:
                self._link.close()  # the survivors wait for somebody who will not come
        for engine in pending:
            outcomes[engine] = Outcome("late", f"no answer within {timeout_s:g} s")
        failed = any(outcome.kind != "ok" for outcome in outcomes.values())
        if not failed:  # all have what was sent, so that this end is done, or will be at once
            collective.join(max(LOOK_S, started + timeout_s - time.monotonic()))
        self.steps.append(Step(phase, time.monotonic() - started, outcomes))
        if failed or not collective.done:
            here = repr(collective.error) if collective.error else f"the sender was not done within {timeout_s:g} s"
            raise TransferFailed(outcomes, here)


class Collective:
    """A function on a daemon thread: whoever hangs in it is left behind."""

    def __init__(self, function: Callable[[], None] | None) -> None:
        """Start ``function``; with None there is nothing to do."""
        self.error: Exception | None = None
        self.done = function is None  # and well
        self._thread: threading.Thread | None = None
        if function is not None:
            self._thread = threading.Thread(target=self._run, args=(function,), name="weights", daemon=True)
            self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has returned or raised."""
        return self.done or self.error is not None

    def join(self, timeout_s: float) -> None:
        """Wait for it."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, function: Callable[[], None]) -> None:
        try:
            function()
            self.done = True
        except Exception as error:
            self.error = error.with_traceback(None)  # which would keep a closed group alive


class NoLink:
    """For a session that has its own way of sending."""

    def open(self, members: Sequence[int], deadline_s: float) -> None:
        """Nothing to do."""

    def update(self, members: Sequence[int], weights: Any, deadline_s: float) -> Plan:
        """Nothing to send."""
        return Plan()

    def close(self) -> None:
        """Nothing to do."""


class RayPeers:
    """Engines in `EngineActor`s.

    Args:
        handle: returns the actor of an engine.
    """

    def __init__(self, handle: Callable[[int], Any]) -> None:
        self._handle = handle

    def send(self, engine: int, calls: Sequence[Call], version: int, packed: Any) -> Any:
        return self._handle(engine).transfer.remote(calls, version, packed)

    def wait(self, pending: Mapping[int, Any], timeout_s: float) -> dict[int, Outcome]:
        import ray

        calls = list(pending.values())
        ray.wait(calls, num_returns=1, timeout=timeout_s, fetch_local=False)
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)  # all that there are by now
        return {engine: outcome_of(call) for engine, call in pending.items() if call in done}


def outcome_of(reference: Any) -> Outcome:
    """Return what came of an actor's call that is over."""
    import ray
    from ray.exceptions import ObjectLostError, RayActorError

    from rl_agents.inference.client import brief

    try:
        ray.get(reference)
    except RayActorError as error:
        return Outcome("dead", brief(error))
    except ObjectLostError as error:  # of the call's argument: its cause is that error itself
        return Outcome("gone", brief(getattr(error, "cause", error)))
    except Exception as error:
        return Outcome("failed", brief(error))
    return Outcome("ok")
