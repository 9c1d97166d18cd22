"""Env runners as the collector sees them: a number each, calls that are sent and answered later, and losses.

There are RLlib's actors, and there is the one runner in the driver's own process (local mode), which has no time of its
own: what was sent to it is done when somebody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

#: What an env runner is asked: it is called with the runner.
Call = Callable[[Any], Any]
#: Seconds between two looks at who is back, while somebody waits.
PING_S = 1.0


class RunnerLost(Exception):
    """The runner that was asked has died."""


class Runners(Protocol):
    """All env runners of a run."""

    @property
    def remote(self) -> int:
        """Runners in all, dead ones, too; 0: there is only the one in this process."""

    def ids(self) -> list[int]:
        """Return the numbers of those that are alive."""

    def send(self, runner: int, call: Call) -> Any:
        """Ask a runner; the result stands for the answer, in `wait` and in `answer`."""

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        """Wait until one of ``sent`` is answered, or its runner dead; return all that are, none when time is over."""

    def answer(self, sent: Any) -> Any:
        """Return the answer; raises `RunnerLost`."""

    def lose(self, runner: int, *, kill: bool) -> None:
        """Ask a runner nothing until it is back; ``kill`` one that only hangs, so that it is restarted."""

    def tell(self, runners: Sequence[int], call: Call) -> None:
        """Have some make a call before anything that they are asked later; nobody waits for it."""

    def absent(self) -> list[int]:
        """Return the numbers of those that were lost and are not back."""

    def come_back(self, wait_s: float, late: Collection[int] = ()) -> list[int]:
        """Return those that were lost and are back; wait until all are, but for the ``late``, or the time is over."""


class RunnerActors:
    """RLlib's group of env runner actors."""

    def __init__(self, group: Any) -> None:
        self._group, self._manager = group, group._worker_manager
        #: To those that are away.
        self._pings: dict[int, Any] = {}

    @property
    def remote(self) -> int:
        count: int = self._group.num_remote_env_runners()
        return count

    def ids(self) -> list[int]:
        return list(self._group.healthy_env_runner_ids())

    def send(self, runner: int, call: Call) -> Any:
        return self._manager.actors()[runner].apply.remote(call)

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        ready, others = ray.wait(list(sent), timeout=timeout_s)
        return ready + ray.wait(others, num_returns=len(others), timeout=0)[0] if ready and others else ready

    def answer(self, sent: Any) -> Any:
        try:
            return ray.get(sent)
        except RayError as error:
            raise RunnerLost(str(error)) from error

    def lose(self, runner: int, *, kill: bool) -> None:
        if kill:
            ray.kill(self._manager.actors()[runner], no_restart=False)
        self._manager.set_actor_state(runner, False)

    def tell(self, runners: Sequence[int], call: Call) -> None:
        """See `Runners`; an actor does what it is asked in order."""
        for runner in runners:
            self.send(runner, call)

    def absent(self) -> list[int]:
        return [runner for runner in self._manager.actor_ids() if not self._manager.is_actor_healthy(runner)]

    def come_back(self, wait_s: float, late: Collection[int] = ()) -> list[int]:
        """See `Runners`. A ping is under way to everybody who is away: one who restarts answers it when it can."""
        end, back = time.monotonic() + wait_s, list[int]()
        while absent := self.absent():
            for runner in absent:
                if runner not in self._pings:
                    self._pings[runner] = self._manager.actors()[runner].ping.remote()
            before = len(back)
            left = max(0.0, end - time.monotonic())
            ready = ray.wait(list(self._pings.values()), timeout=min(left, PING_S))[0]
            for runner in [runner for runner, ping in self._pings.items() if ping in ready]:
                if self._answers(self._pings.pop(runner)):
                    self._manager.set_actor_state(runner, True)
                    back.append(runner)
            if time.monotonic() >= end or not set(self.absent()) - set(late):
                break
            if ready and len(back) == before:  # the call failed at once: Ray has yet to restart it
                time.sleep(min(left, PING_S))
        return back

    def _answers(self, ping: Any) -> bool:
        try:
            ray.get(ping)
        except RayError:
            return False
        return True


@dataclass(eq=False)
class _Later:
    """A call of the runner in this process, which is made when somebody waits for it."""

    call: Call
    done: bool = False
    value: Any = None


class RunnerHere:
    """The env runner in this process."""

    remote = 0

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def ids(self) -> list[int]:
        return [0]

    def send(self, runner: int, call: Call) -> Any:
        return _Later(call)

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        """Make the calls; what the runner raises is passed on, and nobody waits for that call again."""
        for later in sent:
            if not later.done:
                later.done = True
                later.value = later.call(self._runner)
        return list(sent)

    def answer(self, sent: Any) -> Any:
        """See `Runners`; lost is a call that was interrupted."""
        if sent.value is None:
            raise RunnerLost("interrupted")
        return sent.value

    def lose(self, runner: int, *, kill: bool) -> None:
        """It is where we are."""

    def tell(self, runners: Sequence[int], call: Call) -> None:
        call(self._runner)

    def absent(self) -> list[int]:
        """It is here."""
        return []

    def come_back(self, wait_s: float, late: Collection[int] = ()) -> list[int]:
        """It was never away."""
        return []


def runners_of(group: Any) -> Runners:
    """Return the runners of RLlib's group, or of its stand-in of local mode."""
    return RunnerActors(group) if group.num_remote_env_runners() else RunnerHere(group.local_env_runner)
