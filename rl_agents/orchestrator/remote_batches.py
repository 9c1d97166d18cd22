"""Batches to env runners and their answers back: with every runner one exchange is under way.

An exchange carries new batches there and finished ones back (`rl_agents.rollout.request_queue`). A runner's event loop
goes on only while one is under way, so somebody has to fetch all the time. Several may, in threads of their own: an
evaluation beside a stream, for one.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners
from rl_agents.orchestrator.runner_calls import Exchange
from rl_agents.rollout.request_queue import Batch

#: Longest exchange with a runner that several wait for: new batches reach it no later. With one that a single caller
#: waits for: it says how far it is.
SLICE_S, REPORT_S = 0.1, 10.0


@dataclass(frozen=True)
class Lost:
    """The answer to a batch whose runner was lost with it; ``event`` says how."""

    event: str


@dataclass
class _Link:
    """One env runner, seen from here.

    Attributes:
        inbox: batches that wait for the next exchange.
        outstanding: batches that are there, by their numbers.
        dropped: numbers of batches to be given up.
        progress: how many jobs of each of them were done when the runner was last heard.
        sent: the exchange that is under way; None: none is.
        heard: when an answer last came, or when the runner was last given work while it had none; later by the time
            in which nobody fetched.
    """

    inbox: list[Batch] = field(default_factory=list)
    outstanding: dict[int, Batch] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    progress: dict[int, int] = field(default_factory=dict)
    sent: Any = None
    heard: float = 0.0

    def idle(self) -> bool:
        return not self.inbox and not self.outstanding


class Exchanges:
    """Who has which batch, and what has come back.

    Attributes:
        shared: somebody submits work all the time: no exchange lasts long.
        count: exchanges so far.
    """

    def __init__(self, runners: Runners, timeout_s: float) -> None:
        """
        Args:
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
        """
        self.runners, self.timeout_s = runners, timeout_s
        self.shared, self.count = False, 0
        self._lost = False
        self._numbers = itertools.count()
        self._links: dict[int, _Link] = defaultdict(_Link)
        #: When somebody last asked for answers.
        self._looked = time.monotonic()
        self._answers: dict[int, Any] = {}
        # Guards the tables above; nobody waits while holding it.
        self._tables = threading.RLock()

    def submit(self, runner: int, method: str, jobs: Sequence[Any], options: Mapping[str, Any]) -> int:
        """Have a runner do jobs as one batch; return the batch's number, for `fetch`."""
        with self._tables:
            batch, link = Batch(next(self._numbers), method, jobs, options), self._links[runner]
            if link.idle():
                link.heard = time.monotonic()
            link.inbox.append(batch)
        return batch.number

    def fetch(self, numbers: Collection[int], wait_s: float, *, together: bool = False) -> dict[int, Any]:
        """Let env runners go on, and return the answers that have come, by batch; `Lost` for what was lost.

        Args:
            numbers: batches that the caller waits for; at least one answer is returned before ``wait_s`` is over.
            together: rather all that a runner has than the first.
        """
        end = time.monotonic() + wait_s
        self._forgive()
        while True:
            with self._tables:
                for runner, link in self._links.items():
                    self._send(runner, link, numbers, together=together)
                found = {number: self._answers.pop(number) for number in numbers if number in self._answers}
                sent = [link.sent for link in self._links.values() if link.sent is not None]
                patience, self._looked = self._patience(end), time.monotonic()
            if found or not sent or time.monotonic() >= end:
                return found
            ready = self.runners.wait(sent, patience)
            with self._tables:
                self._looked = time.monotonic()
                for runner, link in list(self._links.items()):
                    self._take(runner, link, ready)

    def drop(self, numbers: Collection[int]) -> None:
        """Nobody wants these batches any more: they are given up where they have begun."""
        with self._tables:
            for link in self._links.values():
                link.inbox = [batch for batch in link.inbox if batch.number not in numbers]
                there = [number for number in link.outstanding if number in numbers]
                link.dropped += there
                for number in there:
                    del link.outstanding[number]
            for number in numbers:
                self._answers.pop(number, None)

    def done(self, numbers: Collection[int]) -> int:
        """Return how many jobs of batches in progress were done when their runners were last heard."""
        with self._tables:
            return sum(link.progress.get(number, 0) for link in self._links.values() for number in numbers)

    def loads(self) -> dict[int, int]:
        """Return how many jobs every living runner has."""
        with self._tables:
            links = {runner: self._links[runner] for runner in self.runners.ids()}
            return {
                runner: sum(len(batch.jobs) for batch in (*link.inbox, *link.outstanding.values()))
                for runner, link in links.items()
            }

    def _send(self, runner: int, link: _Link, wanted: Collection[int], *, together: bool) -> None:
        """Begin an exchange where none is under way and there is something to give or to wait for."""
        if link.sent is not None or (link.idle() and not link.dropped):
            return
        batches, link.inbox = link.inbox, []
        dropped, link.dropped = link.dropped, []
        link.outstanding |= {batch.number: batch for batch in batches}
        alone = together and not self.shared and all(number in wanted for number in link.outstanding)
        call = Exchange(batches, REPORT_S if alone else SLICE_S, None if alone else 1, dropped)
        link.sent = self.runners.send(runner, call)
        self.count += 1

    def _forgive(self) -> None:
        """Time in which nobody fetched, but gave engines weights for one, is not the runners': they stood still."""
        with self._tables:
            now = time.monotonic()
            for link in self._links.values() if now - self._looked > SLICE_S else ():
                link.heard = min(now, link.heard + now - self._looked)

    def _patience(self, end: float) -> float:
        """Seconds until the caller's time is over, or that of a runner."""
        ends = [end]
        if self.runners.remote:
            ends += [link.heard + self.timeout_s for link in self._links.values() if not link.idle()]
        return max(0.0, min(ends) - time.monotonic())

    def _take(self, runner: int, link: _Link, ready: Collection[Any]) -> None:
        """Take what an exchange has brought; replace a runner that has died or brings nothing."""
        if link.sent is not None and link.sent in ready:
            try:
                answers, link.progress = self.runners.answer(link.sent)
            except RunnerLost:
                self._replace(runner, link, hangs=False)
                return
            link.sent = None
            for number, answer in answers.items():
                if link.outstanding.pop(number, None) is not None:
                    self._answers[number] = answer
                    link.heard = time.monotonic()
            if len(link.progress) < len(link.outstanding):  # it was restarted in between, and knows of nothing
                self._replace(runner, link, hangs=False)
        # Also while new work waits for it: it may hang in what nobody wants any more.
        if not link.idle() and self.runners.remote and time.monotonic() >= link.heard + self.timeout_s:
            self._replace(runner, link, hangs=True)

    def _replace(self, runner: int, link: _Link, *, hangs: bool) -> None:
        """Answer for a runner that was lost; kill one that hangs, so that Ray restarts it."""
        self._lost = True
        batches = [*link.outstanding.values(), *link.inbox]
        jobs = sum(len(batch.jobs) for batch in batches)
        event = f"env runner {runner} died with {jobs} jobs"
        if hangs:
            event = f"env runner {runner} did not finish {jobs} jobs within {self.timeout_s:g} s (sample_timeout_s)"
        self.runners.lose(runner, kill=hangs)
        self._links[runner] = _Link()
        self._answers |= {batch.number: Lost(event) for batch in batches}

    def lost_since(self) -> bool:
        """Whether a runner was lost since this was asked last."""
        with self._tables:
            lost, self._lost = self._lost, False
        return lost
