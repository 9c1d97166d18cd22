"""Collecting: jobs go to env runners and come back whole, whoever dies on the way.

There is one way for all data. Batches of jobs are submitted to runners; with every runner one exchange is under way,
which carries new batches there and finished ones back (`rl_agents.rollout.exchange`). `Collector.gather` submits all
and waits for all. A stream (`rl_agents.core.stream`) submits group after group and fetches what is done. Both may go on
at once, in threads of their own: an evaluation beside a stream, for one.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rl_agents.core.runner_calls import Exchange, FlushRecorder, SetEngines, SetRecorder, lost_task
from rl_agents.core.runners import RunnerLost, Runners
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.engines.group import InferenceGroup
from rl_agents.errors import EpisodesFail, InputError
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.branching_check import Reached
from rl_agents.rollout.exchange import Batch
from rl_agents.rollout.recording import MAX_ATTEMPTS

A = TypeVar("A")

MAX_ROUNDS = 6
RESTART_PATIENCE_S = 120.0
#: For what env runners recorded to reach the disk.
FLUSH_S = 60.0
#: Deaths of env runners in one task after which its episodes fail; one may be the machine's doing.
MAX_DEATHS = 2
#: Tasks that kill env runners, while nothing else is completed, after which a run ends.
MAX_DEADLY_TASKS = 3
DIED = "env_died: the environment ends its process (os._exit, a crash in C) or hangs in C"
#: Longest exchange with a runner that several wait for: new batches reach it no later.
SLICE_S = 0.1


@dataclass
class Collected(Generic[A]):
    """Result of one collection: one answer per job, in the order of the jobs.

    Attributes:
        resampled: jobs that had to be done again because a runner or an engine was lost.
        events: one line per loss, for the log.
    """

    answers: list[A]
    resampled: int = 0
    events: list[str] = field(default_factory=list)


class RolloutError(RuntimeError):
    """Jobs could not be completed although runners and engines were restarted."""


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
        sent: the exchange that is under way; None: none is.
        heard: when an answer last came, or when the runner was last given work while it had none; later by the time
            in which nobody fetched.
    """

    inbox: list[Batch] = field(default_factory=list)
    outstanding: dict[int, Batch] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    sent: Any = None
    heard: float = 0.0

    def idle(self) -> bool:
        return not self.inbox and not self.outstanding


