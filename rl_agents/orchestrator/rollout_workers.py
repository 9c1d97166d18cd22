"""The engines and env runners of a run: started together, and given new weights together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
import torch
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rl_agents.data.tasks import SEARCH, stream_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.inference.base import EngineError, EngineSettings, StreamingEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.select import build_engine, choose_transfer, run_engine
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import RunnerEngines, runners_of
from rl_agents.resources import first_engine_bundle, node_share, room_for_all
from rl_agents.rollout.env_runner import TextEnvRunner

#: Tasks on which a search's way back to a state is checked before it begins.
BRANCHING_TASKS = 3


class EnvRunners(EnvRunnerGroup):
    """Env runner actors that receive their configuration by value (14 kB).

    RLlib passes a reference, and Ray then warns at each start that an actor cannot restart once the object is lost.
    """

    def add_workers(self, num_workers: int, validate: bool = False) -> None:
        self._remote_config_obj_ref = self._remote_config
        super().add_workers(num_workers, validate)


class RolloutWorkers:
    """What samples: env runners, and the engines that they ask for tokens.

    Attributes:
        engine: the engine in this process (local mode); else None.
        engine_group: the engine actors; None where the engines are in the env runners' processes.
        runner_engines: those (``placement=colocate``); else None.
        env_runners: RLlib's group of actors, or its stand-in of local mode.
        collector: runs what is asked for on them.
        version: of the weights that the engines hold; None while they may hold others than the learners' last ones.
    """

    def __init__(self, config: Any, kind: str) -> None:
        """Start engines, then env runners (RLlib pins runner i to bundle i, where an engine without one could sit).

        Engines, which take longest, may still be on their way: `await_start` comes before all else.

        Args:
            kind: of the engines, as `resolve_engine` says.
        """
        self._settings = config.agent
        self.engine: StreamingEngine | None = None
        self.engine_group: InferenceGroup | None = None
        self.runner_engines: RunnerEngines | None = None
        self.version: int | None = None
        engine = self._start_engines(config.model_dir, kind)
        if self.engine is not None:
            self.env_runners: Any = LocalRunner(config, self.engine)
        else:
            self.env_runners = EnvRunners(config=config, local_env_runner=False)
        runners = runners_of(self.env_runners)
        if self._settings.placement == "colocate":
            self.runner_engines = RunnerEngines(runners, engine)
        self.collector = Collector(runners, self.runner_engines or self.engine_group, self._settings.sample_timeout_s)
        if self.runner_engines is not None and self._settings.async_level:
            # New weights reach a runner between two exchanges, and must not wait for whole batches.
            self.collector.exchanges.shared = True

    def await_start(self) -> None:
        """Wait for the engines, and give them to the env runners.

        Raises:
            EngineError: an engine does not start.
        """
        if self.engine_group is not None:
            self.engine_group.await_start()
        if self.runner_engines is not None:
            self.runner_engines.await_start()
        self.collector.fault_tolerance.connect()

    def _start_engines(self, model_dir: str, kind: str) -> EngineSettings:
        """Start those that no env runner builds for itself; return what an engine is to be."""
        settings = self._settings
        self.transfer = choose_transfer(settings, kind, torch.cuda.is_available())
        engine = replace(run_engine(settings, model_dir, kind), weight_transfer=self.transfer.way)
        if settings.engine_sleep:
            engine = replace(engine, vllm_args={**engine.vllm_args, "enable_sleep_mode": True})
        if settings.num_env_runners == 0:
            self.engine = build_engine(engine)
        elif settings.placement == "colocate":
            return replace(engine, mode="inline")
        else:
            self.engine_group = InferenceGroup(
                engine,
                num_engines=settings.num_engines,
                first_bundle=first_engine_bundle(settings),
                num_gpus=settings.gpus_per_engine or None,
                resources=node_share(settings.rollout_nodes),
                wait=not room_for_all(settings),
            )
        return engine

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
        if self.transfer.way in ("nccl", "ipc"):
            self._send(learners, version)
        else:
            self.push(learners.export_weights(), version)
        return True

    def _send(self, learners: AgentLearnerGroup, version: int) -> None:
        """Have the learners send weights from GPU to GPU; where ``weight_transfer`` is auto, a failure ends that."""
        assert self.engine_group is not None
        way, tensor_parallel = self.transfer.way, self._settings.tensor_parallel
        try:
            self.engine_group.sync_by(
                lambda handles: learners.send_weights(handles, way, tensor_parallel, version),
                learners.export_weights,
                version,
            )
        except EngineError as error:
            print(f"[rl_agents] {error}; restoring it from the object store", flush=True)
            if not self.transfer.asked:
                self.transfer = replace(self.transfer, way="object_store")
                print(f"[rl_agents] weights use the object store from now on; set weight_transfer={way} to require it")
            self.engine_group.restore()
        self.version = version

    def rest(self) -> None:
        """While learners work on their GPU, engines may free it (``engine_sleep``); the next weights wake them."""
        if self._settings.engine_sleep and self.engine_group is not None:
            try:
                self.engine_group.sleep(self._settings.engine_sleep)
            except EngineError as error:  # the learner's turn in any case: it may fit nevertheless, and fails if not
                print(f"[rl_agents] {error}; its GPU memory may still be in use", flush=True)
            self.version = None

    def push(self, weights: Any, version: int) -> None:
        """Give the engines weights that the learners have exported, unless they have them already.

        Args:
            weights: packed, or a reference to them.
        """
        if self.version == version:
            return
        actors = self.runner_engines or self.engine_group
        if actors is not None:
            try:
                actors.sync(weights, version, self._settings.engine_timeout_s)
            except EngineError as error:
                print(f"[rl_agents] {error}; restoring it", flush=True)
                actors.restore()
        else:
            packed = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.env_runners.local_env_runner.sync_engine(packed, version)
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
        self.local_env_runner.set_engine(engine)

    def num_remote_env_runners(self) -> int:
        return 0

    def stop(self) -> None:
        self.local_env_runner.stop()
