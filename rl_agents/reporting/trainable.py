"""The interface between an algorithm and the code that drives a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from rl_agents.config import Settings
from rl_agents.data.trajectory import Trajectory


class TrainableAgent(Protocol):
    """What the loop needs of an algorithm.

    An optional attribute ``learning`` is false only while `train` can be left without a trace: from its start to
    the first optimizer step. There a signal ends the rollouts at once; otherwise, and where the attribute is
    missing, it waits for the iteration under way. An optional method ``draw(folder)`` writes pictures of the
    algorithm's own; it is called with every checkpoint. An optional method ``open_pool(file)`` is called once, before
    the first iteration. An optional attribute ``max_staleness`` counts the last iteration's steps by their staleness.
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def iteration(self) -> int:
        """Completed iterations."""
        ...

    @property
    def engine_description(self) -> str: ...

    @property
    def last_trajectories(self) -> list[Trajectory]: ...

    def train(self) -> dict[str, Any]:
        """Do one iteration; ``result["agent"]`` holds its metrics by tag."""
        ...

    def evaluate_policy(
        self, split: str = "test", episodes: int = 128, temperature: float = 1.0, seed: int = 0
    ) -> list[Trajectory]:
        """Run episodes of a task set without training."""
        ...

    def save_run_checkpoint(self, folder: Path) -> None:
        """Write everything that a resumed run needs; ``folder`` appears only when it is complete."""
        ...

    def restore_run_checkpoint(self, folder: Path) -> None: ...

    def go_back(self, folder: Path) -> None:
        """Load the weights, optimizers and states of a checkpoint; iterations, tasks and seeds continue."""
        ...

    def restart_learners(self, checkpoint: Path | None) -> None:
        """Replace all learners; the new ones continue from ``checkpoint``, or from the beginning."""
        ...

    def stop(self) -> None: ...
