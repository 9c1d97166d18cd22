"""What the children of a state earn: eq. 2 of 3SPO on the statistics, with every part switchable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl_agents.credit.statistics import FloatArray
from rl_agents.credit.three_spo import novelty, novelty_weight, rollout_count
from rl_agents.search.statistics import StateStatistics
from rl_agents.search.tree import Node


def step_rewards(
    parent: Node, children: Sequence[Node], ended: Sequence[bool], won: Sequence[bool], statistics: StateStatistics
) -> FloatArray:
    """R = ω·R_novel + (½ - ω)·progress + w·R_success of every child, from the statistics before these steps.

    ω is ½·exp(-γ_w·N(s)), a constant with ``novelty_fixed``, and 0 with ``novelty=none``. Progress and w are keys
    (``score_difference``, ``success_weight``); with the defaults this is eq. 2 (`rl_agents.credit.three_spo`).

    Args:
        parent: the state s.
        children: [children], states s'.
        ended: [children], the trajectory ended there.
        won: [children], and was solved.
    """
    settings = statistics.settings
    success = np.array(won, dtype=np.float64)
    omega = _novelty_weight(parent, statistics)
    novel = np.array([_novel(parent, child, statistics) for child in children]) if omega else np.zeros(len(children))
    progress = _progress(parent, children, np.array(ended, dtype=bool), success, statistics)
    rewards: FloatArray = omega * novel + (0.5 - omega) * progress + settings.success_weight * success
    return rewards


def _novelty_weight(parent: Node, statistics: StateStatistics) -> float:
    settings = statistics.settings
    if settings.novelty == "none":
        return 0.0
    total, _ = statistics.count(parent.key)
    return float(novelty_weight(total, decay=settings.novelty_decay, fixed=settings.novelty_fixed or None))


def _novel(parent: Node, child: Node, statistics: StateStatistics) -> float:
    settings = statistics.settings
    assert settings.novelty != "none"
    total, _ = statistics.count(child.key)
    path = [node.key for node in parent.path()] if settings.novelty == "first_in_trajectory" else ()
    # A count of many iterations ago may have faded to next to nothing; the state has been seen all the same.
    seen = 1 if total > 0 else 0
    return novelty(parent.key, child.key, mode=settings.novelty, next_total=seen, path=path)


def _progress(
    parent: Node, children: Sequence[Node], ended: FloatArray, success: FloatArray, statistics: StateStatistics
) -> FloatArray:
    """S(s) - S(s'), or for ``score_difference=value`` γ·p(s') - p(s), with the ends' own conventions."""
    settings, keys = statistics.settings, [child.key for child in children]
    if settings.score_difference == "none":
        return np.zeros(len(children))
    if settings.score_difference == "value":
        here = float(statistics.success_rate([parent.key], statistics.overall_rate())[0])
        rates = statistics.success_rate(keys, here)
        if statistics.chain is None:
            rates = np.array([_found_out(child, rate) for child, rate in zip(children, rates, strict=True)])
        there = np.where(ended, success, settings.gamma * rates)
        return np.asarray(there - here)
    gated = settings.score_difference == "gated"
    score = (lambda k, d: statistics.score(k, d).score) if gated else statistics.open_score
    before, after = score([parent.key], parent.depth)[0], score(keys, parent.depth + 1)
    # In the released code no end is ever counted, so that it stays unseen, solved or not.
    counted = settings.state_terminal == "counted"
    after = np.where(success > 0, 0.0, after) if counted else np.where(ended, 1.0, after)
    return np.asarray(before - after)


def _found_out(child: Node, rate: float) -> float:
    """The child's success rate in its own search; ``rate`` before anything that passed it has ended."""
    node = child.twin or child
    return node.solved / node.finished if node.finished else rate


def allocation(node: Node, statistics: StateStatistics) -> tuple[float, int]:
    """(S, n(s)) of a state: n = ceil(G_max·S), 0 where the gate is closed (eq. 3), or G_max everywhere."""
    settings, found = statistics.settings, statistics.score([node.key], node.depth)
    score = float(found.score[0])
    if settings.search_rollouts == "uniform":
        return score, settings.group_size
    return score, int(rollout_count(found.score, found.open, maximum=settings.group_size)[0])
