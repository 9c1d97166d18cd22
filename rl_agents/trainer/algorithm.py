"""`AgentConfig` and `AgentAlgorithm`: what builds a run, and the run as RLlib, Tune and `run.py` see it.

Its parts are in `rl_agents.trainer.setup`, its iterations in `rl_agents.trainer.training_step`, its checkpoints in
`rl_agents.trainer.run_checkpoints`: one class, in four files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.config import load_recipe
from rl_agents.data.tasks import evaluation_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import task_ids
from rl_agents.inference.model_shape import context_limit, read_config
from rl_agents.inference.select import resolve_engine
from rl_agents.resources import placement, run_bundles
from rl_agents.rollout.tree_search.picture import draw_search
from rl_agents.trainer.algorithm_config import BaseAgentConfig
from rl_agents.trainer.ray_init import quiet_libraries
from rl_agents.trainer.resolve import check_context, resolve
from rl_agents.trainer.run_checkpoints import RunCheckpoints
from rl_agents.trainer.warm_start import ensure_model


class AgentConfig(BaseAgentConfig):
    """Configuration of an `AgentAlgorithm`, and how to build one.

    >>> config = AgentConfig().environment("guess_numbers").training(algo="grpo", lr=3e-4)  # doctest: +SKIP
    >>> algo = config.build_algo()  # doctest: +SKIP
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or AgentAlgorithm)

    def build_algo(self, **kwargs: Any) -> AgentAlgorithm:  # type: ignore[override]
        """Check everything, build the starter model if it is asked for and absent, and start actors."""
        return self.algo_class(config=self, **kwargs)  # type: ignore[no-any-return]

    def completed(self) -> AgentConfig:
        """A resolved copy whose RLlib fields follow from ``agent``."""
        config = self.copy(copy_frozen=False)
        config.agent = resolve(self.agent)
        config.model_dir = self.model_dir or str(ensure_model(config.agent, AgentAlgorithm.from_settings))
        if resolve_engine(config.agent.engine)[0] == "vllm":  # which would say so on many lines, and late
            check_context(config.agent, context_limit(read_config(config.model_dir)))
        config.apply_settings()
        return config


class AgentAlgorithm(RunCheckpoints):
    """RLlib algorithm whose experience is token rows of LLM agents.

    ``train()`` returns RLlib's result with our metrics under ``agent`` (see docs/reference/metrics.md). Build one with
    `AgentConfig.build_algo`.
    """

    @classmethod
    def get_default_config(cls) -> AgentConfig:
        return AgentConfig()

    @classmethod
    def from_settings(cls, settings: Settings) -> AgentAlgorithm:
        """Build the algorithm of a run."""
        return AgentConfig.from_settings(settings).build_algo()

    @classmethod
    def default_resource_request(cls, config: Any) -> Any:
        """Tune's hook, for sweeps of this class itself: all bundles of a run."""
        agent = config.agent if isinstance(config, AgentConfig) else AgentConfig().update_from_dict(config).agent
        return placement(run_bundles(agent))

    def __init__(self, config: Any = None, env: Any = None, **kwargs: Any) -> None:
        quiet_libraries()
        super().__init__(config=config.completed() if isinstance(config, AgentConfig) else config, env=env, **kwargs)

    @classmethod
    def from_checkpoint(cls, path: Any, *args: Any, **kwargs: Any) -> AgentAlgorithm:
        """Build an algorithm from a checkpoint folder's own configuration and restore it."""
        algo = cls.from_settings(Settings.restored(load_recipe(str(Path(path) / "config.yaml"))))
        algo.restore_run_checkpoint(Path(path))
        return algo

    # --- evaluation --------------------------------------------------------------------------------------------

    def evaluate_policy(
        self, split: str = "test", episodes: int = 128, temperature: float = 1.0, seed: int = 0
    ) -> list[Trajectory]:
        """Play tasks with the current policy, the same ones for every seed; tasks repeat where the set is smaller."""
        tasks = task_ids(self.settings.env, split, self.settings.env_options)
        return self.play(evaluation_specs(tasks, episodes, seed), temperature)

    def play(self, specs: Sequence[EpisodeSpec], temperature: float | None = None) -> list[Trajectory]:
        """Play episodes without learning from them; ``temperature`` None samples as in training."""
        workers = self._started_workers()
        with self.pipeline.paused():
            self._sync_engines()
            return workers.collector.collect(specs, temperature).answers

    def draw(self, folder: Path) -> None:
        """Write the pictures that only this algorithm has: of a search, ``search_tree.png``."""
        if self.explorer is not None:
            draw_search(self.explorer, folder / "search_tree.png")
