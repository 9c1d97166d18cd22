"""Collecting: jobs go to env runners and come back whole, whoever dies on the way.

There is one way for all data. Batches of jobs are submitted to runners and fetched when they are done
(`rl_agents.orchestrator.remote_batches`); who is lost is brought back (`rl_agents.orchestrator.fault_tolerance`).
`Collector.gather` submits all and waits for all. A stream (`rl_agents.orchestrator.dispatcher`) submits group after
group and fetches what is done. Both may go on at once, in threads of their own.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError, RolloutError
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners
from rl_agents.orchestrator.fault_tolerance import DIED, Losses, failed_episode
from rl_agents.orchestrator.remote_batches import REPORT_S, Exchanges, Lost
from rl_agents.orchestrator.runner_calls import FlushRecorder, SetRecorder
from rl_agents.orchestrator.runner_engines import RunnerEngines
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.branching_check import Reached
from rl_agents.rollout.recording import MAX_ATTEMPTS

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
        self._hear(self._silent, 0.0)
        call = FlushRecorder(FLUSH_S)
        asked = {runner: self.runners.send(runner, call) for runner in ids if runner not in self._silent}
        answers = self._hear(asked, RECORDED_S)
        for runner in asked:
            print(
                f"[rl_agents] env runner {runner} does not say within {RECORDED_S:g} s that its record is on disk: the "
                f"driver writes it; if it hangs, it is replaced (sample_timeout_s={self.exchanges.timeout_s:g})",
                flush=True,
            )
        self._silent |= asked
        for runner in [runner for runner, on_disk in answers.items() if on_disk is None]:
            self.runners.lose(runner, kill=False)
        return len(ids) == self.runners.remote and not lost and len(answers) == len(ids) and all(answers.values())

    def _hear(self, asked: dict[int, Any], wait_s: float) -> dict[int, bool | None]:
        """Return the answers that come in time, None of who has died, and take their calls out of ``asked``."""
        answers, end = dict[int, bool | None](), time.monotonic() + wait_s
        while asked and (ready := self.runners.wait(list(asked.values()), max(0.0, end - time.monotonic()))):
            for runner in [runner for runner, call in asked.items() if call in ready]:
                try:
                    answers[runner] = self.runners.answer(asked.pop(runner))
                except RunnerLost:
                    answers[runner] = None
        return answers

    def first_attempt(self) -> int | None:
        """Return what the first attempt at something is called in the pool; None: nothing is recorded."""
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
