"""What a run saves and how it goes on: resumed, gone back, or with new learners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_agents.learner.learner_group import start_learners
from rl_agents.trainer.checkpoint import Counters, restore_policy, restore_run, save_run, write_atomically
from rl_agents.trainer.training_step import OneIteration


class RunCheckpoints(OneIteration):
    """Writes checkpoints (`rl_agents.trainer.checkpoint`) and goes on from them, by its own names, RLlib's and
    Tune's."""

    def save_run_checkpoint(self, folder: Path) -> None:
        """Write a checkpoint; it appears under its name when it is complete."""
        write_atomically(Path(folder), self._fill_checkpoint)
        if self.pool is not None:
            self.pool.checkpoint(self.iteration)

    def _fill_checkpoint(self, folder: Path) -> None:
        in_flight, bad, workers = self.pipeline.settle(), self.place.bad, self.rollout_workers
        if self.pool is not None:
            self.pool.add_calls(in_flight)
        counters = Counters(
            self.iteration, self.policy_version, self.place.position,
            dict(bad.left_out), dict(bad.strikes), dict(workers.collector.losses.deaths) if workers is not None else {},
            self.pool.id if self.pool is not None else "", self.pipeline.in_flight(),
        )  # fmt: skip
        save_run(folder, self.learner_group, counters, self.settings, self.explorer, self.memory)

    def restore_run_checkpoint(self, folder: Path) -> None:
        """Go on exactly where `save_run_checkpoint` was called; raises as `restore_run` does."""
        group, settings = self.learner_group, self.settings
        self._set_counters(restore_run(Path(folder), group, settings, self.explorer, self.memory))
        self._resume_pool()

    def go_back(self, folder: Path) -> None:
        """Take up the weights, optimizers and states of a checkpoint; iterations, tasks and seeds go on.

        With the old counters the run would sample what it sampled before, and fall again. Episodes that the present
        weights have played ahead are given up.
        """
        restore_policy(Path(folder), self.learner_group, self.settings, self.explorer, self.memory)
        bad, version = self.place.bad, self.policy_version + 1
        self._set_counters(  # deaths of env runners are known to the workers still
            Counters(
                self.iteration, version, self.place.position, dict(bad.left_out), dict(bad.strikes),
                pool=self._restored_pool,
            )
        )  # fmt: skip

    def restart_learners(self, checkpoint: Path | None) -> None:
        """Replace all learners by new ones that go on from ``checkpoint``; None: from the beginning."""
        self.learner_group.abandon()
        self.learner_group = start_learners(self.config)
        if checkpoint is None:
            self._begin_anew()
            self._resume_pool()
        else:
            self.restore_run_checkpoint(checkpoint)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray Tune's hook; the same format."""
        self._fill_checkpoint(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray Tune's hook."""
        self.restore_run_checkpoint(Path(checkpoint_dir))

    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """RLlib's name for `save_run_checkpoint`."""
        self.save_run_checkpoint(Path(path))
        return str(path)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """RLlib's name for `restore_run_checkpoint`."""
        self.restore_run_checkpoint(Path(path))
