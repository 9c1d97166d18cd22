"""Collection of jobs from env runners, which completes even if runners or engines die.

`Collector.gather` submits all jobs (`rl_agents.orchestrator.runner_pump`), waits for all, and repeats lost ones
(`rl_agents.orchestrator.fault_tolerance`). Several threads may gather at once: the groups of a stream
(`rl_agents.orchestrator.streaming_rollouts`), and an evaluation alongside them.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Generic, TypeVar

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError, RolloutError
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners, SetRecorder, heard
from rl_agents.orchestrator.fault_tolerance import DIED, FaultTolerance
from rl_agents.orchestrator.runner_pump import REPORT_S, Lost, RunnerPump
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.recording import MAX_ATTEMPTS


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

#: Seconds between two checks whether a `Company` is closed.
CLOSED_S = 0.5
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

    def __init__(self, runners: Runners, inference: InferenceGroup | None, timeout_s: float) -> None:
        """
        Args:
            inference: see `FaultTolerance`.
            timeout_s: a runner that has work and completes none of it for that long is replaced, in seconds.
        """
        self.runners = runners
        self.fault_tolerance = FaultTolerance(runners, inference)
        self.pump = RunnerPump(runners, timeout_s, self.fault_tolerance.engine_failed)
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
        order = self.pump.least_busy(ids) if company else ids
        shares = zip(order, split_groups(jobs, len(ids)), strict=True)
        sizes = {self.pump.submit(runner, method, part, dict(options)): len(part) for runner, part in shares if part}
        numbers, answers = list(sizes), dict[int, Any]()
        progress = _Progress(len(jobs), time.monotonic(), REPORT_S)
        try:
            while left := [number for number in numbers if number not in answers]:
                answers |= self.pump.fetch(left, CLOSED_S if company else REPORT_S)
                if company and company.closed():
                    raise RolloutError("the rollouts were closed")
                if method == "sample" and not company:
                    done = sum(sizes[number] for number in answers) + self.pump.done(left)
                    progress.show("" if options.get("temperature") is None else "evaluation: ", done)
        except BaseException:
            self.pump.drop(numbers)
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
        ids, lost = self.runners.ids(), self.pump.lost_since()
        heard(self.runners, self._silent, 0.0)
        call = methodcaller("flush_recorder", FLUSH_S)
        asked = {runner: self.runners.send(runner, call) for runner in ids if runner not in self._silent}
        answers = heard(self.runners, asked, RECORDED_S)
        for runner in asked:
            print(
                f"[rl_agents] env runner {runner} did not confirm within {RECORDED_S:g} s that its calls are on disk; "
                f"the driver writes them. If it hangs, it is replaced (sample_timeout_s={self.pump.timeout_s:g})",
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
