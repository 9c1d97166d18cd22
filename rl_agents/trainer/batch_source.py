"""Where a run's batches come from: env runners, a pool's recorded sessions, or demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.orchestrator.offline_dataset import Recorded
from rl_agents.orchestrator.older_policies import OlderPolicies
from rl_agents.orchestrator.rollout_batch import Demonstrations, Episodes
from rl_agents.orchestrator.rollout_buffer import BatchBuffer, Given, Producer, Sampled
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.orchestrator.streaming_rollouts import StreamBuffer
from rl_agents.rewards.base import make_reward

Buffer = BatchBuffer | StreamBuffer


def open_recorded(settings: Settings, model_dir: str) -> Recorded | None:
    """Return the sessions of the key ``pool``; None if it is not set. Raises as `Recorded.open` does."""
    if not settings.pool:
        return None
    shape = model_shape(read_config(model_dir))
    return Recorded.open(settings, ALGORITHMS[settings.algo], shape.vocabulary if shape else None)


def make_buffer(
    settings: Settings, model_dir: str, tasks: Sequence[str], recorded: Recorded | None,
    workers: Callable[[], RolloutWorkers], learners: Callable[[], AgentLearnerGroup], older: OlderPolicies | None,
) -> Buffer:  # fmt: skip
    """Return the source of a run's batches.

    Args:
        recorded: recorded sessions to train on; None: the run samples.
        older: opponents in games.
    """
    recipe = ALGORITHMS[settings.algo]
    source = recipe.source
    sampled = Sampled(Episodes(settings, recipe, make_reward(settings), tasks, older), workers, learners)
    if settings.stream and source == "rollouts" and recorded is None:
        return StreamBuffer(sampled, settings.iterations)
    producer: Producer = sampled
    if recorded is not None:
        producer = Given(recorded.next, lambda: map(",".join, recorded.groups))
    elif source == "demonstrations":
        demonstrations = Demonstrations(settings, model_dir)
        producer = Given(lambda iteration, position: demonstrations.next(iteration), demonstrations.names)
    ahead = bool(settings.async_level and settings.num_env_runners and source == "rollouts")
    return BatchBuffer(producer, settings.async_level, settings.iterations, ahead=ahead)
