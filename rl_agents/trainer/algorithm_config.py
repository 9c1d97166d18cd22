"""RLlib's fluent configuration with our settings inside."""

from __future__ import annotations

import copy
from typing import Any, Self

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

from rl_agents.algorithms import Settings
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.rl_modules import module_specs
from rl_agents.resources import node_share, runner_cpus
from rl_agents.rollout.env_runner import TextEnvRunner


class BaseAgentConfig(AlgorithmConfig):
    """Configuration of an agent's training; `rl_agents.trainer.algorithm.AgentConfig` says what it builds.

    ``agent`` holds every key (`rl_agents.config.Settings`); RLlib's own fields follow from it.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.agent = Settings()
        #: Folder of the starting weights; known once the configuration is built.
        self.model_dir: str = ""
        self.env_runner_cls = TextEnvRunner
        # RLlib would gather and spread connector states of env runners, which ours do not have.
        self.merge_env_runner_states = False
        self.broadcast_env_runner_states = False
        self._dont_auto_sync_env_runner_states = True
        self.restart_failed_env_runners = True
        self.ignore_env_runner_failures = True
        self.log_level = "ERROR"
        self._validate_config = False

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Wrap settings that `resolve` has completed."""
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

    def local(self) -> Self:
        """No actors: environments, torch engine and learner in this process, so that breakpoints hit."""
        self.agent.make_local()
        return self

    def apply_settings(self) -> None:
        """Derive RLlib's fields from ours."""
        agent = self.agent
        self.seed = agent.seed
        self.num_env_runners = agent.num_env_runners
        self.create_local_env_runner = False
        self.num_cpus_per_env_runner = runner_cpus(agent)
        self.sample_timeout_s = agent.sample_timeout_s
        self.custom_resources_per_env_runner = node_share(agent.rollout_nodes)
        self.num_learners = agent.num_learners
        self.custom_resources_per_learner = node_share(agent.learner_nodes)
        self.num_gpus_per_learner = agent.gpus_per_learner
        self.num_cpus_per_learner = 0.5 if not agent.gpus_per_learner else 0

    # --- RLlib hooks -------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Our keys are validated by `resolve`; RLlib's checks speak of batches and spaces that we do not use."""

    def get_default_learner_class(self) -> type:
        """Our learner."""
        from rl_agents.learner.learner import (
            AgentLearner,  # imports FSDP: env runners import this module, and do without
        )

        return AgentLearner

    def get_multi_rl_module_spec(self, **kwargs: Any) -> MultiRLModuleSpec:
        """The networks of the run."""
        return module_specs(self.agent, self.model_dir)

    def build_learner_group(self, **kwargs: Any) -> AgentLearnerGroup:
        """Our learner group, fed with ragged rows."""
        spec = kwargs.get("rl_module_spec")
        return AgentLearnerGroup(config=self.copy(), module_spec=spec, placement_group=kwargs.get("placement_group"))
