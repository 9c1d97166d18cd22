"""A reward: success, less a little for every turn."""

from rl_agents.rewards.base import reward


@reward("own-brief", "1 for success, less 0.05 a turn")
def brief(trajectory):
    """Score one finished episode."""
    return float(trajectory.success) - 0.05 * len(trajectory.steps)
