"""`AgentConfig`: RLlib's fluent configuration with our settings inside."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rl_agents.algorithms import Settings
from rl_agents.core.resolve import resolve
from rl_agents.core.resources import node_share

if TYPE_CHECKING:
    from rl_agents.core.algorithm import AgentAlgorithm
    from rl_agents.core.learner_group import AgentLearnerGroup

__all__ = ["AgentConfig", "resolve"]


class AgentConfig(AlgorithmConfig):
    """Configuration of an agent's training.

    >>> config = AgentConfig().environment("guess_numbers").training(algo="grpo", lr=3e-4)  # doctest: +SKIP
    >>> algo = config.build_algo()  # doctest: +SKIP

    ``agent`` holds every key (`rl_agents.settings.Settings`); RLlib's own fields follow from it.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        from rl_agents.core.algorithm import AgentAlgorithm
        from rl_agents.rollout.env_runner import TextEnvRunner

        super().__init__(algo_class=algo_class or AgentAlgorithm)
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
    def from_settings(cls, settings: Settings) -> AgentConfig:
        """Wrap settings that `resolve` has completed."""
        config = cls()
        config.agent = copy.deepcopy(settings)
        return config

    def environment(self, env: str | None = None, **options: Any) -> AgentConfig:  # type: ignore[override]
        """Choose the environment; keyword arguments are its own keys (``env.KEY`` on the command line)."""
        if env is not None:
            self.agent.update({"env": env})
        self.agent.update({f"env.{name}": value for name, value in options.items()})
        return self

    def training(self, **keys: Any) -> AgentConfig:  # type: ignore[override]
        """Set any keys of `Settings`.

        Raises:
            InputError: unknown key (the nearest is named) or wrong type.
        """
        self.agent.update(keys)
        return self

    def local(self) -> AgentConfig:
        """No actors: environments, torch engine and learner in this process, so that breakpoints hit."""
        self.agent.make_local()
        return self

    def build_algo(self, **kwargs: Any) -> AgentAlgorithm:  # type: ignore[override]
        """Check everything, build the starter model if it is asked for and absent, and start actors."""
        return self.algo_class(config=self, **kwargs)  # type: ignore[no-any-return]

    def completed(self) -> AgentConfig:
        """A resolved copy whose RLlib fields follow from ``agent``."""
        from rl_agents.core.starter import ensure_model

        config = self.copy(copy_frozen=False)
        config.agent = resolve(self.agent)
        config.model_dir = self.model_dir or str(ensure_model(config.agent))
        config._apply_settings()
        return config

    def _apply_settings(self) -> None:
        """Derive RLlib's fields from ours."""
        agent = self.agent
        self.seed = agent.seed
        self.num_env_runners = agent.num_env_runners
        self.create_local_env_runner = False
        self.num_cpus_per_env_runner = 0.5
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
        from rl_agents.core.learner import AgentLearner

        return AgentLearner

    def get_multi_rl_module_spec(self, **kwargs: Any) -> MultiRLModuleSpec:
        """Policy, and critic and reference where the algorithm needs them."""
        from rl_agents.algorithms import ALGORITHMS
        from rl_agents.core.module import CRITIC, POLICY, REFERENCE, CausalLMModule, ValueModule

        agent = self.agent
        base: dict[str, Any] = {"model_dir": self.model_dir, "dtype": agent.dtype}
        policy = {
            **base,
            "lora_rank": agent.lora_rank,
            "lora_alpha": agent.lora_alpha,
            "gradient_checkpointing": agent.gradient_checkpointing,
        }
        modules = {POLICY: (CausalLMModule, policy)}
        if ALGORITHMS[agent.algo].critic:
            modules[CRITIC] = (ValueModule, base)  # type: ignore[assignment]
        if agent.kl_coef or agent.kl_in_reward_coef:
            modules[REFERENCE] = (CausalLMModule, {**base, "frozen": True})
        specs = {
            name: RLModuleSpec(
                module_class=cls, observation_space=TEXT_SPACE, action_space=TEXT_SPACE, model_config=dict(config)
            )
            for name, (cls, config) in modules.items()
        }
        return MultiRLModuleSpec(rl_module_specs=specs)

    def build_learner_group(self, **kwargs: Any) -> AgentLearnerGroup:
        """Our learner group, fed with ragged rows."""
        from rl_agents.core.learner_group import AgentLearnerGroup

        spec = kwargs.get("rl_module_spec")
        return AgentLearnerGroup(config=self.copy(), module_spec=spec, placement_group=kwargs.get("placement_group"))


def _text_space() -> Any:
    import gymnasium

    return gymnasium.spaces.Text(max_length=1 << 20)


TEXT_SPACE = _text_space()
