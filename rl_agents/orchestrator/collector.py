"""Collection of jobs from env runners, which completes even if runners or engines die.

`Exchanges`: batches of jobs are submitted to runners and fetched when they are done. With every runner one exchange is
in progress, which carries new batches there and finished ones back (`rl_agents.rollout.request_queue`). Some thread has
to fetch all the time, because a runner's event loop runs only during an exchange.

`FaultTolerance`: engines get the last weights again, at once if a runner reports that one failed. A restarted env
runner reports in which task's environment its predecessor died. It gets engines and recorder, and receives work again.
While other runners are alive, the wait for a lost one is at most `COME_BACK_S`, because before lost jobs run again, it
should be known whether a task kills its process.

`Collector.gather` submits all jobs and waits for all. Several threads may gather at once: the groups of a stream
(`rl_agents.orchestrator.streaming_rollouts`), and an evaluation alongside them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, Generic, TypeVar

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import EpisodesFail, InputError, RolloutError
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.orchestrator.env_runner_handles import (
    RunnerEngines,
    RunnerLost,
    Runners,
    SetRecorder,
    exchange,
    heard,
)
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.recording import MAX_ATTEMPTS
from rl_agents.rollout.request_queue import JobBatch

#: Maximum seconds of an exchange with a runner for which several callers wait, so that new batches reach it soon; and
#: with a runner for which one caller waits, so that it reports progress.
SLICE_S, REPORT_S = 0.1, 10.0
#: Seconds between two checks whether a `Company` is closed.
CLOSED_S = 0.5


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


class Exchanges:
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


#: Seconds to wait for lost runners while others are alive; a slower one joins later.
COME_BACK_S = 10.0
#: Seconds to wait for a lost runner if none is alive.
RESTART_PATIENCE_S = 120.0
#: Seconds for a restarted runner to report in which task its predecessor died.
ANSWER_S = 10.0
#: Deaths of env runners in one task after which its episodes fail; a single one may have another cause.
MAX_DEATHS = 2
#: Tasks that kill env runners, while nothing else is completed, after which a run ends.
MAX_DEADLY_TASKS = 3
DIED = "env_died: the environment ends its process (os._exit, a crash in C) or hangs in C"


class FaultTolerance:
    """Brings engines and env runners back.

    Attributes:
        recording: gives every env runner its recorder; None: nothing is recorded.
        deaths: number of env runners that died in a call of the environment of a task.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | RunnerEngines | None) -> None:
        """
        Args:
            inference: the engine actors, given to all runners, or the engines that are in their processes.
        """
        self.runners, self.inference = runners, inference
        self.recording: SetRecorder | None = None
        self.deaths: Counter[str] = Counter()
        #: Held while engines get weights or are brought back, and while runners get their handles.
        self.lock = threading.RLock()
        #: Held during the wait for lost runners, in which engines may get weights.
        self._returning = threading.RLock()
        self._missed: set[int] = set()
        #: When the last `restore` began.
        self._restored = -math.inf
        #: Engines that failed in requests of runners and were not looked at yet.
        self._failed: deque[tuple[int, str]] = deque()

    def connect(self) -> None:
        """Give every env runner the engines' handles and its recorder, before any work."""
        with self.lock:
            self._equip(self.runners.ids())

    def restore(self, events: list[str], since: float) -> None:
        """Bring engines and then runners back, unless another thread has begun that after the loss at ``since``.

        Args:
            events: receives a line with the runners that are not back in time.

        Raises:
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        with self._returning:
            if self._restored >= since:
                return
            self._restored = time.monotonic()
            self.restore_engines()
            self.welcome(COME_BACK_S)
            end = time.monotonic() + RESTART_PATIENCE_S - COME_BACK_S
            while self.runners.remote and not self.runners.ids() and time.monotonic() < end:
                self.welcome(1.0)
            events += self.overdue(COME_BACK_S if self.runners.ids() else RESTART_PATIENCE_S)

    def engine_failed(self, engine: int, event: str) -> None:
        """Bring an engine actor back at once, while runners continue with others (`restore_failed`)."""
        self._failed.append((engine, event))
        threading.Thread(target=self.restore_failed, name="restore-engines", daemon=True).start()

    def restore_failed(self) -> None:
        """Return when all engines that were reported are back; the next weights or rounds meet what does not come."""
        with self.lock, contextlib.suppress(Exception):
            if failed := dict(self._failed.popleft() for _ in range(len(self._failed))):
                print(f"[rl_agents] {'; '.join(failed.values())}; restoring it", flush=True)
                self.restore_engines(failed)

    def restore_engines(self, only: Collection[int] | None = None) -> None:
        """Bring engines (all, or ``only`` some actors) back with the last weights, and let runners use them."""
        if self.inference is None:
            return
        with self.lock:
            if isinstance(self.inference, RunnerEngines):
                self.inference.restore()
                return
            self.inference.restore(only)
            if self.runners.remote:
                self.runners.tell(self.runners.ids(), methodcaller("set_engines", self.inference.handles()))

    def look(self) -> None:
        """Admit lost runners that are back already, unless another thread is doing that."""
        if self.runners.absent() and self._returning.acquire(blocking=False):
            try:
                self.welcome(0.0)
            finally:
                self._returning.release()

    def welcome(self, wait_s: float) -> None:
        """Admit lost runners that are back, and note the tasks in whose environments they died.

        Args:
            wait_s: seconds to wait for all of them, except `overdue` ones while others are alive.
        """
        with self._returning:
            back = self.runners.come_back(wait_s, self._missed if self.runners.ids() else ())
            asked = {runner: self.runners.send(runner, methodcaller("lost_task")) for runner in back}
            with self.lock:
                self._equip(back)
            for runner, answer in heard(self.runners, asked, ANSWER_S).items():
                if isinstance(answer, RunnerLost):
                    self.runners.lose(runner, kill=False)
                elif answer:
                    self.deaths[answer] += 1
            self._missed &= set(self.runners.absent())

    def overdue(self, waited_s: float) -> list[str]:
        """Return a line with the runners that are still missing and were not reported before."""
        late = sorted(set(self.runners.absent()) - self._missed)
        self._missed |= set(late)
        others = "the others continue without it" if self.runners.ids() else "no env runner is alive"
        causes = "".join(f" ({cause})" for cause in dict.fromkeys(map(self.runners.causes.get, late)) if cause)
        names = ", ".join(map(str, late))
        return [f"env runner {names} is not back after {waited_s:.0f} s{causes}; {others}"] if late else []

    def _equip(self, runners: list[int]) -> None:
        if isinstance(self.inference, RunnerEngines):
            self.runners.tell(runners, self.inference.call())
        elif self.runners.remote and self.inference is not None:
            self.runners.tell(runners, methodcaller("set_engines", self.inference.handles()))
        if self.recording is not None:
            self.runners.tell(runners, self.recording)

    # --- tasks in which env runners die ------------------------------------------------------------------------

    def deadly(self, job: EpisodeSpec | BranchSpec) -> bool:
        task = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
        return self.deaths[task] >= MAX_DEATHS

    def check_deaths(self, completed: int) -> None:
        """Raise `EpisodesFail` if env runners die in several tasks and no other episode was ``completed``."""
        deadly = [task for task, count in self.deaths.copy().items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")


def failed_episode(spec: EpisodeSpec, cause: str) -> Trajectory:
    return Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause=cause, failed=True)


@dataclass(frozen=True)
class Company:
    """The relation of a `Collector.gather` to other jobs that share the env runners.

    Attributes:
        closed: whether the answers are no longer needed.
        completed: number of other jobs that are completed.
        tolerates: whether a user error of these answers may concern only them.
        lost: receives a line for each loss immediately.
    """

    closed: Callable[[], bool]
    completed: Callable[[], int]
    tolerates: Callable[[Any], bool]
    lost: Callable[[str], None]


A = TypeVar("A")

#: Consecutive rounds without a result after which a collection fails.
MAX_ROUNDS = 6
#: Seconds for the records of env runners to reach the disk, after which they answer in any case.
FLUSH_S = 60.0
#: Seconds for a runner to confirm. For one that hangs or is in a long call, the driver writes the records.
RECORDED_S = 5.0


@dataclass
class Collected(Generic[A]):
    """Result of one collection: one answer per job, in the order of the jobs.

    Attributes:
        resampled: jobs that were repeated because a runner or an engine was lost.
        events: one line per loss, for the log.
    """

    answers: list[A]
    resampled: int = 0
    events: list[str] = field(default_factory=list)


class Collector:
    """Sends jobs to env runners, and repeats lost ones with the same seeds.

    Attributes:
        closed: answers are no longer needed.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | RunnerEngines | None, timeout_s: float) -> None:
        """
        Args:
            inference: see `FaultTolerance`.
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
        """
        self.runners = runners
        self.fault_tolerance = FaultTolerance(runners, inference)
        self.exchanges = Exchanges(runners, timeout_s, self.fault_tolerance.engine_failed)
        self.closed = False
        #: Calls of `recorded` that env runners have not answered in time.
        self._silent: dict[int, Any] = {}

    # --- submit all, wait for all ------------------------------------------------------------------------------

    def collect(
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, *, record: bool = False,
        company: Company | None = None,
    ) -> Collected[Trajectory]:  # fmt: skip
        """Run all ``specs``; raises like `gather`.

        Args:
            record: write the samples to the pool, because they are for training.
            company: see `gather`.
        """
        first = self.first_attempt() if record else None
        jobs: dict[Hashable, EpisodeSpec] = {spec: spec for spec in specs}
        return self.gather(jobs, "sample", failed_episode, company, temperature=temperature, attempt=first)

    def expand(self, specs: Sequence[BranchSpec]) -> Collected[Expansion]:
        """Sample children at all states of ``specs``, for training; raises like `gather`."""
        jobs: dict[Hashable, BranchSpec] = {spec.group_id: spec for spec in specs}

        def give_up(spec: BranchSpec, cause: str) -> Expansion:
            return Expansion(spec.group_id, end_cause=cause, failed=True)

        return self.gather(jobs, "expand", give_up, attempt=self.first_attempt())

    def check_branching(self, specs: Sequence[EpisodeSpec]) -> None:
        """Check that states can be reached again; raises like `gather`."""
        self.gather({spec: spec for spec in specs}, "check_branching", lambda spec, cause: spec)

    def gather(
        self, jobs: Mapping[Hashable, Any], method: str, give_up: Callable[[Any, str], Any],
        company: Company | None = None, **options: Any,
    ) -> Collected[Any]:  # fmt: skip
        """Let env runners do all jobs.

        Args:
            jobs: by the name that answers carry; jobs with one ``group_id`` go to one runner.
            method: of `TextEnvRunner.exchange`; its answers have ``by_job()``, ``engine_errors`` and ``input_error``.
            give_up: (job, cause) -> the answer to a job of a task in which env runners die.
            company: jobs of other threads; if given, the least busy env runner gets the first group.

        Raises:
            InputError: a user error, such as a prompt longer than the context.
            EpisodesFail: env runners die in every task.
            RolloutError: jobs are still missing after several rounds without a result, or the collector or ``company``
                was closed by another thread.
        """
        self.fault_tolerance.look()
        deadly = self.fault_tolerance.deadly if company else lambda job: False
        done = {name: give_up(job, DIED) for name, job in jobs.items() if deadly(job)}
        result: Collected[Any] = Collected([])
        fruitless = before = deaths = reported = 0
        for number in itertools.count():
            if self.closed or (company and company.closed()):
                break
            if number:
                self._restore(jobs, done, give_up, result, company)
                if options.get("attempt") is not None:
                    options["attempt"] += 1
                blamed = self.fault_tolerance.deaths.copy().total() > deaths
                fruitless = 0 if blamed or len(done) > before else fruitless + 1
            if fruitless == MAX_ROUNDS:
                break
            before, deaths = len(done), self.fault_tolerance.deaths.copy().total()
            left = [job for name, job in jobs.items() if name not in done]
            for answers in self._round(method, left, options, result.events, company) if left else ():
                if answers.input_error and not (company and company.tolerates(answers)):
                    raise InputError(answers.input_error)
                # All requests that an engine loses with its process have the same error.
                result.events.extend(dict.fromkeys(answers.engine_errors))
                done.update(answers.by_job())
            if company:
                for event in result.events[reported:]:
                    company.lost(event)
            reported = len(result.events)
            if len(done) == len(jobs):
                result.answers = [done[name] for name in jobs]
                return result
        raise RolloutError(
            f"{len(jobs) - len(done)} of {len(jobs)} jobs missing after {MAX_ROUNDS} rounds; "
            f"last losses: {'; '.join(result.events[-3:]) or 'none reported'}"
        )

    def _restore(
        self, jobs: Mapping[Hashable, Any], done: dict[Hashable, Any], give_up: Callable[[Any, str], Any],
        result: Collected[Any], company: Company | None,
    ) -> None:  # fmt: skip
        """Restore lost runners and engines; give up jobs of tasks in which runners die. Raises like `gather`."""
        missing = {name: job for name, job in jobs.items() if name not in done}
        result.resampled += len(missing)
        self.fault_tolerance.restore(result.events, time.monotonic())
        done.update({name: give_up(job, DIED) for name, job in missing.items() if self.fault_tolerance.deadly(job)})
        others = company.completed() if company else 0
        self.fault_tolerance.check_deaths(others + sum(not self.fault_tolerance.deadly(jobs[name]) for name in done))

    def _round(
        self, method: str, jobs: Sequence[Any], options: Mapping[str, Any], events: list[str], company: Company | None
    ) -> list[Any]:
        """Send jobs once, a batch to every runner, and wait for all answers."""
        ids = self.runners.ids()
        if not ids:
            events.append(f"no env runner is alive (lost: {', '.join(map(str, self.runners.absent()))})")
            return []
        order = self.exchanges.least_busy(ids) if company else ids
        shares = zip(order, split_groups(jobs, len(ids)), strict=True)
        sizes = {
            self.exchanges.submit(runner, method, part, dict(options)): len(part) for runner, part in shares if part
        }
        numbers, answers = list(sizes), dict[int, Any]()
        progress = _Progress(len(jobs), time.monotonic(), REPORT_S)
        try:
            while left := [number for number in numbers if number not in answers]:
                answers |= self.exchanges.fetch(left, CLOSED_S if company else REPORT_S)
                if company and company.closed():
                    raise RolloutError("the rollouts were closed")
                if method == "sample" and not company:
                    done = sum(sizes[number] for number in answers) + self.exchanges.done(left)
                    progress.show("" if options.get("temperature") is None else "evaluation: ", done)
        except BaseException:
            self.exchanges.drop(numbers)
            raise
        events.extend(dict.fromkeys(a.event for a in map(answers.get, numbers) if isinstance(a, Lost)))
        return [answers[number] for number in numbers if not isinstance(answers[number], Lost)]

    # --- recording ---------------------------------------------------------------------------------------------

    @property
    def recording(self) -> SetRecorder | None:
        """The call that gives every env runner its recorder; None: nothing is recorded."""
        return self.fault_tolerance.recording

    def record(self, recording: SetRecorder) -> None:
        """Let all env runners record from now on, including those that will be restarted."""
        self.fault_tolerance.recording = recording
        self.fault_tolerance.connect()

    def recorded(self) -> bool:
        """Let env runners write all records; return whether they are on disk.

        False if a runner was lost that may have had more, or does not answer within `RECORDED_S`. Such a runner is in a
        long call or hangs, and its time limit replaces it in that case. It is not asked again until it has answered.
        """
        if not self.runners.remote:
            return True  # one process, one writer, one order
        ids, lost = self.runners.ids(), self.exchanges.lost_since()
        heard(self.runners, self._silent, 0.0)
        call = methodcaller("flush_recorder", FLUSH_S)
        asked = {runner: self.runners.send(runner, call) for runner in ids if runner not in self._silent}
        answers = heard(self.runners, asked, RECORDED_S)
        for runner in asked:
            print(
                f"[rl_agents] env runner {runner} did not confirm within {RECORDED_S:g} s that its calls are on disk; "
                f"the driver writes them. If it hangs, it is replaced (sample_timeout_s={self.exchanges.timeout_s:g})",
                flush=True,
            )
        self._silent |= asked
        for runner in [runner for runner, on_disk in answers.items() if isinstance(on_disk, RunnerLost)]:
            self.runners.lose(runner, kill=False)
        everyone = len(ids) == self.runners.remote == len(answers)
        return everyone and not lost and all(on_disk is True for on_disk in answers.values())

    def first_attempt(self) -> int | None:
        return None if self.recording is None else self.recording.resumes * MAX_ATTEMPTS


@dataclass
class _Progress:
    """Prints to stderr from time to time how many episodes of a slow model or agent are done."""

    jobs: int
    started: float
    next_s: float

    def show(self, kind: str, done: int) -> None:
        passed = time.monotonic() - self.started
        if passed >= self.next_s and done < self.jobs:
            line = f"[rl_agents] {kind}{done} of {self.jobs} episodes after {passed:.0f} s"
            print(line, file=sys.stderr, flush=True)
            self.next_s = passed + min(passed, 60.0)  # not a line every ten seconds of an hour


def split_groups(jobs: Sequence[Any], shares: int) -> list[list[Any]]:
    """Distribute whole groups, so that siblings share their prompt's prefix in one engine, and whole games."""
    groups: dict[int, list[Any]] = defaultdict(list)
    for job in jobs:
        groups[job.group_id - getattr(job, "seat", 0)].append(job)
    dealt: list[list[Any]] = [[] for _ in range(shares)]
    for index, group in enumerate(groups.values()):
        dealt[index % shares].extend(group)
    return dealt
