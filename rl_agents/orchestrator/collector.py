"""Collecting: jobs go to env runners and come back whole, whoever dies on the way.

There is one way for all data. `Exchanges`: batches of jobs are submitted to runners and fetched when they are done.
With every runner one exchange is under way, which carries new batches there and finished ones back
(`rl_agents.rollout.request_queue`). A runner's event loop continues only while one is, so somebody has to fetch all the
time. Several may, in threads of their own: an evaluation alongside a stream, for one.

`Losses`: engines get the last weights again. An env runner that is back says in which task's environment its
predecessor died; it gets engines and recorder, and is asked for work again. Nobody waits for one runner while others
are alive, except for `COME_BACK_S`: before what was lost is run again, it should be known whether a task kills its
process.

`Collector.gather` submits all and waits for all. A stream (`rl_agents.orchestrator.streaming_rollouts`) submits group
after group and fetches what is done. Both may continue at once.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter, defaultdict
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
from rl_agents.rollout.branching_check import Reached
from rl_agents.rollout.recording import MAX_ATTEMPTS
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
        """Let env runners continue, and return the answers that have come, by batch; `Lost` for what was lost.

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
        with self._tables:
            links = {runner: self._links[runner] for runner in self.runners.ids()}
            return {
                runner: sum(len(batch.jobs) for batch in (*link.inbox, *link.outstanding.values()))
                for runner, link in links.items()
            }

    def _send(self, runner: int, link: _Link, wanted: Collection[int], *, together: bool) -> None:
        if link.sent is not None or (link.idle() and not link.dropped):
            return
        batches, link.inbox = link.inbox, []
        dropped, link.dropped = link.dropped, []
        link.outstanding |= {batch.number: batch for batch in batches}
        alone = together and not self.shared and all(number in wanted for number in link.outstanding)
        wait_s, enough = (REPORT_S, None) if alone else (SLICE_S, 1)
        call = partial(exchange, batches=batches, wait_s=wait_s, enough=enough, drop=dropped)
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
        with self._tables:
            lost, self._lost = self._lost, False
        return lost


#: For lost runners to come back while others are alive; who takes longer joins later.
COME_BACK_S = 10.0
#: For one to come back while none is alive.
RESTART_PATIENCE_S = 120.0
#: For a runner that is back to say in which task its predecessor died.
ANSWER_S = 10.0
#: Deaths of env runners in one task after which its episodes fail; one may be the machine's doing.
MAX_DEATHS = 2
#: Tasks that kill env runners, while nothing else is completed, after which a run ends.
MAX_DEADLY_TASKS = 3
DIED = "env_died: the environment ends its process (os._exit, a crash in C) or hangs in C"


