"""Where T3's rule fires on a sequence of turns."""

from collections.abc import Iterable

from rl_agents.rollout.truncation import StallMode, StallRule, TurnFacts


def fires_at(
    progress: Iterable[bool], k: int, mode: StallMode = "consecutive", *, minimum_turns: int = 0
) -> int | None:
    """1-based turn at which the rule of a fresh episode fires, or None."""
    rule = StallRule(k, mode, minimum_turns)
    turns = (TurnFacts(number, True, moved, "") for number, moved in enumerate(progress, start=1))
    return next((turn.number for turn in turns if rule.fires(turn)), None)
