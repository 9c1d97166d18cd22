"""The engines and env runners of a run: started together, given new weights together, and all of a batch collected.

What was asked for, episodes or siblings at a state, comes back whole, whoever dies on the way.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rl_agents.core.learner_group import AgentLearnerGroup
from rl_agents.core.resources import first_engine_bundle, node_share
from rl_agents.data.tasks import SEARCH, stream_seed
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.engines.base import EngineError, StreamingEngine
from rl_agents.engines.group import InferenceGroup
from rl_agents.engines.select import build_engine, run_engine
from rl_agents.errors import EpisodesFail, InputError
from rl_agents.pool.store import PoolSink
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.branching_check import Reached
from rl_agents.rollout.env_runner import TextEnvRunner
from rl_agents.rollout.recording import MAX_ATTEMPTS, Recorder

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
#: Tasks on which a search's way back to a state is checked before it begins.
BRANCHING_TASKS = 3


class RolloutWorkers:
    """Whoever samples: env runners, and the engines that they ask for tokens.

    Attributes:
        engine: the engine in this process (local mode); else None.
        engine_group: the engine actors; None in local mode.
        env_runners: RLlib's group of actors, or its stand-in of local mode.
        collector: plays what is asked for on them.
        version: of the weights that the engines hold; None while they may hold others than the learners' last ones.
    """

    def __init__(self, config: Any, kind: str) -> None:
        """Start engines, then env runners (RLlib pins runner i to bundle i, where an engine without one could sit).

        Args:
            config: an `AgentConfig` with ``model_dir``.
            kind: of the engines, as `resolve_engine` says.
        """
        self._settings = config.agent
        self.engine: StreamingEngine | None = None
        self.engine_group: InferenceGroup | None = None
        self.version: int | None = None
        self._start_engines(config.model_dir, kind)
        if self.engine is not None:
            self.env_runners: Any = LocalRunner(config, self.engine)
        else:
            self.env_runners = EnvRunnerGroup(config=config, local_env_runner=False)
        self.collector = Collector(self.env_runners, self.engine_group, self._settings.sample_timeout_s)
        self.collector.connect()

    def _start_engines(self, model_dir: str, kind: str) -> None:
        settings = self._settings
        engine = run_engine(settings, model_dir, kind)
        if settings.num_env_runners == 0:
            self.engine = build_engine(engine)
        else:
            self.engine_group = InferenceGroup(
                engine,
                num_engines=settings.num_engines,
                first_bundle=first_engine_bundle(settings),
                num_gpus=settings.gpus_per_engine or None,
                resources=node_share(settings.rollout_nodes),
            )

    def check_branching(self, tasks: Sequence[str]) -> None:
        """Make sure that states of the first tasks can be reached again, on another env runner if there are several.

        Raises:
            InputError: they cannot.
        """
        seed = self._settings.seed
        specs = [
            EpisodeSpec(task, i, 0, stream_seed(seed, SEARCH, SEARCH, i))
            for i, task in enumerate(tasks[:BRANCHING_TASKS])
        ]
        reached = self.collector.check_branching(specs).answers
        if self._settings.num_env_runners > 1:
            self.collector.confirm_branching(reached)

    def sync(self, learners: AgentLearnerGroup, version: int) -> bool:
        """Give the engines the learners' weights; False when they have them already.

        Args:
            version: of the weights; every step that is sampled with them carries it.
        """
        if self.version == version:
            return False
        self.push(learners.export_weights(), version)
        return True

    def push(self, weights: Any, version: int) -> None:
        """Give the engines weights that the learners have exported, unless they have them already.

        Args:
            weights: packed, or a reference to them.
            version: see `sync`.
        """
        if self.version == version:
            return
        if self.engine_group is not None:
            try:
                self.engine_group.sync(weights, version, self._settings.engine_timeout_s)
            except EngineError as error:
                print(f"[rl_agents] {error}; restarting it", flush=True)
                self.engine_group.restore()
        else:
            packed = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.env_runners.local_env_runner.sync_engine(packed, version)
        self.version = version

    def stop_engines(self) -> None:
        """Free the engines; RLlib stops the env runners."""
        if self.engine_group is not None:
            self.engine_group.stop()
        if self.engine is not None:
            self.engine.close()


class LocalRunner:
    """The env runner in the driver's own process, in the place of RLlib's group of actors."""

    def __init__(self, config: Any, engine: Any) -> None:
        self.local_env_runner = TextEnvRunner(config=config, worker_index=0)
        self.local_env_runner.set_engine(engine)

    def num_remote_env_runners(self) -> int:
        return 0

    def stop(self) -> None:
        """Close the environments."""
        self.local_env_runner.stop()


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


class Collector:
    """Sends jobs to env runners and asks again, with the same seeds, for those that got lost."""

    def __init__(self, env_runner_group: Any, inference_group: InferenceGroup | None, timeout_s: float) -> None:
        self.group = env_runner_group
        self.inference = inference_group
        self.timeout_s = timeout_s
        self._lost = False
        #: Nobody wants answers any more.
        self.closed = False
        #: Gives every env runner what writes to the pool; None: nothing is recorded.
        self.recording: SetRecorder | None = None
        #: How often an env runner died while it called the environment of a task.
        self.deaths: Counter[str] = Counter()

    def collect(
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, *, record: bool = False
    ) -> Collected[Trajectory]:
        """Play all ``specs``; raises as `gather` does.

        Args:
            record: what is sampled is for training, and belongs in the pool.
        """
        first = self._first_attempt() if record else None
        jobs: dict[Hashable, EpisodeSpec] = {spec: spec for spec in specs}
        return self.gather(jobs, "sample", _failed_episode, temperature=temperature, attempt=first)

    def expand(self, specs: Sequence[BranchSpec]) -> Collected[Expansion]:
        """Sample children at all states that ``specs`` name, for training; raises as `gather` does."""
        jobs: dict[Hashable, BranchSpec] = {spec.group_id: spec for spec in specs}
        return self.gather(jobs, "expand", _failed_expansion, attempt=self._first_attempt())

    def record(self, recording: SetRecorder) -> None:
        """Have all env runners record from now on, those that will be restarted, too."""
        self.recording = recording
        self.connect()

    def recorded(self) -> bool:
        """Wait until all that env runners recorded is on disk; False when one was lost that may have known more."""
        if self.group.num_remote_env_runners() == 0:
            return True  # one process, one writer, one order
        everybody = self.group.num_remote_env_runners() == len(self.group.healthy_env_runner_ids())
        lost, self._lost = self._lost, False
        results = self.group._worker_manager.foreach_actor(FlushRecorder(FLUSH_S), timeout_seconds=2 * FLUSH_S)
        answers = [result.ok and result.get() for result in results]
        return everybody and not lost and bool(answers) and all(answers)

    def _first_attempt(self) -> int | None:
        return None if self.recording is None else self.recording.resumes * MAX_ATTEMPTS

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
            method: of the runner; takes a list of jobs and ``options`` and returns something with ``by_job()``,
                ``engine_errors`` and ``input_error``.
            give_up: the answer to a job of a task in which env runners die, from the job and the cause.
            first: which env runner gets the first group; the next group goes to the next one.

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
                self._restore(result.events)
                found = self._note_deaths()
                done.update({n: give_up(j, DIED) for n, j in missing.items() if self.deaths[_task(j)] >= MAX_DEATHS})
                self._check_deaths(len(done) - sum(self.deaths[_task(jobs[name])] >= MAX_DEATHS for name in done))
                fruitless = 0 if found or len(done) > before else fruitless + 1
            before = len(done)
            left = [job for name, job in jobs.items() if name not in done]
            for answers in self._round(RunnerCall(method, left, options), result.events, first) if left else ():
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

    def _note_deaths(self) -> bool:
        """Ask restarted env runners in which task their predecessors died; False when none did in any."""
        if self.group.num_remote_env_runners() == 0:
            return False
        results = self.group._worker_manager.foreach_actor(lost_task, timeout_seconds=RESTART_PATIENCE_S)
        tasks = [result.get() for result in results if result.ok and result.get()]
        self.deaths.update(tasks)
        return bool(tasks)

    def _check_deaths(self, completed: int) -> None:
        deadly = [task for task, count in self.deaths.items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")

    def _round(self, call: RunnerCall, events: list[str], first: int) -> list[Any]:
        """Send jobs out once and gather what comes back."""
        if self.group.num_remote_env_runners() == 0:
            return [call(self.group.local_env_runner)]
        return self._remote_round(call, events, first)

    def _remote_round(self, call: RunnerCall, events: list[str], first: int) -> list[Any]:
        manager = self.group._worker_manager
        ids = self.group.healthy_env_runner_ids()
        if not ids:
            events.append("no env runner is alive")
            return []
        first %= len(ids)
        ids = [*ids[first:], *ids[:first]]
        shares = split_groups(call.jobs, len(ids))
        busy = [(runner, share) for runner, share in zip(ids, shares, strict=True) if share]
        results = manager.foreach_actor(
            [RunnerCall(call.method, share, call.options) for _, share in busy],
            remote_actor_ids=[runner for runner, _ in busy],
            timeout_seconds=self.timeout_s,
        )
        answers = {result.actor_id: result.get() for result in results if result.ok}
        for runner, share in busy:
            if runner not in answers:
                self._replace(runner, len(share), events)
        return list(answers.values())

    def _replace(self, runner: int, jobs: int, events: list[str]) -> None:
        """RLlib keeps a runner that timed out and queues work behind it: kill it, so that Ray restarts it."""
        self._lost = True
        manager = self.group._worker_manager
        if runner in manager.healthy_actor_ids():
            events.append(f"env runner {runner} did not finish {jobs} jobs within {self.timeout_s:.0f} s")
            ray.kill(manager.actors()[runner], no_restart=False)
            manager.set_actor_state(runner, False)
        else:
            events.append(f"env runner {runner} died with {jobs} jobs")

    def _restore(self, events: list[str]) -> None:
        """Bring engines and then runners back, and give the runners the engines."""
        deadline = time.monotonic() + RESTART_PATIENCE_S
        if self.inference is not None:
            self.inference.restore()
        if self.group.num_remote_env_runners() == 0:
            return
        while (
            not self.group.probe_unhealthy_env_runners(timeout_seconds=10) and not self.group.healthy_env_runner_ids()
        ):
            if time.monotonic() > deadline:
                events.append(f"no env runner came back within {RESTART_PATIENCE_S:.0f} s")
                return
            time.sleep(1)
        self.connect()

    def connect(self) -> None:
        """Give every env runner the engines' handles, and what it records with."""
        if self.group.num_remote_env_runners() == 0:
            if self.recording is not None:
                self.recording(self.group.local_env_runner)
            return
        calls = [SetEngines(self.inference.handles())] if self.inference is not None else []
        for call in [*calls, *([] if self.recording is None else [self.recording])]:
            self.group._worker_manager.foreach_actor(call, timeout_seconds=RESTART_PATIENCE_S)


