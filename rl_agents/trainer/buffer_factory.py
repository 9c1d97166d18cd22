"""Which pipeline a run has: who makes its batches, and whether they are made beside the learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rl_agents.algorithms import ALGORITHMS
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.async_rollouts import Ahead
from rl_agents.orchestrator.offline_dataset import Recorded
from rl_agents.orchestrator.rollout_batch import Demonstrations, Episodes
from rl_agents.orchestrator.rollout_buffer import Given, Pipeline, Producer, Sampled
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.streaming_rollouts import Stream
from rl_agents.rewards.base import make_reward
from rl_agents.trainer.algorithm_config import BaseAgentConfig


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
