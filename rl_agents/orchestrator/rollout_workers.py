"""The engines and env runners of a run: their start and their weight updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rl_agents.data.tasks import SEARCH, stream_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.inference.base import EngineError, StreamingEngine
from rl_agents.inference.engine_group import InferenceGroup, Packed
from rl_agents.inference.engines import ENGINES, build_engine, run_engine
from rl_agents.inference.weights import unpack
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import runners_of
from rl_agents.resources import first_engine_bundle, node_share, room_for_all
from rl_agents.rollout.env_runner import TextEnvRunner

#: Number of tasks on which branching is checked before a search.
BRANCHING_TASKS = 3


class EnvRunners(EnvRunnerGroup):
    """Env runner actors that receive their configuration by value (14 kB).

    With RLlib's reference Ray warns at each start that an actor cannot restart once the object is lost.
    """

    def add_workers(self, num_workers: int, validate: bool = False) -> None:
        self._remote_config_obj_ref = self._remote_config
        super().add_workers(num_workers, validate)


class RolloutWorkers:
    """The sampling side of a run: env runners and engines.

    Attributes:
        engine: the engine in this process (local mode), or None.
        engine_group: the engine actors, or None (local mode).
        env_runners: RLlib's group of actors, or `LocalRunner`.
        collector: runs jobs on them.
        version: of the engines' weights; None if it is unknown.
    """

    def __init__(self, config: Any, kind: str) -> None:
        """Start engines, then env runners, because RLlib pins runner i to bundle i, which an engine could take.

        Engines start slowly, so call `await_start` before anything else.

        Args:
            kind: of the engines, from `resolve_engine`.
        """
        self._settings, self._borrows = config.agent, ENGINES[kind].borrows
        self.engine: StreamingEngine | None = None
        self.engine_group: InferenceGroup | None = None
        self.version: int | None = None
        self._start_engines(config.model_dir, kind)
        if self.engine is not None:
            self.env_runners: Any = LocalRunner(config, self.engine)
        else:
            self.env_runners = EnvRunners(config=config, local_env_runner=False)
        timeout_s = self._settings.sample_timeout_s
        self.collector = Collector(runners_of(self.env_runners), self.engine_group, timeout_s)

    def await_start(self) -> None:
        """Wait for the engines, and give them to the env runners.

        Raises:
            EngineError: an engine does not start.
        """
        if self.engine_group is not None:
            self.engine_group.await_start()
        self.collector.fault_tolerance.connect()

    def _start_engines(self, model_dir: str, kind: str) -> None:
        settings = self._settings
        engine = run_engine(settings, model_dir, kind)
        if settings.num_env_runners == 0:
            self.engine = build_engine(engine)
        else:
            self.engine_group = InferenceGroup(
                engine, num_engines=settings.num_engines, first_bundle=first_engine_bundle(settings),
                num_gpus=settings.gpus_per_engine or None, resources=node_share(settings.rollout_nodes),
                wait=not room_for_all(settings),
            )  # fmt: skip

    def check_branching(self, tasks: Sequence[str]) -> None:
        """Check that states of the first tasks can be reached again.

        Raises:
            InputError: they cannot.
        """
        seed = self._settings.seed
        specs = [
            EpisodeSpec(task, i, 0, stream_seed(seed, SEARCH, SEARCH, i))
            for i, task in enumerate(tasks[:BRANCHING_TASKS])
        ]
        self.collector.check_branching(specs)

    def sync(self, learners: AgentLearnerGroup, version: int) -> bool:
        """Give the engines the learners' weights; return False if they have them already.

        Args:
            version: of the weights, which every step sampled with them carries.
        """
        if self.version == version:
            return False
        if self.engine is not None and self._borrows and learners.is_local:
            self.env_runners.local_env_runner.sync_engine(learners.lend_weights(), version)
            self.version = version
        else:
            self.push(learners.export_weights(), version)
        return True

    def rest(self) -> None:
        """Let engines free the GPU that learners use (``engine_sleep``); the next weights wake them."""
        if self._settings.engine_sleep and self.engine_group is not None:
            self.collector.fault_tolerance.restore_failed()
            try:
                self.engine_group.sleep(self._settings.engine_sleep)
            except EngineError as error:  # the learner continues in any case, and may fit nevertheless
                print(f"[rl_agents] {error}; its GPU memory may still be in use", flush=True)
            self.version = None

    def push(self, weights: Packed, version: int) -> None:
        """Give the engines exported weights, unless they have them already."""
        if self.version == version:
            return
        if self.engine_group is not None:
            with self.collector.fault_tolerance.lock:
                self.collector.fault_tolerance.restore_failed()
                try:
                    self.engine_group.push_weights(weights, version, self._settings.engine_timeout_s)
                except EngineError as error:
                    print(f"[rl_agents] {error}; restoring it", flush=True)
                    self.collector.fault_tolerance.restore_engines()
        else:
            packed = [ray.get(bucket) if isinstance(bucket, ray.ObjectRef) else bucket for bucket in weights]
            self.env_runners.local_env_runner.sync_engine(unpack(packed), version)
        self.version = version

    def stop_engines(self) -> None:
        if self.engine_group is not None:
            self.engine_group.stop()
        if self.engine is not None:
            self.engine.close()


class LocalRunner:
    """The env runner in the driver's own process, instead of RLlib's group of actors."""

    def __init__(self, config: Any, engine: Any) -> None:
        self.local_env_runner = TextEnvRunner(config=config, worker_index=0)
        self.local_env_runner.engine = engine

    def num_remote_env_runners(self) -> int:
        return 0

    def stop(self) -> None:
        self.local_env_runner.stop()
