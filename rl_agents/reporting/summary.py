"""The summary of a run: what ``summary.json`` says when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rl_agents.reporting import collapse_monitor
from rl_agents.reporting.run_folder import Record, RunFolder
from rl_agents.reporting.trainable import TrainableAgent


def run_summary(
    algo: TrainableAgent, folder: RunFolder, records: Sequence[Record], status: str, completed: int, restarts: int,
    best_checkpoint: int | None,
) -> Record:  # fmt: skip
    """Return what ``summary.json`` holds.

    Args:
        records: of all iterations, see `RunFolder.read_metrics`.
        status: done, interrupted, fell, or failed.
        completed: iterations.
        restarts: of learners.
        best_checkpoint: iteration whose checkpoint is the best.
    """
    settings, checkpoints = algo.settings, folder.complete_checkpoints()
    evaluations = [r for r in records if r.get("eval/success_rate") is not None]
    start = next((r for r in evaluations if r["iteration"] == 0), None)
    end = next((r for r in evaluations if r["iteration"] == settings.iterations), None)
    best = max(evaluations, key=lambda r: r["eval/success_rate"], default=None)
    last = records[-1] if records else {}
    return {
        "status": status,
        "algorithm": settings.algo,
        "env": settings.env,
        "engine": algo.engine_description,
        "seed": settings.seed,
        **_evaluation("success_start", start),
        **_evaluation("success_end", end),
        **_evaluation("success_best", best),
        "success_best_iteration": best["iteration"] if best else None,
        "iterations": completed,
        "seconds": round(last.get("seconds", 0.0), 2),
        "cpu_seconds": round(last.get("cpu_seconds", 0.0), 2),
        "sampled_tokens": _sum(records, "rollout/response_tokens") + _sum(records, "guard/response_tokens"),
        "rollout_turns": _sum(records, "rollout/turns"),
        "episodes": _sum(records, "rollout/episodes"),
        "failed_episodes": _sum(records, "rollout/failed_episodes"),
        "learner_restarts": restarts,
        "policy_start": next(
            (r[collapse_monitor.START] for r in records[::-1] if r.get(collapse_monitor.START) is not None), None
        ),
        "policy_end": next(
            (r[collapse_monitor.SUCCESS] for r in records[::-1] if r.get(collapse_monitor.SUCCESS) is not None), None
        ),
        "restored_to": next(iter(collapse_monitor.restored_to(records)), None),
        "checkpoint_best": next((_relative(folder, path) for n, path in checkpoints if n == best_checkpoint), None),
        "checkpoint": _relative(folder, checkpoints[-1][1]) if checkpoints else None,
    }


def _relative(folder: RunFolder, path: Path) -> str:
    return str(path.relative_to(folder.path))


def _sum(records: Sequence[Record], tag: str) -> int:
    return round(sum(record.get(tag) or 0 for record in records))


def _evaluation(name: str, record: Record | None) -> Record:
    interval = [record["eval/success_low"], record["eval/success_high"]] if record else None
    return {name: record["eval/success_rate"] if record else None, f"{name}_interval": interval}