def _task(job: Any) -> str:
    task: str = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
    return task


def _failed_episode(spec: EpisodeSpec, cause: str) -> Trajectory:
    return Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause=cause, failed=True)


def _failed_expansion(spec: BranchSpec, cause: str) -> Expansion:
    return Expansion(spec.group_id, end_cause=cause, failed=True)


def lost_task(runner: Any) -> str:
    """Ask a runner; see `TextEnvRunner.lost_task`."""
    task: str = runner.lost_task()
    return task


def split_groups(jobs: Sequence[Any], shares: int) -> list[list[Any]]:
    """Deal whole groups out, so that siblings share their prompt's prefix in one engine."""
    groups: dict[int, list[Any]] = defaultdict(list)
    for job in jobs:
        groups[job.group_id].append(job)
    dealt: list[list[Any]] = [[] for _ in range(shares)]
    for index, group in enumerate(groups.values()):
        dealt[index % shares].extend(group)
    return dealt


class RunnerCall:
    """What an env runner is asked to do (a class, so that it travels small)."""

    def __init__(self, method: str, jobs: list[Any], options: Mapping[str, Any]) -> None:
        self.method, self.jobs, self.options = method, jobs, options

    def __call__(self, runner: Any) -> Any:
        return getattr(runner, self.method)(self.jobs, **self.options)


