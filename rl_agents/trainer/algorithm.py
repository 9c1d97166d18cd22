"""A run, for RLlib, Tune and `run.py`: `AgentConfig` builds an `AgentAlgorithm`."""

from __future__ import annotations

import contextlib
import copy
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.utils import force_list

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.base import Memory
from rl_agents.chat.template import load_tokenizer
from rl_agents.data.difficulty import Difficulty
from rl_agents.data.failures import BadTasks
from rl_agents.data.tasks import evaluation_specs, measured
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import run_tasks
from rl_agents.errors import InputError
from rl_agents.inference.engines import ENGINES, resolve_engine
from rl_agents.learner.learner_group import AgentLearnerGroup, start_learners
from rl_agents.learner.rl_modules import module_specs
from rl_agents.learner.teacher import TeacherServer
from rl_agents.orchestrator.older_policies import OlderPolicies
from rl_agents.orchestrator.rollout_batch import TaskPosition
from rl_agents.orchestrator.rollout_buffer import Given
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.reporting.run_folder import restored_settings
from rl_agents.reporting.statistics import evaluation_metrics
from rl_agents.resources import LEARNER_CPUS, RUNNER_CPUS, node_share, placement, run_bundles
from rl_agents.rollout.demonstrations import Dialogues
from rl_agents.rollout.env_runner import TextEnvRunner
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.trainer import run_inputs
from rl_agents.trainer.batch_source import make_buffer, open_recorded
from rl_agents.trainer.checkpoint import STATE, Counters, load_run, restore_run, save_run, write_atomically
from rl_agents.trainer.expert_data import ExpertData
from rl_agents.trainer.measure import ready
from rl_agents.trainer.ray_init import join_session, quiet_libraries
from rl_agents.trainer.resolve import resolve
from rl_agents.trainer.run_store import RunPool
from rl_agents.trainer.teacher_checks import check_local
from rl_agents.trainer.training_step import train_iteration
from rl_agents.trainer.warm_start import ensure_model


