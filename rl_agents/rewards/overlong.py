"""DAPO's soft penalty on responses near the length limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_agents.config import Settings
    from rl_agents.data.trajectory import Trajectory


def overlong_penalty(length: int, maximum: int, cache: int, *, factor: float = 1.0) -> float:
    """clamp(-(|y| - (L_max - L_cache))/L_cache·f, -f, 0): linear inside the cache, added before advantages.

    DAPO (Yu et al. 2025, eq. 13). Overlong *filtering* instead removes such responses from the loss.

    Args:
        length: |y|, sampled tokens.
        maximum: L_max, response budget in tokens.
        cache: L_cache, tokens before the budget over which the penalty grows.
        factor: f, penalty at |y| >= L_max.

    Returns:
        A number in [-f, 0].

    Raises:
        ValueError: not 0 < cache <= maximum, or a negative factor.
    """
    if not 0 < cache <= maximum:
        raise ValueError(f"cache must lie in 1..{maximum}, got {cache}")
    if factor < 0:
        raise ValueError(f"factor must not be negative, got {factor}")
    excess = (length - (maximum - cache)) / cache
    return -factor * min(max(excess, 0.0), 1.0)


def step_penalties(trajectory: Trajectory, settings: Settings) -> list[float]:
    """Return the penalty of every response of an episode."""
    maximum, factor = settings.max_response_tokens, settings.overlong_factor
    cache = settings.overlong_cache or max(1, maximum // 5)
    return [overlong_penalty(len(step.response_ids), maximum, cache, factor=factor) for step in trajectory.steps]
