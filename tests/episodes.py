"""Episodes of the agent loop, whose user errors are raised."""

from typing import Any

from rl_agents.errors import InputError
from rl_agents.rollout.agent_loop import Rollouts, collect_episodes


async def play_episodes(*arguments: Any) -> Rollouts:
    """`collect_episodes`, which a failing test need not ask for its error."""
    rollouts = await collect_episodes(*arguments)
    if rollouts.input_error:
        raise InputError(rollouts.input_error)
    return rollouts