def _refused(name: str, instead: str) -> Any:
    """Return a method that says what to use instead of RLlib's, which would fail or have no effect."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise InputError(f"{type(self).__name__}.{name}() does not work: {instead}")

    return refuse


class AgentConfig(AlgorithmConfig):
    """Configuration of an `AgentAlgorithm`.

    ``agent`` contains every key (`rl_agents.config.Settings`); RLlib's own fields follow from it.

    >>> config = AgentConfig().environment("guess_numbers").training(algo="grpo", lr=3e-4)  # doctest: +SKIP
    >>> algo = config.build_algo()  # doctest: +SKIP
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or AgentAlgorithm)
        self.agent = Settings()
        #: Folder of the initial weights; known once the configuration is built.
        self.model_dir: str = ""
        self.env_runner_cls = TextEnvRunner
        self.restart_failed_env_runners = True
        self.ignore_env_runner_failures = True
        self.log_level = "ERROR"
        self._validate_config = False

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        config = cls()
        config.agent = copy.deepcopy(settings)
        return config

    def environment(self, env: str | None = None, **options: Any) -> Self:  # type: ignore[override]
        """Choose the environment; keyword arguments are its own keys (``env.KEY`` on the command line)."""
        if env is not None:
            self.agent.update({"env": env})
        self.agent.update({f"env.{name}": value for name, value in options.items()})
        return self

    def training(self, **keys: Any) -> Self:  # type: ignore[override]
        """Set any keys of `Settings`.

        Raises:
            InputError: unknown key (the nearest is named) or wrong type.
        """
        self.agent.update(keys)
        return self

    env_runners = _refused("env_runners", "set keys, such as training(num_env_runners=2)")
    learners = _refused("learners", "set keys, such as training(num_learners=1, gpus_per_learner=1)")
    resources = _refused("resources", "set keys, such as training(gpus_per_engine=1, gpus_per_learner=1)")
    multi_agent = _refused("multi_agent", "a run trains one policy")

    def evaluation(self, **keys: Any) -> Self:  # type: ignore[override]
        """Refuse RLlib's keys; `update_from_dict` calls it without any."""
        instead = "set keys, such as training(eval_interval=5, eval_episodes=64)"
        return _refused("evaluation", instead)(self) if keys else self  # type: ignore[no-any-return]

    def local(self) -> Self:
        """Run in a single process, without Ray actors: environments, torch engine and learner can be debugged."""
        self.agent.make_local()
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the callbacks and the chosen keys, or all keys once they are resolved, as Tune's ``param_space``."""
        keys, chosen = self.agent.to_dict(), self.agent.explicit
        own = {name: value for name, value in keys.items() if name in chosen or self.agent.complete}
        return {"callbacks_class": self.callbacks_class, **own}

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """Set what `to_dict` returns, and any other keys of `Settings`; raises as `training`."""
        rllib = {name: config_dict[name] for name in config_dict if name == "callbacks_class" or name.startswith("__")}
        self.agent.update({name: value for name, value in config_dict.items() if name not in rllib})
        return super().update_from_dict(rllib)

    def build_algo(self, **kwargs: Any) -> AgentAlgorithm:  # type: ignore[override]
        """Check everything, build the warm-start model if it is requested and missing, and start actors."""
        return self.algo_class(config=self, **kwargs)  # type: ignore[no-any-return]

    def completed(self) -> AgentConfig:
        """Return a copy whose keys are resolved and measured, and whose RLlib fields follow from ``agent``."""
        config = self.copy(copy_frozen=False)
        config.agent = ready(config.agent)
        config.model_dir = self.model_dir or str(ensure_model(config.agent, AgentAlgorithm.from_settings))
        check_local(config.agent, config.model_dir)
        ENGINES[resolve_engine(config.agent.engine)[0]].check_model(config.agent, Path(config.model_dir))
        config.apply_settings()
        return config

    def apply_settings(self) -> None:
        agent = self.agent
        self.seed = agent.seed
        self.num_env_runners = agent.num_env_runners
        self.create_local_env_runner = False
        self.num_cpus_per_env_runner = RUNNER_CPUS
        self.sample_timeout_s = agent.sample_timeout_s
        self.custom_resources_per_env_runner = node_share(agent.rollout_nodes)
        self.num_learners = agent.num_learners
        self.custom_resources_per_learner = node_share(agent.learner_nodes)
        self.num_gpus_per_learner = agent.gpus_per_learner
        self.num_cpus_per_learner = 0 if agent.gpus_per_learner else LEARNER_CPUS

    # --- RLlib hooks -------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Do nothing: `resolve` validates keys, and RLlib's checks are about batches and spaces that are not used."""

    def get_default_learner_class(self) -> type:
        from rl_agents.learner.learner import AgentLearner  # imports FSDP: env runners do without

        return AgentLearner

    def get_multi_rl_module_spec(self, **kwargs: Any) -> MultiRLModuleSpec:
        return module_specs(self.agent, self.model_dir)

    def build_learner_group(self, **kwargs: Any) -> AgentLearnerGroup:
        spec = kwargs.get("rl_module_spec")
        return AgentLearnerGroup(config=self.copy(), module_spec=spec, placement_group=kwargs.get("placement_group"))


