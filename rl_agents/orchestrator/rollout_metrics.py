"""Metrics of a batch of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rl_agents.data.failures import AGENT_ERROR
from rl_agents.data.samples import Row
from rl_agents.data.step_table import step_spans
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.spec import CUT


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success, return, length and causes; episodes that an environment failed count only as failed."""
    played = [t for t in trajectories if not t.failed]
    metrics = {
        "rollout/episodes": float(len(trajectories)),
        "rollout/failed_episodes": float(len(trajectories) - len(played)),
    }
    for cause, count in Counter(t.end_cause.split(":")[0] for t in trajectories).items():
        metrics[f"end_cause/{cause}"] = count / len(trajectories)
        if cause == AGENT_ERROR:
            metrics["rollout/agent_errors"] = float(count)
    if not played:
        return metrics
    steps = [step for t in played for step in t.steps]
    returns = np.array([t.episode_return for t in played])
    metrics.update(
        {
            "rollout/success_rate": float(np.mean([t.success for t in played])),
            "rollout/return_mean": float(returns.mean()),
            "rollout/return_std": float(returns.std()),
            "rollout/turns_mean": len(steps) / len(played),
            "rollout/turns": float(len(steps)),
            "rollout/response_tokens": float(sum(t.response_tokens for t in played)),
        }
    )
    if steps:
        metrics["rollout/unique_states_per_step"] = len({s.anchor for s in steps}) / len(steps)
        metrics["rollout/length_limited_share"] = float(np.mean([s.finish_reason == "length" for s in steps]))
        metrics["rollout/invalid_action_share"] = float(np.mean([not s.valid for s in steps]))
        metrics["rollout/response_length_mean"] = float(np.mean([len(s.response_ids) for s in steps]))
        if cut := float(np.mean([CUT in s.observation for s in steps])):
            metrics["rollout/observation_cut_share"] = cut
    for name in sorted({name for t in played for name in t.metrics}):
        metrics[f"env/{name}"] = float(np.mean([t.metrics[name] for t in played if name in t.metrics]))
    return metrics


def truncation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """How often a truncation rule fired, when, with what outcome, and roughly what it saved.

    What a truncated episode would have cost is not known. Turns and tokens saved are estimated against the mean
    untruncated episode of the same batch, and absent when there is none; as untruncated episodes are the ones that
    went well, this is rather too little.
    """
    played = [t for t in trajectories if not t.failed]
    cut = [t for t in played if "truncation" in t.facts]
    whole = [t for t in played if "truncation" not in t.facts]
    if not played:
        return {}
    metrics = {"truncation/ratio": len(cut) / len(played)}
    if cut:
        facts = [t.facts["truncation"] for t in cut]
        metrics["truncation/turn_mean"] = float(np.mean([fact["turn"] for fact in facts]))
        metrics["truncation/success_rate"] = float(np.mean([t.success for t in cut]))
        for outcome, count in Counter(fact["outcome"] for fact in facts).items():
            metrics[f"truncation/{outcome.replace(' ', '_')}_share"] = count / len(cut)
    if whole:
        turns, tokens = np.mean([[len(t.steps), t.response_tokens] for t in whole], axis=0)
        metrics["truncation/turns_saved"] = float(sum(turns - len(t.steps) for t in cut))
        metrics["truncation/tokens_saved"] = float(sum(tokens - t.response_tokens for t in cut))
    return metrics


def updates_behind(rows: Sequence[Row], trajectories: Sequence[Trajectory], version: int) -> Counter[int]:
    """Count steps by how many updates the learner has made since their first token was sampled.

    Args:
        rows: what an update trains on; ``Row.trajectory`` counts ``trajectories``.
        version: the learner's, before the update.
    """
    steps = [trajectories[row.trajectory].steps[step] for row in rows for step, *_ in step_spans(row)]
    return Counter(version - step.policy_version for step in steps)


def success_replay_metrics(rows: Sequence[Row], trajectories: Sequence[Trajectory], version: int) -> dict[str, float]:
    """What an update trains on again: episodes, their share of the sampled tokens, and how old they are.

    Args:
        rows, trajectories, version: see `updates_behind`.
    """
    again = [row for row in rows if row.again]
    if not again:
        return {}
    behind = staleness_metrics(updates_behind(again, trajectories, version))
    tokens = [sum(float(row.mask.sum()) for row in part) for part in (again, rows)]
    return {
        "success_replay/episodes": float(len({row.trajectory for row in again})),
        "success_replay/token_share": tokens[0] / max(tokens[1], 1.0),
        "success_replay/staleness_mean": behind["rollout/staleness_mean"],
        "success_replay/staleness_max": behind["rollout/staleness_max"],
    }


def staleness_metrics(counts: Mapping[int, int]) -> dict[str, float]:
    """Mean, 95th percentile and maximum of the staleness of an iteration's steps; nothing where there are none.

    Args:
        counts: steps by staleness (`updates_behind`).
    """
    if not counts:
        return {}
    values = np.repeat(sorted(counts), [counts[value] for value in sorted(counts)])
    return {
        "rollout/staleness_mean": float(values.mean()),
        "rollout/staleness_p95": float(np.percentile(values, 95)),
        "rollout/staleness_max": float(values.max()),
    }
