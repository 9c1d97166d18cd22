"""`AgentAlgorithm`: one training iteration, from tasks to new weights in the engines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils import force_list

from rl_agents.algorithms import ALGORITHMS
from rl_agents.core.checkpoint import load_search, load_state, save_search, save_state, write_atomically
from rl_agents.core.collect import Collector, LocalRunner
from rl_agents.core.config import AgentConfig
from rl_agents.core.learner_group import await_room
from rl_agents.core.module import CRITIC, POLICY, REFERENCE
from rl_agents.core.resources import first_engine_bundle, node_share, placement, run_bundles
from rl_agents.core.rollout_metrics import rollout_metrics, truncation_metrics
from rl_agents.core.session import ensure_ray, quiet_libraries, show_placement
from rl_agents.core.shaping import assign_credit, next_coefficient
from rl_agents.core.training_data import AgentTrainingData
from rl_agents.data.lowering import lower
from rl_agents.data.rows import Row
from rl_agents.data.selection import Selected, SelectionError
from rl_agents.data.tasks import (
    DEMONSTRATION,
    MINIBATCHES,
    SEARCH,
    SELECTION,
    evaluation_specs,
    item_at,
    stream_seed,
    training_specs,
)
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.engines.base import EngineError
from rl_agents.engines.client import brief
from rl_agents.engines.group import InferenceGroup
from rl_agents.engines.select import build_engine, resolve_engine, run_engine
from rl_agents.envs.base import task_ids
from rl_agents.errors import InputError, LearnerLost
from rl_agents.rewards.base import make_reward
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.demonstrations import demonstrated_trajectories
from rl_agents.search.explorer import Explorer
from rl_agents.search.iteration import run_iteration
from rl_agents.search.picture import draw_search
from rl_agents.search.saved import explorer_to_json, load_explorer
from rl_agents.settings import Settings, load_recipe

#: Tasks on which a search's way back to a state is checked before it begins.
BRANCHING_TASKS = 3


class AgentAlgorithm(Algorithm):
    """RLlib algorithm whose experience is token rows of LLM agents.

    ``train()`` returns RLlib's result with our metrics under ``agent`` (see docs/metrics.md). Build one with
    `AgentConfig.build_algo`.
    """

    @classmethod
    def get_default_config(cls) -> AgentConfig:
        return AgentConfig()

    @classmethod
    def default_resource_request(cls, config: Any) -> Any:
        """Tune's hook, for sweeps of this class itself: all bundles of a run."""
        agent = config.agent if isinstance(config, AgentConfig) else AgentConfig().update_from_dict(config).agent
        return placement(run_bundles(agent))

    def __init__(self, config: Any = None, env: Any = None, **kwargs: Any) -> None:
        quiet_libraries()
        config = config.completed() if isinstance(config, AgentConfig) else config
        super().__init__(config=config, env=env, **kwargs)

    def _setup_logdir(self) -> None:
        """Outside Tune there is no trial folder: the run folder is ours, ~/ray_results stays empty."""
        if self._storage is not None:
            super()._setup_logdir()

    def setup(self, config: Any) -> None:
        """Start engines, env runners and learners.

        Replaces RLlib's setup, which prepares connectors, spaces, replay buffers and evaluation runners that nothing
        here uses, and starts a Ray session even for a run without actors.
        """
        self.settings: Settings = self.config.agent
        self.recipe = ALGORITHMS[self.settings.algo]
        self.reward = make_reward(self.settings)
        self.kind, self.engine_description = resolve_engine(self.settings.engine)
        self._begin_anew()
        self.inference_group: InferenceGroup | None = None
        self._local_engine: Any = None
        self.collector: Collector | None = None
        self.last_trajectories: list[Trajectory] = []
        self._demonstrated: list[Trajectory] = []
        #: False only while a training step can be left without a trace, that is, before its first optimiser step.
        self.learning = True
        if self.settings.num_env_runners or self.settings.num_learners:
            settings = self.settings
            ensure_ray(settings.num_engines + settings.num_env_runners + settings.num_learners)
            if ray.util.get_current_placement_group() is None:
                show_placement(settings)
        self.callbacks = [callback() for callback in force_list(self.config.callbacks_class)]
        self.train_tasks = task_ids(self.settings.env, "train", self.settings.env_options)
        self.explorer = self._new_explorer()
        if self.recipe.source != "demonstrations":
            self._start_rollouts()
        self._set_up_metrics()
        self._start_learners()

    def _begin_anew(self) -> None:
        """Set all counters that a checkpoint holds to those of a run that has done nothing."""
        self._iteration = 0
        self.policy_version = 0
        self._engines_version: int | None = None
        #: Tasks taken from the training stream so far; iterations may take more than ``tasks_per_iteration``.
        self.task_position = 0
        self.kl_in_reward_coef = self.settings.kl_in_reward_coef

    def _new_explorer(self) -> Explorer | None:
        if self.recipe.states is None:
            return None
        settings, states = self.settings, self.recipe.states(self.settings)
        return Explorer(
            settings, self.train_tasks, states,
            width=settings.tasks_per_iteration, most=settings.group_size, seed=settings.seed,
        )  # fmt: skip

    def _start_learners(self) -> None:
        await_room(self.settings)
        spec = self.config.get_multi_rl_module_spec()
        try:
            self.learner_group = self.config.build_learner_group(rl_module_spec=spec)
        except RayActorError as error:
            raise LearnerLost(f"a learner died while starting: {brief(error)}") from None

    def _start_rollouts(self) -> None:
        """Engines, then env runners (RLlib pins runner i to bundle i, where an engine without a bundle could sit)."""
        self._start_engines()
        if self.config.num_env_runners == 0:
            self.env_runner_group = LocalRunner(self.config, self._local_engine)
        else:
            self.env_runner_group = EnvRunnerGroup(config=self.config, local_env_runner=False)
        self.collector = Collector(self.env_runner_group, self.inference_group, self.settings.sample_timeout_s)
        self.collector.introduce()
        if self.recipe.source == "search":
            tasks = self.train_tasks[:BRANCHING_TASKS]
            seeds = [stream_seed(self.settings.seed, SEARCH, SEARCH, i) for i in range(len(tasks))]
            specs = [EpisodeSpec(t, i, 0, seed) for i, (t, seed) in enumerate(zip(tasks, seeds, strict=True))]
            self.collector.check_branching(specs)

    # --- one iteration -----------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """One iteration. Overrides RLlib's step: losses of actors are handled in `Collector`, nothing is retried
        behind our back, and metrics are plain numbers."""
        return {"agent": self.training_step()}

    def training_step(self) -> dict[str, float]:
        """tasks -> rollouts -> rows -> credit -> optimiser steps -> engines; returns this iteration's metrics."""
        started = time.perf_counter()
        self.learning = False
        metrics = self._play_and_learn() if self.explorer is None else self._explore(self.explorer)
        elapsed = time.perf_counter() - started
        # The paths of a search share steps, and most siblings are on none.
        searched = self.explorer.counts.response_tokens if self.explorer else 0
        tokens = searched or sum(t.response_tokens for t in self.last_trajectories)
        metrics.update({"timing_s/iteration": elapsed, "perf/tokens_per_s": tokens / elapsed})
        return metrics

    def _play_and_learn(self) -> dict[str, float]:
        """Whole episodes, then one update."""
        started = time.perf_counter()
        weights: Mapping[int, float] = {}
        if self.recipe.source == "demonstrations":
            metrics: dict[str, float] = {}
            chosen = self.last_trajectories = self._demonstrations()
        else:
            chosen, weights, metrics = self._rollouts()
        metrics["timing_s/rollout"] = time.perf_counter() - started
        metrics.update(self._learn(chosen, weights))
        self.task_position += len({t.group_id for t in self.last_trajectories})
        return metrics

    def _explore(self, explorer: Explorer) -> dict[str, float]:
        """Searches: siblings at one state of every active task, one update, and so on until the budget is spent."""
        self.learning = True  # what a tick found out cannot be taken back
        self._engines_version = None  # a resumed run begins with fresh engines, too
        resampled = 0

        def expand(specs: Sequence[BranchSpec]) -> list[Expansion]:
            nonlocal resampled
            assert self.collector is not None
            collected = self.collector.expand(specs)
            for event in collected.events:
                print(f"[rl_agents] {event}; its states are expanded again", flush=True)
            resampled += collected.resampled
            return collected.answers

        def learn(samples: Sequence[Trajectory], update: int) -> dict[str, float]:
            return self._learn(samples, {}, update)

        finished, metrics = run_iteration(explorer, self._sync_engines, expand, learn)
        metrics["search/optimiser_steps"] *= self.settings.epochs * self.settings.minibatches
        self.last_trajectories, self.task_position = finished, explorer.position
        return {**metrics, **rollout_metrics(finished), **explorer.metrics(), "rollout/resampled_episodes": resampled}

    def _rollouts(self) -> tuple[list[Trajectory], Mapping[int, float], dict[str, float]]:
        """Play until the recipe has enough groups to learn from; returns these episodes, weights and metrics.

        ``last_trajectories`` gets all that were played.
        """
        started = time.perf_counter()
        self._sync_engines()
        synced = time.perf_counter() - started
        rng = np.random.default_rng(stream_seed(self.settings.seed, SELECTION, self.iteration))
        played: list[Trajectory] = []
        rounds: list[dict[str, float]] = []
        while True:
            rounds.append(self._play_round(played))
            usable = [t for t in played if not t.failed]
            if self.recipe.select is None:
                selected = Selected(np.ones(len(usable), dtype=bool))
            else:
                selected = self.recipe.select(usable, self.settings, rng)
            if not selected.missing:
                break
            self._check_rounds(len(rounds), selected.missing)
        self.last_trajectories = played
        names = dict.fromkeys(name for metrics in rounds for name in metrics)
        metrics = {name: float(np.mean([m[name] for m in rounds if name in m])) for name in names}
        metrics.update(rollout_metrics(played) | dict(selected.metrics))
        if self.settings.truncation != "none":
            metrics.update(truncation_metrics(played))
        metrics["rollout/resampled_episodes"] *= len(rounds)
        metrics.update({"rollout/generation_batches": float(len(rounds)), "timing_s/sync": synced})
        chosen = [t for t, keep in zip(usable, selected.keep, strict=True) if keep]
        return chosen, selected.weights, metrics

    def _play_round(self, played: list[Trajectory]) -> dict[str, float]:
        """Play the next ``tasks_per_iteration`` tasks, add their episodes to ``played`` and return reward metrics."""
        settings, groups = self.settings, len({t.group_id for t in played})
        specs = training_specs(
            self.train_tasks, self.iteration, settings.tasks_per_iteration, settings.group_size, settings.seed,
            position=self.task_position + groups, first_group=groups,
        )  # fmt: skip
        assert self.collector is not None
        collected = self.collector.collect(specs)
        for event in collected.events:
            print(f"[rl_agents] {event}; its episodes are played again", flush=True)
        shaped = self.reward.apply(collected.answers)
        played.extend(collected.answers)
        return {**shaped, "rollout/resampled_episodes": float(collected.resampled)}

    def _check_rounds(self, rounds: int, missing: int) -> None:
        settings = self.settings
        if not settings.max_generation_batches or rounds < settings.max_generation_batches:
            return
        wanted = settings.tasks_per_iteration
        raise SelectionError(
            f"{wanted - missing} of {rounds * wanted} tasks had rollouts that differ in "
            f"{settings.dynamic_sampling_metric}, {wanted} are needed, and max_generation_batches={rounds} is spent: "
            "tasks are too easy or too hard for the policy; raise group_size or max_generation_batches, or set "
            "dynamic_sampling=false"
        )

    def _demonstrations(self) -> list[Trajectory]:
        """The next episodes of the demonstrated pool, in an order that every pass shuffles anew."""
        settings = self.settings
        if not self._demonstrated:
            seed = stream_seed(settings.seed, DEMONSTRATION)
            self._demonstrated = demonstrated_trajectories(settings, self.config.model_dir, seed)
        count = settings.tasks_per_iteration * settings.group_size
        start, pool = self.iteration * count, range(len(self._demonstrated))
        chosen = [item_at(pool, start + i, settings.seed, DEMONSTRATION) for i in range(count)]
        return [self._demonstrated[i] for i in chosen]

    def _learn(
        self, trajectories: Sequence[Trajectory], weights: Mapping[int, float], *update: int
    ) -> dict[str, float]:
        """Rows, credit and optimiser steps; nothing is updated when no episode can teach anything.

        Args:
            update: number of the update, where an iteration has several.
        """
        settings = self.settings
        started = time.perf_counter()
        warm = self.iteration >= settings.critic_warmup
        rows = [row for row in lower(trajectories, settings.rows) if row.mask.any()]
        if not rows:
            return {"actor/skipped_iterations": 1.0}
        self._score(rows)
        metrics = assign_credit(self.recipe, rows, trajectories, settings, weights, self.kl_in_reward_coef)
        if not any(row.mask.any() for row in rows):
            return metrics | {"actor/skipped_iterations": 1.0}
        rng = np.random.default_rng(stream_seed(settings.seed, MINIBATCHES, self.iteration, *update))
        data = AgentTrainingData.build(rows, settings, rng, fold=self.explorer is not None)
        if not data.minibatches:  # siblings that all agree
            return metrics | {"actor/skipped_iterations": 1.0}
        self.learning = True
        metrics.update(self.learner_group.learn(data, train_policy=warm))
        self.policy_version += 1
        if settings.kl_controller == "adaptive":
            self.kl_in_reward_coef = next_coefficient(self.kl_in_reward_coef, metrics, len(rows), settings)
        metrics["timing_s/learn"] = time.perf_counter() - started
        metrics["rows/count"] = float(len(data.rows))
        metrics["rows/tokens"] = float(sum(len(row) for row in data.rows))
        metrics["rows/trained_tokens"] = float(sum(row.mask.sum() for row in rows)) * settings.epochs
        return metrics

    def _score(self, rows: Sequence[Row]) -> None:
        """Fill what the learner's networks say about the rows before the first optimiser step."""
        group, settings = self.learner_group, self.settings
        if self.recipe.critic:
            for row in rows:
                row.value_mask = self.recipe.value_mask(row, settings) if self.recipe.value_mask else row.mask.copy()
            for row, values in zip(rows, group.score(rows, CRITIC), strict=True):
                row.values = values
        if settings.kl_coef or settings.kl_in_reward_coef:
            for row, logprobs in zip(rows, group.score(rows, REFERENCE), strict=True):
                row.reference_logprobs = logprobs
        if settings.old_logprobs == "learner" and self.recipe.credit is not None:
            for row, logprobs in zip(rows, group.score(rows, POLICY), strict=True):
                row.old_logprobs = logprobs

    # --- evaluation --------------------------------------------------------------------------------------------

    def evaluate_policy(
        self, split: str = "test", episodes: int = 128, temperature: float = 1.0, seed: int = 0
    ) -> list[Trajectory]:
        """Play frozen tasks with the current policy; nothing is learned.

        Args:
            split: ``train`` or ``test``.
            episodes: number of episodes; tasks repeat when the set is smaller.
            temperature: sampling temperature, 0 for greedy.
            seed: seed of the sampling streams; the tasks are the same for every seed.
        """
        tasks = task_ids(self.settings.env, split, self.settings.env_options)
        return self.play(evaluation_specs(tasks, episodes, seed), temperature)

    def play(self, specs: Sequence[EpisodeSpec], temperature: float | None = None) -> list[Trajectory]:
        """Play episodes with the current policy; nothing is learned.

        Args:
            temperature: None samples as in training.
        """
        if self.collector is None:
            self._start_rollouts()
        assert self.collector is not None
        self._sync_engines()
        return self.collector.collect(specs, temperature).answers

    # --- engines -----------------------------------------------------------------------------------------------

    def _start_engines(self) -> None:
        settings = self.settings
        engine = run_engine(settings, self.config.model_dir, self.kind)
        if self.config.num_env_runners == 0:
            self._local_engine = build_engine(engine)
        else:
            self.inference_group = InferenceGroup(
                engine,
                num_engines=settings.num_engines,
                first_bundle=first_engine_bundle(settings),
                num_gpus=settings.gpus_per_engine or None,
                resources=node_share(settings.rollout_nodes),
            )

    def _sync_engines(self) -> bool:
        """Give the engines the learner's weights; False when they have them."""
        if self._engines_version == self.policy_version:
            return False
        weights = self.learner_group.export_weights()
        if self.inference_group is not None:
            try:
                self.inference_group.sync(weights, self.policy_version, self.settings.engine_timeout_s)
            except EngineError as error:
                print(f"[rl_agents] {error}; restarting it", flush=True)
                self.inference_group.restore()
        else:
            packed = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.env_runner_group.local_env_runner.sync_engine(packed, self.policy_version)
        self._engines_version = self.policy_version
        return True

    # --- checkpoints -------------------------------------------------------------------------------------------

    def save_run_checkpoint(self, folder: Path) -> None:
        """Write a checkpoint (see `rl_agents.core.checkpoint`); it appears under its name when complete."""
        write_atomically(Path(folder), self._fill_checkpoint)

    def _fill_checkpoint(self, folder: Path) -> None:
        self.learner_group.save_hf(folder / "hf")
        counters = {
            "iteration": self.iteration,
            "policy_version": self.policy_version,
            "task_position": self.task_position,
            "kl_in_reward_coef": self.kl_in_reward_coef,
        }
        save_state(folder, self.learner_group.full_state(), counters, self.settings.to_dict())
        if self.explorer is not None:
            save_search(folder, explorer_to_json(self.explorer))

    def restore_run_checkpoint(self, folder: Path) -> None:
        """Go on exactly where `save_run_checkpoint` was called.

        Raises:
            InputError: no complete checkpoint, or one of another algorithm.
        """
        folder = Path(folder)
        state, counters = load_state(folder)
        saved = Settings.restored(load_recipe(str(folder / "config.yaml")))
        for name in ("algo", "env"):
            if getattr(saved, name) != getattr(self.settings, name):
                found = getattr(saved, name)
                raise InputError(f"{folder}: checkpoint of {name} {found}, not {getattr(self.settings, name)}")
        self.learner_group.load_full_state(state)
        self._iteration = int(counters["iteration"])
        self.policy_version = int(counters["policy_version"])
        by_iteration = self._iteration * saved.tasks_per_iteration
        self.task_position = int(counters.get("task_position", by_iteration))
        if self.settings.kl_controller == "adaptive":
            self.kl_in_reward_coef = float(counters.get("kl_in_reward_coef", self.kl_in_reward_coef))
        self._engines_version = None
        if self.explorer is not None:
            load_explorer(self.explorer, load_search(folder))

    def restart_learners(self, checkpoint: Path | None) -> None:
        """Replace all learners by new ones that go on from ``checkpoint``; None: from the beginning."""
        self.learner_group.abandon()
        self._start_learners()
        if checkpoint is None:
            self._begin_anew()
            self.explorer = self._new_explorer()
        else:
            self.restore_run_checkpoint(checkpoint)

    def draw(self, folder: Path) -> None:
        """Write the pictures that only this algorithm has: of a search, ``search_tree.png``."""
        if self.explorer is not None:
            draw_search(self.explorer, folder / "search_tree.png")

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray Tune's hook; the same format."""
        self._fill_checkpoint(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray Tune's hook."""
        self.restore_run_checkpoint(Path(checkpoint_dir))

    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """RLlib's name for `save_run_checkpoint`."""
        self.save_run_checkpoint(Path(path))
        return str(path)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """RLlib's name for `restore_run_checkpoint`."""
        self.restore_run_checkpoint(Path(path))

    @classmethod
    def from_checkpoint(cls, path: Any, *args: Any, **kwargs: Any) -> AgentAlgorithm:
        """Build an algorithm from a checkpoint folder's own configuration and restore it."""
        settings = Settings.restored(load_recipe(str(Path(path) / "config.yaml")))
        algo = AgentConfig.from_settings(settings).build_algo()
        algo.restore_run_checkpoint(Path(path))
        return algo

    # --- RLlib hooks -------------------------------------------------------------------------------------------

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Runners hold no state of ours; `Collector` brings them back and gives them engines."""
        return []

    def cleanup(self) -> None:
        super().cleanup()
        if self.inference_group is not None:
            self.inference_group.stop()
        if self._local_engine is not None:
            self._local_engine.close()