class AgentAlgorithm(Algorithm):
    """RLlib algorithm whose experience is token rows of LLM agents.

    It starts engines, env runners, learners and the trajectory store, tracks the run's progress, samples and learns,
    saves and restores (`rl_agents.trainer.checkpoint`), and stops everything. ``train()`` returns RLlib's result with
    metrics under ``agent`` (docs/reference/metrics.md). Build one with `AgentConfig.build_algo`.

    Attributes:
        memory: state of the credit from earlier iterations.
    """

    settings: Settings
    policy_version: int
    place: TaskPosition
    explorer: Explorer | None
    memory: Memory | None
    #: `cleanup` was called.
    stopped = False

    @classmethod
    def get_default_config(cls) -> AgentConfig:
        return AgentConfig()

    @classmethod
    def from_settings(cls, settings: Settings) -> AgentAlgorithm:
        return AgentConfig.from_settings(settings).build_algo()

    @classmethod
    def default_resource_request(cls, config: Any) -> Any:
        """Tune's hook for sweeps of this class: all bundles of a run."""
        return placement(run_bundles(resolve(cls._asked(config).agent)))

    @classmethod
    def _asked(cls, config: Any) -> AgentConfig:
        return config if isinstance(config, AgentConfig) else cls.get_default_config().update_from_dict(config or {})

    def __init__(self, config: Any = None, env: Any = None, **kwargs: Any) -> None:
        quiet_libraries()
        super().__init__(config=self._asked(config).completed(), env=env, **kwargs)

    @classmethod
    def from_checkpoint(cls, path: Any, *args: Any, **kwargs: Any) -> AgentAlgorithm:
        """Build an algorithm from a checkpoint's own configuration and restore it (also Ray's `Checkpoint`)."""
        folder = Path(getattr(path, "path", path))
        algo = cls.from_settings(restored_settings(folder / "config.yaml"))
        algo.restore_run_checkpoint(folder)
        return algo

    # --- start and stop ---------------------------------------------------------------------------------------------

    def _setup_logdir(self) -> None:
        """Create no trial folder outside Tune: a run has its own folder, and ~/ray_results stays empty."""
        if self._storage is not None:
            super()._setup_logdir()

    def setup(self, config: Any) -> None:
        """Start engines, env runners and learners.

        Replaces RLlib's setup, which prepares unused connectors, spaces, replay buffers and evaluation runners, and
        starts a Ray session even for a run without actors.
        """
        self.settings = settings = self.config.agent
        self.recipe = ALGORITHMS[settings.algo]
        self.kind, asked = resolve_engine(settings.engine)
        self.engine_description = settings.engine_choice or asked
        self.train_tasks = run_tasks(settings, settings.only_split or "train")
        self.recorded = open_recorded(settings, self.config.model_dir)
        if settings.teacher_url:
            TeacherServer(settings).check(load_tokenizer(self.config.model_dir))
        self.experts = None
        if settings.expert_data:
            self.experts = ExpertData(settings, Dialogues(settings, self.config.model_dir, "expert"))
        self.older = OlderPolicies(settings, self.config.model_dir)
        self.buffer = make_buffer(
            settings,
            self.config.model_dir,
            self.train_tasks,
            self.recorded,
            self.started_workers,
            lambda: self.learner_group,
            self.older,
        )
        self.rollout_workers: RolloutWorkers | None = None
        self.pool: RunPool | None = None
        #: Store of the run whose checkpoint was restored last; None: the run begins.
        self._restored_pool: str | None = None
        self.last_trajectories: list[Trajectory] = []
        #: Number of steps of the last iteration by the number of updates since they were sampled.
        self.staleness: Counter[int] = Counter()
        #: False only while a training step can be aborted without effect, before its first optimizer step.
        self.learning = True
        join_session(settings)
        if not settings.num_env_runners:
            torch.set_num_threads(1)  # as engines in this process do; imitation has none
        self.callbacks = [callback() for callback in force_list(self.config.callbacks_class)]
        self._start_over()
        if self.recipe.source != "demonstrations" and self.recorded is None:
            self._start_workers()
        self._set_up_metrics()
        self.learner_group = start_learners(self.config)  # while engines start
        try:
            self._await_workers()
        except BaseException:
            self.learner_group.abandon()
            raise

    def _start_over(self) -> None:
        """Reset everything that a checkpoint contains, except the learners, to the start of a run."""
        self.older.load(None)
        self.explorer = self._new_explorer()
        self.memory = self.recipe.memory(self.settings) if self.recipe.memory else None
        self._set_counters(Counters(0, 0, 0))

    def _new_explorer(self) -> Explorer | None:
        settings, states = self.settings, self.recipe.states
        if states is None:
            return None
        width, most = settings.tasks_per_iteration, settings.group_size
        return Explorer(settings, self.train_tasks, states(settings), width=width, most=most, seed=settings.seed)

    def started_workers(self) -> RolloutWorkers:
        """Engines and env runners; without training rollouts the first evaluation starts them."""
        if self.stopped:
            raise InputError("the algorithm was stopped; build another one, or use from_checkpoint(FOLDER)")
        if self.rollout_workers is None:
            self._start_workers()
            self._await_workers()
        assert self.rollout_workers is not None
        return self.rollout_workers

    def _start_workers(self) -> None:
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
        """Record samples and updates from now on in the pool at ``path``; a resumed run continues in its own.

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
            self.started_workers().collector.record(self.pool.recording({}))

    def _disown(self) -> bool:
        """Forget which sessions are remembered where those are of another run's pool; return whether they are."""
        assert self.pool is not None
        foreign = self._restored_pool not in (None, self.pool.id)
        if foreign and self.memory is not None:
            self.memory.disown()
        return foreign

    def _resume_pool(self) -> None:
        """Reuse calls that were sampled after the checkpoint with the same keys, unless it is another run's.

        Without env runners, what the newest weights sampled is sampled again as a whole: the last bits of a
        log-probability depend on the batch that computed it, and a kill may have cut the batches in flight.
        """
        if self.pool is None:
            return
        self.pool.resumed(self.iteration)
        recorded = {} if self._disown() else self.pool.calls_since(self.buffer.oldest())
        end = math.inf
        if self.settings.stream:  # later weights are not reproduced
            end = self.policy_version + 1
        elif not self.settings.num_env_runners:
            end = max([self.policy_version, *(call.policy_version for call in recorded.values())])
        recorded = {seed: call for seed, call in recorded.items() if call.policy_version < end}
        self.buffer.served = {call.policy_version for call in recorded.values()}
        if recorded:
            print(f"[rl_agents] {len(recorded)} recorded calls after the checkpoint are reused", flush=True)
        self.started_workers().collector.record(self.pool.recording(recorded))

    def _set_counters(self, counters: Counters) -> None:
        self._iteration, self.policy_version = counters.iteration, counters.policy_version
        self._restored_pool = counters.pool
        bad, difficulty = BadTasks(dict(counters.left_out), Counter(counters.strikes)), None
        if self.settings.task_sampling == "difficulty":
            difficulty = Difficulty(self.settings.task_uniform_share, counters.success).of(self.train_tasks)
        self.set_place(TaskPosition(counters.task_position, bad, difficulty, tuple(self.settings.parts)))
        self.buffer.begin(counters.iteration, counters.policy_version, self.place, counters.in_flight)
        if self.rollout_workers is not None:
            self.rollout_workers.version = None
            self.rollout_workers.collector.fault_tolerance.deaths |= Counter(counters.deaths)

    def set_place(self, place: TaskPosition) -> None:
        self.place = place
        if self.explorer is not None:
            self.explorer.left_out, self.explorer.difficulty = place.bad.left_out, place.difficulty

    def cleanup(self) -> None:
        """Stop everything in order; errors are raised after all parts have been stopped. A second call does nothing."""
        if self.stopped:
            return
        self.stopped = True
        self.buffer.close()
        if self.rollout_workers is not None:
            self.rollout_workers.collector.closed = True
        with contextlib.ExitStack() as last_first:
            if self.rollout_workers is not None:
                last_first.callback(self.rollout_workers.stop_engines)
            if self.pool is not None:  # a process that resumes the run waits for it
                last_first.callback(self.pool.close)
            last_first.callback(self.buffer.join)
            last_first.callback(super().cleanup)

    # --- one iteration ----------------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """Run one iteration. RLlib's method would retry, and return metrics that are not plain numbers."""
        return {"agent": self.training_step()}

    def training_step(self) -> dict[str, float]:
        return train_iteration(self)

    def sync_engines(self) -> bool:
        """Give the engines the newest weights; return False if they have them already."""
        return self.started_workers().sync(self.learner_group, self.policy_version)

    # --- checkpoints, by our own names, RLlib's and Tune's ----------------------------------------------------------

    def save_run_checkpoint(self, folder: Path) -> None:
        """Write a checkpoint, or replace an older one; the folder has its name only when it is complete.

        Raises:
            InputError: the folder contains something else.
        """
        folder = Path(folder).resolve()  # "." cannot be renamed
        if folder.exists() and not (folder / STATE).is_file() and (folder.is_file() or any(folder.iterdir())):
            raise InputError(f"{folder}: contains something other than a checkpoint; choose another folder")
        write_atomically(folder, self._fill_checkpoint)
        if self.pool is not None:
            self.pool.checkpoint(self.iteration)

    def _fill_checkpoint(self, folder: Path) -> None:
        in_flight = self.buffer.settle()
        if self.pool is not None:
            self.pool.add_calls(in_flight)
        self.older.save(folder)
        save_run(folder, self.learner_group, self._present_counters(), self.settings, self.explorer, self.memory)

    def _present_counters(self) -> Counters:
        bad, workers = self.place.bad, self.rollout_workers
        deaths = dict(workers.collector.fault_tolerance.deaths) if workers is not None else {}
        return Counters(
            self.iteration, self.policy_version, self.place.position, dict(bad.left_out), dict(bad.strikes), deaths,
            self.pool.id if self.pool is not None else "", self.buffer.in_flight(), self.inputs,
            self.place.difficulty.counts if self.place.difficulty is not None else {},
        )  # fmt: skip

    @cached_property
    def inputs(self) -> dict[str, list[int]]:
        """Fingerprints of what the run's progress refers to."""
        settings, producer = self.settings, self.buffer.producer
        items = producer.items() if isinstance(producer, Given) else self.train_tasks
        base = run_inputs.of_model(Path(self.config.model_dir))
        found = {run_inputs.TRAIN: run_inputs.of_items(items), run_inputs.BASE: base}
        if settings.eval_episodes:
            found[run_inputs.TEST] = run_inputs.of_items(run_tasks(settings, "test"))
        if self.experts is not None:
            found[run_inputs.EXPERT] = run_inputs.of_items(self.experts.dialogues.sources())
        return found

    def restore_run_checkpoint(self, folder: Path) -> None:
        """Continue exactly from a checkpoint; raises as `load_run`, `changed_tasks` and `restore_run` do."""
        folder, settings = Path(folder), self.settings
        saved = load_run(folder, settings)
        changed = run_inputs.changed_tasks(folder, saved[1].inputs, self.inputs, settings)
        for name in changed:
            print(f"[rl_agents] {name}: {saved[1].inputs[name][0]} before, now {self.inputs[name][0]}", flush=True)
        self.older.load(folder)
        self._set_counters(restore_run(folder, saved, self.learner_group, settings, self.explorer, self.memory))
        if self.explorer is not None and changed:
            known = set(self.train_tasks)
            self.explorer.searches = [search for search in self.explorer.searches if search.task_id in known]
        self._resume_pool()

    def restart_learners(self, checkpoint: Path | None) -> None:
        """Replace all learners; new ones continue from ``checkpoint``, or from the beginning if it is None."""
        self.learner_group.abandon()
        self.learner_group = start_learners(self.config)
        if checkpoint is None:
            self._start_over()
            self._resume_pool()
        else:
            self.restore_run_checkpoint(checkpoint)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray Tune's hook; the same format."""
        self._fill_checkpoint(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.restore_run_checkpoint(Path(checkpoint_dir))

    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """RLlib's name for `save_run_checkpoint`, by default in a new temporary folder."""
        path = path or Path(tempfile.mkdtemp(), "checkpoint")
        self.save_run_checkpoint(Path(path))
        return str(path)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """RLlib's name for `restore_run_checkpoint`."""
        self.restore_run_checkpoint(Path(path))

    get_state = _refused("get_state", "save_to_path(FOLDER) writes everything, and FOLDER/hf is a Hugging Face model")
    set_state = _refused("set_state", "restore_from_path(FOLDER) continues from what save_to_path wrote")
    set_weights = _refused("set_weights", "restore_from_path(FOLDER), or training(model=FOLDER) before build_algo()")
    get_policy = _refused("get_policy", "get_module() returns the policy")
    compute_single_action = _refused("compute_single_action", "evaluate_policy() plays, and `run.py serve` serves")

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> Any:
        """Return the learner's copy of a network.

        Raises:
            InputError: learners are other processes.
        """
        if not self.learner_group.is_local:
            raise InputError("get_module() needs num_learners=0: save_to_path(FOLDER) writes the policy to FOLDER/hf")
        return self.learner_group._learner.module.get(module_id)

    # --- evaluation --------------------------------------------------------------------------------------------

    def evaluate_policy(
        self, split: str = "test", episodes: int = 128, temperature: float = 1.0, seed: int = 0
    ) -> list[Trajectory]:
        """Run tasks with the current policy, the same tasks for every seed; tasks repeat if there are too few."""
        return self.play(evaluation_specs(run_tasks(self.settings, split), episodes, seed), temperature)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's name for a run's evaluation; returns its metrics as `train` does.

        Raises:
            InputError: the run evaluates no episodes.
        """
        settings = self.settings
        if not settings.eval_episodes:
            raise InputError(
                "eval_episodes=0: evaluate() plays this number of episodes; or evaluate_policy(episodes=N)"
            )
        episodes = self.evaluate_policy("test", settings.eval_episodes, settings.eval_temperature, settings.seed)
        return {"agent": measured(evaluation_metrics, settings.parts, episodes)}

    def play(self, specs: Sequence[EpisodeSpec], temperature: float | None = None) -> list[Trajectory]:
        """Run episodes without training on them; ``temperature`` None is that of training."""
        workers = self.started_workers()
        with self.buffer.paused():
            self.sync_engines()
            return workers.collector.collect(specs, temperature).answers