class SetRecorder:
    """Has a runner record what it samples; one that does so already stays as it is.

    Args:
        sink: makes what it writes to, in the runner's process, once for each pool.
        recorded: what had been sampled before a crash, by seed, or a reference to it.
        resumes: how often the run was resumed.
        pool: a name for what ``sink`` writes to, different for every opening of a pool.
    """

    def __init__(self, sink: Callable[[], PoolSink], recorded: Any, resumes: int, pool: str) -> None:
        self.sink, self.recorded, self.resumes, self.pool = sink, recorded, resumes, pool

    def __call__(self, runner: Any) -> None:
        before: Recorder | None = runner.recorder
        if before is not None and (before.pool, before.resumes) == (self.pool, self.resumes):
            return
        recorded = ray.get(self.recorded) if isinstance(self.recorded, ray.ObjectRef) else self.recorded
        sink = before.sink if before is not None and before.pool == self.pool else self.sink()
        runner.set_recorder(Recorder(sink, recorded, self.pool, self.resumes))


class FlushRecorder:
    """Has a runner wait until what it recorded is on disk."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def __call__(self, runner: Any) -> bool:
        on_disk: bool = runner.flush_recorder(self.timeout_s)
        return on_disk


class SetEngines:
    """Hands engine handles to a runner."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def __call__(self, runner: Any) -> None:
        runner.set_engines(self.handles)
