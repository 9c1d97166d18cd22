"""Which checkpoints of a run outlive newer ones."""

from __future__ import annotations

from collections.abc import Sequence

from rl_agents.config import Settings
from rl_agents.reporting import collapse_monitor
from rl_agents.reporting.run_folder import Record, RunFolder


def best_iteration(records: Sequence[Record], settings: Settings) -> int | None:
    """Iteration of the best evaluation of trained weights, the first of equals; None with ``keep_best=false``."""
    rates = {r["iteration"]: rate for r in records if (rate := r.get("eval/success_rate")) is not None}
    rates.pop(0, None)
    return max(rates, key=rates.__getitem__, default=None) if settings.keep_best else None


def kept_iterations(records: Sequence[Record], settings: Settings, folder: RunFolder) -> set[int | None]:
    """Iterations whose checkpoints outlive newer ones; while the guard may go back to them, the start, too."""
    kept: set[int | None] = {best_iteration(records, settings)}
    if settings.guard == "restore" and not collapse_monitor.restored_to(records):
        there = [iteration for iteration, _ in folder.complete_checkpoints()]
        kept |= {0, collapse_monitor.best_checkpoint(records, there)}
    return kept