class Collector:
    """Sends jobs to env runners and asks again, with the same seeds, for those that got lost."""

    def __init__(self, runners: Runners, inference: InferenceGroup | None, timeout_s: float) -> None:
        """Begin.

        Args:
            inference: the engine actors, given to all runners.
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
        """
        self.runners, self.inference, self.timeout_s = runners, inference, timeout_s
        self._lost = False
        #: Somebody submits work all the time: no exchange lasts long.
        self.shared = False
        #: Nobody wants answers any more.
        self.closed = False
        #: Gives every env runner what writes to the pool; None: nothing is recorded.
        self.recording: SetRecorder | None = None
        #: How often an env runner died while it called the environment of a task.
        self.deaths: Counter[str] = Counter()
        #: Exchanges so far.
        self.exchanges = 0
        self._numbers = itertools.count()
        self._links: dict[int, _Link] = defaultdict(_Link)
        #: When somebody last asked for answers.
        self._looked = time.monotonic()
        self._answers: dict[int, Any] = {}
        # Guards the tables above; nobody waits while holding it.
        self._tables = threading.RLock()
        self._restoring = threading.Lock()

    # --- submit and fetch --------------------------------------------------------------------------------------

    def submit(self, runner: int, method: str, jobs: Sequence[Any], options: Mapping[str, Any]) -> int:
        """Have a runner do jobs as one batch; return the batch's number, for `fetch`."""
        with self._tables:
            batch, link = Batch(next(self._numbers), method, jobs, options), self._links[runner]
            if link.idle():
                link.heard = time.monotonic()
            link.inbox.append(batch)
        return batch.number

    def fetch(self, numbers: Collection[int], wait_s: float | None = None) -> dict[int, Any]:
        """Let env runners go on, and return the answers that have come, by batch; `Lost` for what was lost.

        Args:
            numbers: batches that the caller waits for; at least one answer is returned before ``wait_s`` is over.
            wait_s: seconds; None: for ever, and rather for all that a runner has than for the first.
        """
        end = None if wait_s is None else time.monotonic() + wait_s
        self._forgive()
        while True:
            with self._tables:
                for runner, link in self._links.items():
                    self._send(runner, link, numbers, together=wait_s is None)
                found = {number: self._answers.pop(number) for number in numbers if number in self._answers}
                sent = [link.sent for link in self._links.values() if link.sent is not None]
                patience, self._looked = self._patience(end), time.monotonic()
            if found or not sent or (end is not None and time.monotonic() >= end):
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
        call = Exchange(batches, None if alone else SLICE_S, None if alone else 1, dropped)
        link.sent = self.runners.send(runner, call)
        self.exchanges += 1

    def _forgive(self) -> None:
        """Time in which nobody fetched, but gave engines weights for one, is not the runners': they stood still."""
        with self._tables:
            now = time.monotonic()
            for link in self._links.values() if now - self._looked > SLICE_S else ():
                link.heard = min(now, link.heard + now - self._looked)

    def _patience(self, end: float | None) -> float | None:
        """Seconds until the caller's time is over, or that of a runner."""
        ends = [] if end is None else [end]
        if self.runners.remote:
            ends += [link.heard + self.timeout_s for link in self._links.values() if not link.idle()]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _take(self, runner: int, link: _Link, ready: Collection[Any]) -> None:
        """Take what an exchange has brought; replace a runner that has died or brings nothing."""
        if link.sent is not None and link.sent in ready:
            try:
                answers, in_progress = self.runners.answer(link.sent)
            except RunnerLost:
                self._replace(runner, link, hangs=False)
                return
            link.sent = None
            for number, answer in answers.items():
                if link.outstanding.pop(number, None) is not None:
                    self._answers[number] = answer
                    link.heard = time.monotonic()
            if in_progress < len(link.outstanding):  # it was restarted in between, and knows of nothing
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
            event = f"env runner {runner} did not finish {jobs} jobs within {self.timeout_s:.0f} s"
        self.runners.lose(runner, kill=hangs)
        self._links[runner] = _Link()
        self._answers |= {batch.number: Lost(event) for batch in batches}

    # --- submit all, wait for all ------------------------------------------------------------------------------

    def collect(
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, *, record: bool = False
    ) -> Collected[Trajectory]:
        """Play all ``specs``; raises as `gather` does.

        Args:
            record: what is sampled is for training, and belongs in the pool.
        """
        first = self.first_attempt() if record else None
        jobs: dict[Hashable, EpisodeSpec] = {spec: spec for spec in specs}
        return self.gather(jobs, "sample", failed_episode, temperature=temperature, attempt=first)

    def expand(self, specs: Sequence[BranchSpec]) -> Collected[Expansion]:
        """Sample children at all states that ``specs`` name, for training; raises as `gather` does."""
        jobs: dict[Hashable, BranchSpec] = {spec.group_id: spec for spec in specs}
        return self.gather(jobs, "expand", _failed_expansion, attempt=self.first_attempt())

    def check_branching(self, specs: Sequence[EpisodeSpec]) -> Collected[Reached]:
        """Make sure that states can be reached again; return one state per spec."""
        return self.gather({spec: spec for spec in specs}, "check_branching", lambda spec, cause: Reached(spec, ""))

    def confirm_branching(self, reached: Sequence[Reached]) -> Collected[Reached]:
        """Make sure that what `check_branching` has reached is the same on another env runner."""
        jobs: dict[Hashable, Reached] = {state.spec: state for state in reached}
        return self.gather(jobs, "confirm_branching", lambda state, cause: state, first=1)

    def gather(
        self, jobs: Mapping[Hashable, Any], method: str, give_up: Callable[[Any, str], Any], first: int = 0,
        **options: Any,
    ) -> Collected[Any]:  # fmt: skip
        """Have env runners do all jobs.

        Args:
            jobs: what is asked for, by the name that answers carry; jobs with one ``group_id`` go to one runner.
            method: of `TextEnvRunner.exchange`; its answers have ``by_job()``, ``engine_errors`` and ``input_error``.
            give_up: the answer to a job of a task in which env runners die, from the job and the cause.
            first: which env runner gets the first group; the next group goes to the next one.
            options: of the method.

        Raises:
            InputError: a user error, such as a prompt longer than the context.
            EpisodesFail: env runners die in every task that they begin.
            RolloutError: some are still missing after several rounds that brought nothing; it names the last losses.
                Or the collector was ``closed`` in another thread.
        """
        done: dict[Hashable, Any] = {}
        result: Collected[Any] = Collected([])
        fruitless, before = 0, -1
        while fruitless < MAX_ROUNDS and not self.closed:
            missing = {name: job for name, job in jobs.items() if name not in done}
            if before >= 0:
                result.resampled += len(missing)
                if options.get("attempt") is not None:
                    options["attempt"] += 1
                found = self.restore(result.events)
                done.update({name: give_up(job, DIED) for name, job in missing.items() if self.deadly(job)})
                self.check_deaths(len(done) - sum(self.deadly(jobs[name]) for name in done))
                fruitless = 0 if found or len(done) > before else fruitless + 1
            before = len(done)
            left = [job for name, job in jobs.items() if name not in done]
            for answers in self._round(method, left, options, result.events, first) if left else ():
                if answers.input_error:
                    raise InputError(answers.input_error)
                # Every request that an engine loses with its process says the same.
                result.events.extend(dict.fromkeys(answers.engine_errors))
                done.update(answers.by_job())
            if len(done) == len(jobs):
                result.answers = [done[name] for name in jobs]
                return result
        raise RolloutError(
            f"{len(jobs) - len(done)} of {len(jobs)} jobs missing after {MAX_ROUNDS} rounds; "
            f"last losses: {'; '.join(result.events[-3:]) or 'none reported'}"
        )

    def _round(
        self, method: str, jobs: Sequence[Any], options: Mapping[str, Any], events: list[str], first: int
    ) -> list[Any]:
        """Send jobs out once, a batch to every runner, and wait for all that comes back."""
        ids = self.runners.ids()
        if not ids:
            events.append("no env runner is alive")
            return []
        first %= len(ids)
        shares = zip([*ids[first:], *ids[:first]], split_groups(jobs, len(ids)), strict=True)
        numbers = [self.submit(runner, method, share, dict(options)) for runner, share in shares if share]
        answers: dict[int, Any] = {}
        try:
            while len(answers) < len(numbers):
                answers |= self.fetch([number for number in numbers if number not in answers])
        except BaseException:
            self.drop(numbers)
            raise
        events.extend(dict.fromkeys(a.event for a in map(answers.get, numbers) if isinstance(a, Lost)))
        return [answers[number] for number in numbers if not isinstance(answers[number], Lost)]

    # --- losses ------------------------------------------------------------------------------------------------

    def restore(self, events: list[str]) -> bool:
        """Bring engines and then runners back, and connect them; return whether the lost died in environments."""
        with self._restoring:
            if self.inference is not None:
                self.inference.restore()
            if not self.runners.remote:
                return False
            if self.runners.come_back(RESTART_PATIENCE_S):
                self.connect()
            else:
                events.append(f"no env runner came back within {RESTART_PATIENCE_S:.0f} s")
            tasks = [task for task in self.runners.everybody(lost_task, RESTART_PATIENCE_S) if task]
            self.deaths.update(tasks)
            return bool(tasks)

    def deadly(self, job: Any) -> bool:
        """Whether env runners die in the job's task."""
        task = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
        return self.deaths[task] >= MAX_DEATHS

    def check_deaths(self, completed: int) -> None:
        """Raise `EpisodesFail` when env runners die in several tasks and nothing else was ``completed``."""
        deadly = [task for task, count in self.deaths.items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")

    def connect(self) -> None:
        """Give every env runner the engines' handles, and what it records with."""
        if self.runners.remote and self.inference is not None:
            self.runners.everybody(SetEngines(self.inference.handles()), RESTART_PATIENCE_S)
        if self.recording is not None:
            self.runners.everybody(self.recording, RESTART_PATIENCE_S)

    # --- recording ---------------------------------------------------------------------------------------------

    def record(self, recording: SetRecorder) -> None:
        """Have all env runners record from now on, those that will be restarted, too."""
        self.recording = recording
        self.connect()

    def recorded(self) -> bool:
        """Wait until all that env runners recorded is on disk; False when one was lost that may have known more."""
        if not self.runners.remote:
            return True  # one process, one writer, one order
        alive = len(self.runners.ids())
        with self._tables:  # a stream's thread may be losing one
            lost, self._lost = self._lost, False
        answers = self.runners.everybody(FlushRecorder(FLUSH_S), 2 * FLUSH_S)
        return alive == self.runners.remote and not lost and len(answers) == alive and all(answers)

    def first_attempt(self) -> int | None:
        """Return what the first attempt at something is called in the pool; None: nothing is recorded."""
        return None if self.recording is None else self.recording.resumes * MAX_ATTEMPTS


def failed_episode(spec: EpisodeSpec, cause: str) -> Trajectory:
    """Return the trajectory of an episode that could not be played."""
    return Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause=cause, failed=True)


def _failed_expansion(spec: BranchSpec, cause: str) -> Expansion:
    return Expansion(spec.group_id, end_cause=cause, failed=True)


def split_groups(jobs: Sequence[Any], shares: int) -> list[list[Any]]:
    """Deal whole groups out, so that siblings share their prompt's prefix in one engine."""
    groups: dict[int, list[Any]] = defaultdict(list)
    for job in jobs:
        groups[job.group_id].append(job)
    dealt: list[list[Any]] = [[] for _ in range(shares)]
    for index, group in enumerate(groups.values()):
        dealt[index % shares].extend(group)
    return dealt
