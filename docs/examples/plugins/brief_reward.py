"""A reward: success minus a small penalty for each turn."""

from rl_agents.rewards.base import reward


@reward("own-brief", "1 for success, minus 0.05 per turn")
def brief(trajectory):
    """Score one finished episode."""
    return float(trajectory.success) - 0.05 * len(trajectory.steps)