class Losses:
    """Brings engines and env runners back.

    Attributes:
        recording: gives every env runner what writes to the pool; None: nothing is recorded.
        deaths: how often an env runner died while it called the environment of a task.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | RunnerEngines | None) -> None:
        """
        Args:
            inference: the engine actors, given to all runners, or the engines that are in their processes.
        """
        self.runners, self.inference = runners, inference
        self.recording: SetRecorder | None = None
        self.deaths: Counter[str] = Counter()
        self._missed: set[int] = set()
        self._restoring = threading.RLock()

    def connect(self) -> None:
        """Give every env runner the engines' handles, and what it records with, before it gets anything else to do."""
        with self._restoring:
            self._equip(self.runners.ids())

    def restore(self, events: list[str]) -> bool:
        """Bring engines and then runners back; return whether some died in environments.

        Args:
            events: gets a line that names the runners which are not back in time.

        Raises:
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        with self._restoring:
            self.restore_engines()
            blamed = self.welcome(COME_BACK_S)
            end = time.monotonic() + RESTART_PATIENCE_S - COME_BACK_S
            while self.runners.remote and not self.runners.ids() and time.monotonic() < end:
                blamed += self.welcome(1.0)
            events += self.overdue(COME_BACK_S if self.runners.ids() else RESTART_PATIENCE_S)
            return bool(blamed)

    def restore_engines(self) -> None:
        """Bring engines back with the last weights; runners learn of those that were replaced."""
        if self.inference is None:
            return
        with self._restoring:
            if isinstance(self.inference, RunnerEngines):
                self.inference.restore()
                return
            before = self.inference.handles()
            self.inference.restore()
            if self.runners.remote and self.inference.handles() != before:
                self.runners.tell(self.runners.ids(), methodcaller("set_engines", self.inference.handles()))

    def welcome(self, wait_s: float) -> list[str]:
        """Take lost runners in that are back; return the tasks in whose environments they died.

        Args:
            wait_s: for all of them, in seconds, without those that were `overdue` while others are alive; 0: only those
                that are back already.
        """
        with self._restoring:
            back = self.runners.come_back(wait_s, self._missed if self.runners.ids() else ())
            asked = {runner: self.runners.send(runner, methodcaller("lost_task")) for runner in back}
            self._equip(back)
            tasks = list[str]()
            for runner, answer in heard(self.runners, asked, ANSWER_S).items():
                if isinstance(answer, RunnerLost):
                    self.runners.lose(runner, kill=False)
                elif answer:
                    tasks.append(answer)
            self.deaths.update(tasks)
            self._missed &= set(self.runners.absent())
            return tasks

    def awaited(self) -> list[int]:
        return sorted(set(self.runners.absent()) - self._missed)

    def overdue(self, waited_s: float) -> list[str]:
        """Return a line that names the runners which are still away, each once."""
        late = self.awaited()
        self._missed |= set(late)
        others = "the others go on without it" if self.runners.ids() else "none is alive"
        return [f"env runner {', '.join(map(str, late))} is not back after {waited_s:.0f} s; {others}"] if late else []

    def _equip(self, runners: list[int]) -> None:
        if isinstance(self.inference, RunnerEngines):
            self.runners.tell(runners, self.inference.call())
        elif self.runners.remote and self.inference is not None:
            self.runners.tell(runners, methodcaller("set_engines", self.inference.handles()))
        if self.recording is not None:
            self.runners.tell(runners, self.recording)

    # --- tasks in which env runners die ------------------------------------------------------------------------

    def deadly(self, job: EpisodeSpec | BranchSpec | Reached) -> bool:
        task = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
        return self.deaths[task] >= MAX_DEATHS

    def check_deaths(self, completed: int) -> None:
        """Raise `EpisodesFail` when env runners die in several tasks and nothing else was ``completed``."""
        deadly = [task for task, count in self.deaths.items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")


def failed_episode(spec: EpisodeSpec, cause: str) -> Trajectory:
    return Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause=cause, failed=True)


A = TypeVar("A")

#: Rounds in a row that may bring nothing.
MAX_ROUNDS = 6
#: For what env runners recorded to reach the disk; who is told to wait for it answers then in any case.
FLUSH_S = 60.0
#: For a runner to say that it is done. One that is in a long call, or hangs, does not: the driver writes for it.
RECORDED_S = 5.0


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


class Collector:
    """Sends jobs to env runners and asks again, with the same seeds, for those that got lost.

    Attributes:
        exchanges: carry batches.
        losses: bring back who is lost.
        closed: nobody wants answers any more.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | RunnerEngines | None, timeout_s: float) -> None:
        """Begin.

        Args:
            inference: see `Losses`.
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
        """
        self.runners = runners
        self.exchanges, self.losses = Exchanges(runners, timeout_s), Losses(runners, inference)
        self.closed = False
        #: Questions of `recorded` that are under way to env runners which have not answered in time.
        self._silent: dict[int, Any] = {}

    # --- submit all, wait for all ------------------------------------------------------------------------------

    def collect(
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, *, record: bool = False
    ) -> Collected[Trajectory]:
        """Run all ``specs``; raises as `gather` does.

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
        if self.runners.absent():
            self.losses.welcome(0.0)
        done: dict[Hashable, Any] = {}
        result: Collected[Any] = Collected([])
        fruitless, before = 0, -1
        while fruitless < MAX_ROUNDS and not self.closed:
            missing = {name: job for name, job in jobs.items() if name not in done}
            if before >= 0:
                result.resampled += len(missing)
                if options.get("attempt") is not None:
                    options["attempt"] += 1
                found = self.losses.restore(result.events)
                done.update({name: give_up(job, DIED) for name, job in missing.items() if self.losses.deadly(job)})
                self.losses.check_deaths(len(done) - sum(self.losses.deadly(jobs[name]) for name in done))
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
        sizes = {
            self.exchanges.submit(runner, method, part, dict(options)): len(part) for runner, part in shares if part
        }
        numbers, answers = list(sizes), dict[int, Any]()
        progress = _Progress(len(jobs), time.monotonic(), REPORT_S)
        try:
            while left := [number for number in numbers if number not in answers]:
                answers |= self.exchanges.fetch(left, REPORT_S, together=True)
                if method == "sample":
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
        """What gives every env runner what writes to the pool; None: nothing is recorded."""
        return self.losses.recording

    def record(self, recording: SetRecorder) -> None:
        """Have all env runners record from now on, those that will be restarted, too."""
        self.losses.recording = recording
        self.losses.connect()

    def recorded(self) -> bool:
        """Have env runners write all that they recorded; return whether it is on disk.

        False where one was lost that may have known more, or does not answer within `RECORDED_S`. That one is in a long
        call, or hangs: then it is replaced by the limit on its work, as ever. Until it has answered, nobody waits for
        it here again.
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
                f"[rl_agents] env runner {runner} does not say within {RECORDED_S:g} s that its record is on disk: the "
                f"driver writes it; if it hangs, it is replaced (sample_timeout_s={self.exchanges.timeout_s:g})",
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
    """Says on stderr now and then how many episodes are done: a slow model or agent leaves people guessing."""

    jobs: int
    started: float
    next_s: float

    def show(self, kind: str, done: int) -> None:
        passed = time.monotonic() - self.started
        if passed >= self.next_s and done < self.jobs:
            line = f"[rl_agents] {kind}{done} of {self.jobs} episodes after {passed:.0f} s"
            print(line, file=sys.stderr, flush=True)
            self.next_s = passed + min(passed, 60.0)  # not a line every ten seconds of an hour


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
