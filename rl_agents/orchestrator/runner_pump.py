"""Batches of jobs that are submitted to env runners, and fetched when they are done.

With every runner one exchange is in progress, which carries new batches there and finished ones back
(`rl_agents.rollout.request_queue`). Some thread has to fetch all the time, because a runner's event loop runs only
during an exchange.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners, exchange
from rl_agents.rollout.request_queue import JobBatch

#: Maximum seconds of an exchange with a runner for which several callers wait, so that new batches reach it soon; and
#: with a runner for which one caller waits, so that it reports progress.
SLICE_S, REPORT_S = 0.1, 10.0


@dataclass(frozen=True)
class Lost:
    """The answer to a batch whose runner was lost; ``event`` describes the loss."""

    event: str


@dataclass
class _Link:
    """The state of one env runner.

    Attributes:
        inbox: batches that wait for the next exchange.
        outstanding: batches that the runner has, by number.
        dropped: numbers of batches to cancel.
        progress: completed jobs of each outstanding batch at the last answer.
        sent: the exchange in progress, or None.
        heard: time of the last answer, or of the first work after an idle time; moved forward by the time in which no
            thread fetched.
    """

    inbox: list[JobBatch] = field(default_factory=list)
    outstanding: dict[int, JobBatch] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    progress: dict[int, int] = field(default_factory=dict)
    sent: Any = None
    heard: float = 0.0

    def idle(self) -> bool:
        return not self.inbox and not self.outstanding


class RunnerPump:
    """The batches of all runners, and their answers.

    Attributes:
        shared: work is submitted at any time, so that no exchange may last long.
    """

    def __init__(self, runners: Runners, timeout_s: float, engine_failed: Callable[[int, str], None]) -> None:
        """
        Args:
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
            engine_failed: receives the index of an engine actor that failed in a runner's requests, and the event.
        """
        self.runners, self.timeout_s, self.engine_failed = runners, timeout_s, engine_failed
        self.shared, self.count = False, 0
        self._lost = False
        self._numbers = itertools.count()
        self._links: dict[int, _Link] = defaultdict(_Link)
        #: Time of the last fetch.
        self._looked = time.monotonic()
        self._answers: dict[int, Any] = {}
        #: Guards the tables above; notified when answers arrive, or when a thread stops waiting for runners.
        self._tables = threading.Condition(threading.RLock())
        #: A thread waits for runners; the others wait for its results.
        self._waiting = False

    def submit(self, runner: int, method: str, jobs: Sequence[Any], options: Mapping[str, Any]) -> int:
        """Send jobs to a runner as one batch; return the batch's number for `fetch`."""
        with self._tables:
            batch, link = JobBatch(next(self._numbers), method, jobs, options), self._links[runner]
            if link.idle():
                link.heard = time.monotonic()
            link.inbox.append(batch)
        return batch.number

    def fetch(self, numbers: Collection[int], wait_s: float) -> dict[int, Any]:
        """Let env runners continue; return the answers that have arrived, by batch, with `Lost` for lost batches.

        Args:
            numbers: batches that the caller waits for; returns as soon as there is one answer, or after ``wait_s``.
        """
        end = time.monotonic() + wait_s
        with self._tables:
            self._forgive()
            try:
                while True:
                    for runner, link in self._links.items():
                        self._send(runner, link, numbers)
                    found = {number: self._answers.pop(number) for number in numbers if number in self._answers}
                    sent = [link.sent for link in self._links.values() if link.sent is not None]
                    if found or not sent or time.monotonic() >= end:
                        return found
                    if self._waiting:
                        self._tables.wait(max(0.0, end - time.monotonic()))
                    else:
                        self._wait(sent, end)
            finally:
                self._tables.notify()  # another thread waits for runners from now on

    def _wait(self, sent: Sequence[Any], end: float) -> None:
        """Wait for runners without holding the lock, and take their answers."""
        patience, self._looked, self._waiting = self._patience(end), time.monotonic(), True
        self._tables.release()
        try:
            ready = self.runners.wait(sent, patience)
        finally:
            self._tables.acquire()
            self._waiting, self._looked = False, time.monotonic()
        for runner, link in list(self._links.items()):
            self._take(runner, link, ready)
        if self._answers:
            self._tables.notify_all()

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel these batches."""
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
        """Return the number of completed jobs of batches in progress, at the last answers of their runners."""
        with self._tables:
            return sum(link.progress.get(number, 0) for link in self._links.values() for number in numbers)

    def least_busy(self, runners: Sequence[int]) -> list[int]:
        """Return runners sorted by their number of jobs."""
        with self._tables:
            links = {runner: self._links[runner] for runner in runners}
            jobs = {r: sum(len(b.jobs) for b in (*link.inbox, *link.outstanding.values())) for r, link in links.items()}
        return sorted(runners, key=lambda runner: jobs[runner])

    def _send(self, runner: int, link: _Link, wanted: Collection[int]) -> None:
        if link.sent is not None or (link.idle() and not link.dropped):
            return
        batches, link.inbox = link.inbox, []
        dropped, link.dropped = link.dropped, []
        link.outstanding |= {batch.number: batch for batch in batches}
        alone = not self.shared and all(number in wanted for number in link.outstanding)
        wait_s, enough = (REPORT_S, None) if alone else (SLICE_S, 1)
        report = bool(self.runners.remote)
        call = partial(exchange, batches=batches, wait_s=wait_s, enough=enough, drop=dropped, report=report)
        link.sent = self.runners.send(runner, call)
        self.count += 1

    def _forgive(self) -> None:
        """Extend the runners' time limits by the time in which no thread fetched, so that their loops did not run."""
        if self._waiting:
            return
        now = time.monotonic()
        for link in self._links.values() if now - self._looked > SLICE_S else ():
            link.heard = min(now, link.heard + now - self._looked)
        self._looked = now

    def _patience(self, end: float) -> float:
        """Return the seconds until the caller's or a runner's time limit."""
        ends = [end]
        if self.runners.remote:
            ends += [link.heard + self.timeout_s for link in self._links.values() if not link.idle()]
        return max(0.0, min(ends) - time.monotonic())

    def _take(self, runner: int, link: _Link, ready: Collection[Any]) -> None:
        """Take the answers of an exchange; replace a runner that has died or completes nothing."""
        if link.sent is not None and link.sent in ready:
            try:
                answer = self.runners.answer(link.sent)
            except RunnerLost:
                self._replace(runner, link)
                return
            if isinstance(answer, str):
                self._replace(runner, link, "failed with", f": {answer}")
                return
            link.sent, (answers, link.progress, failures) = None, answer
            for engine, event in failures.items():
                self.engine_failed(engine, event)
            for number, answer in answers.items():
                if link.outstanding.pop(number, None) is not None:
                    self._answers[number] = answer
                    link.heard = time.monotonic()
            if len(link.progress) < len(link.outstanding):  # it was restarted in between, and has lost its batches
                self._replace(runner, link)
        # Also with new work only, because it may hang in a dropped batch.
        if not link.idle() and self.runners.remote and time.monotonic() >= link.heard + self.timeout_s:
            self._replace(runner, link, "did not finish", f" within {self.timeout_s:g} s (sample_timeout_s)")

    def _replace(self, runner: int, link: _Link, did: str = "died with", why: str = "") -> None:
        """Answer the batches of a lost runner; kill one that lives (``why`` it is lost), so that Ray restarts it."""
        self._lost = True
        batches = [*link.outstanding.values(), *link.inbox]
        jobs = sum(len(batch.jobs) for batch in batches)
        event = f"env runner {runner} {did} {jobs} jobs{why}"
        self.runners.lose(runner, kill=bool(why))
        self._links[runner] = _Link()
        self._answers |= {batch.number: Lost(event) for batch in batches}

    def lost_since(self) -> bool:
        with self._tables:
            lost, self._lost = self._lost, False
        return lost
