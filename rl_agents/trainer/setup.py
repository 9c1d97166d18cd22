"""What a run consists of, and where it stands: `RunParts` starts all of it, counts, and stops all of it.

`rl_agents.trainer.training_step` plays and learns with it, `rl_agents.trainer.run_checkpoints` saves and restores it.

`make_pipeline` chooses who makes the batches, and whether they are made while the learners learn.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils import force_list

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.base import Memory
from rl_agents.data.failures import BadTasks
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.base import task_ids
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.inference.select import resolve_engine
from rl_agents.learner.learner_group import AgentLearnerGroup, start_learners
from rl_agents.orchestrator.async_rollouts import Ahead
from rl_agents.orchestrator.offline_dataset import Recorded
from rl_agents.orchestrator.rollout_batch import Demonstrations, Episodes, Place
from rl_agents.orchestrator.rollout_buffer import Given, Pipeline, Producer, Sampled
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.streaming_rollouts import Stream
from rl_agents.rewards.base import make_reward
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.trainer.algorithm_config import BaseAgentConfig
from rl_agents.trainer.checkpoint import Counters
from rl_agents.trainer.ray_init import join_session
from rl_agents.trainer.run_store import RunPool


def open_recorded(config: BaseAgentConfig) -> Recorded | None:
    """Return the sessions that the key ``pool`` names; None: it names none. Raises as `Recorded.open` does."""
    settings = config.agent
    if not settings.pool:
        return None
    shape = model_shape(read_config(config.model_dir))
    return Recorded.open(settings, ALGORITHMS[settings.algo], shape.vocabulary if shape else None)


def make_pipeline(
    config: BaseAgentConfig,
    tasks: Sequence[str],
    recorded: Recorded | None,
    workers: Callable[[], RolloutWorkers],
    learners: Callable[[], AgentLearnerGroup],
) -> Pipeline | Stream:
    """Return a run's pipeline.

    Args:
        tasks: of training.
        recorded: sessions to learn from; None: of other sources.
        workers, learners: see `Sampled`.
    """
    settings = config.agent
    source = ALGORITHMS[settings.algo].source
    sampled = Sampled(_episodes(config, tasks), workers, learners)
    if settings.stream and source == "rollouts" and recorded is None:
        return Stream(sampled, settings.iterations)
    producer: Producer = sampled
    if recorded is not None:
        producer = Given(recorded.next)
    elif source == "demonstrations":
        demonstrations = Demonstrations(settings, config.model_dir)
        producer = Given(lambda iteration, position: demonstrations.next(iteration))
    ahead = settings.lag and settings.num_env_runners and source == "rollouts"
    return (Ahead if ahead else Pipeline)(producer, settings.lag, settings.iterations)


def _episodes(config: BaseAgentConfig, tasks: Sequence[str]) -> Episodes:
    settings = config.agent
    return Episodes(settings, ALGORITHMS[settings.algo], make_reward(settings), tasks)


class RunParts(Algorithm):
    """Starts engines, env runners, learners and the pool, and stops them; knows where the run stands.

    Attributes:
        explorer: of a search.
        memory: what credit knows from earlier iterations.
    """

    settings: Settings
    policy_version: int
    place: Place
    explorer: Explorer | None
    memory: Memory | None

    def _setup_logdir(self) -> None:
        """Outside Tune there is no trial folder: the run folder is ours, ~/ray_results stays empty."""
        if self._storage is not None:
            super()._setup_logdir()

    def setup(self, config: Any) -> None:
        """Start engines, env runners and learners.

        Replaces RLlib's setup, which prepares connectors, spaces, replay buffers and evaluation runners that nothing
        here uses, and starts a Ray session even for a run without actors.
        """
        self.settings = settings = self.config.agent
        self.recipe = ALGORITHMS[settings.algo]
        self.kind, asked = resolve_engine(settings.engine)
        self.engine_description = settings.engine_choice or asked
        self.train_tasks = task_ids(settings.env, "train", settings.env_options)
        self.recorded = open_recorded(self.config)
        self.pipeline = make_pipeline(
            self.config, self.train_tasks, self.recorded, self._started_workers, lambda: self.learner_group
        )
        self.rollout_workers: RolloutWorkers | None = None
        self.pool: RunPool | None = None
        #: Of the run whose checkpoint was restored last; None: of none, the run begins.
        self._restored_pool: str | None = None
        self.last_trajectories: list[Trajectory] = []
        #: Steps that the last iteration learned from, by how many updates ago they were sampled.
        self.staleness: Counter[int] = Counter()
        #: False only while a training step can be left without a trace, that is, before its first optimizer step.
        self.learning = True
        join_session(settings)
        self.callbacks = [callback() for callback in force_list(self.config.callbacks_class)]
        self._begin_anew()
        if self.recipe.source != "demonstrations" and self.recorded is None:
            self._start_workers()
        self._set_up_metrics()
        self.learner_group = start_learners(self.config)  # while engines start
        try:
            self._await_workers()
        except BaseException:
            self.learner_group.abandon()
            raise

    def _begin_anew(self) -> None:
        """Set all that a checkpoint holds, but for the learners, to that of a run that has done nothing."""
        self.explorer = self._new_explorer()
        self.memory = self.recipe.memory(self.settings) if self.recipe.memory else None
        self._set_counters(Counters(0, 0, 0))

    def _new_explorer(self) -> Explorer | None:
        settings, states = self.settings, self.recipe.states
        if states is None:
            return None
        width, most = settings.tasks_per_iteration, settings.group_size
        return Explorer(settings, self.train_tasks, states(settings), width=width, most=most, seed=settings.seed)

    def _started_workers(self) -> RolloutWorkers:
        """Engines and env runners; where nobody plays for training the first evaluation starts them."""
        if self.rollout_workers is None:
            self._start_workers()
            self._await_workers()
        assert self.rollout_workers is not None
        return self.rollout_workers

    def _start_workers(self) -> None:
        """Start them; engines may need longer than this call."""
        self.rollout_workers = RolloutWorkers(self.config, self.kind)
        self.env_runner_group = self.rollout_workers.env_runners

    def _await_workers(self) -> None:
        """Wait until they can be asked; see that a search can go back to states."""
        if self.rollout_workers is None:
            return
        self.rollout_workers.await_start()
        if self.recipe.source == "search":
            self.rollout_workers.check_branching(self.train_tasks)

    def open_pool(self, path: Path) -> None:
        """Write what is sampled and learned from now on to the pool at ``path``; a resumed run goes on in its own.

        Raises:
            InputError: another process writes to it, or the file is no pool.
        """
        if not self.settings.save_pool or self.recipe.source == "demonstrations" or self.recorded is not None:
            return
        begun = path.exists()
        self.pool = RunPool(path, self.settings)
        if begun:
            self._resume_pool()
        else:
            self.pool.begin()
            self._disown()
            self._started_workers().collector.record(self.pool.recording({}))

    def _disown(self) -> bool:
        """Forget which sessions are remembered where those are of another run's pool; return whether they are."""
        assert self.pool is not None
        foreign = self._restored_pool not in (None, self.pool.id)
        if foreign and self.memory is not None:
            self.memory.disown()
        return foreign

    def _resume_pool(self) -> None:
        """Serve again what had been sampled after the checkpoint, unless that is of another run."""
        if self.pool is None:
            return
        self.pool.resumed(self.iteration)
        recorded = {} if self._disown() else self.pool.calls_since(self.pipeline.oldest())
        if self.settings.stream:  # what came after the checkpoint was sampled by weights that are not made again
            recorded = {seed: call for seed, call in recorded.items() if call.policy_version <= self.policy_version}
        self.pipeline.served = {call.policy_version for call in recorded.values()}
        if recorded:
            print(f"[rl_agents] {len(recorded)} recorded calls after the checkpoint are not sampled again", flush=True)
        self._started_workers().collector.record(self.pool.recording(recorded))

    def _set_counters(self, counters: Counters) -> None:
        self._iteration, self.policy_version = counters.iteration, counters.policy_version
        self._restored_pool = counters.pool
        self.place = Place(counters.task_position, BadTasks(dict(counters.left_out), Counter(counters.strikes)))
        self.pipeline.begin(counters.iteration, counters.policy_version, self.place, counters.in_flight)
        if self.explorer is not None:
            self.explorer.left_out = self.place.bad.left_out
        if self.rollout_workers is not None:
            self.rollout_workers.version = None
            self.rollout_workers.collector.losses.deaths |= Counter(counters.deaths)

    def cleanup(self) -> None:
        """Stop everything, in this order; what one of them raises is raised when all have had their turn."""
        self.pipeline.close()
        if self.rollout_workers is not None:
            self.rollout_workers.collector.closed = True
        with contextlib.ExitStack() as last_first:
            if self.rollout_workers is not None:
                last_first.callback(self.rollout_workers.stop_engines)
            if self.pool is not None:  # who goes on with the run waits for it
                last_first.callback(self.pool.close)
            last_first.callback(self.pipeline.join)
            last_first.callback(super().cleanup)
