"""Weights & Biases, MLflow and trackio, as `rl_agents.reporting.trackers` speaks to them; imported when opened."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rl_agents.reporting.trackers import TRACKERS, TrackedRun, TrackerEntry, Trackers, check_trackers, register_tracker

__all__ = ["TRACKERS", "Trackers", "check_trackers"]

#: Longest value that MLflow takes for a parameter.
LONGEST_PARAMETER = 500
ENDED = {"done": "FINISHED", "interrupted": "KILLED", "fell": "FAILED", "failed": "FAILED"}


class WandbTracker:
    """Weights & Biases; ``WANDB_MODE=offline`` writes below the run's folder, for ``wandb sync``."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._wandb: Any = wandb
        self._run: Any = wandb.init(
            project=run.project, name=run.name, group=run.group or None, config=dict(run.config), dir=str(run.folder),
            id=run.known_as or None, resume="allow" if run.known_as else None,
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self.id = str(self._run.id)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=iteration)

    def episodes(self, iteration: int, text: str) -> None:
        """A table with one row; the metrics of the iteration come behind it."""
        table = self._wandb.Table(columns=["iteration", "episodes"], data=[[iteration, text]])
        self._run.log({"eval/episodes": table}, step=iteration)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "done" else 1)


class MlflowTracker:
    """MLflow; ``MLFLOW_TRACKING_URI`` says where, else a store in the current folder, as MLflow itself has it."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        self._metric: Any = Metric
        self._client: Any = MlflowClient()
        self.id = run.known_as or self._create(run, Param, RunTag)
        self._client.update_run(self.id, status="RUNNING")

    def _create(self, run: TrackedRun, parameter: Any, tag: Any) -> str:
        found = self._client.get_experiment_by_name(run.project)
        experiment = found.experiment_id if found else self._client.create_experiment(run.project)
        made = self._client.create_run(experiment, tags={"mlflow.runName": run.name, "group": run.group})
        parameters = [parameter(name, str(value)[:LONGEST_PARAMETER]) for name, value in run.config.items()]
        for start in range(0, len(parameters), 100):  # as many as one call takes
            self._client.log_batch(made.info.run_id, params=parameters[start : start + 100])
        return str(made.info.run_id)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        values = [self._metric(tag.replace("+", "p"), value, now, iteration) for tag, value in metrics.items()]
        self._client.log_batch(self.id, metrics=values)

    def episodes(self, iteration: int, text: str) -> None:
        """An artifact per evaluation."""
        self._client.log_text(self.id, text, f"episodes/{iteration:06d}.md")

    def close(self, status: str) -> None:
        self._client.set_terminated(self.id, ENDED.get(status, "FAILED"))


class TrackioTracker:
    """trackio: a local database, looked at with ``trackio show``."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self.id = run.known_as or run.name
        resume = {"resume": "must"} if run.known_as else {}
        self._run: Any = trackio.init(project=run.project, name=self.id, config=dict(run.config), embed=False, **resume)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=iteration)

    def episodes(self, iteration: int, text: str) -> None:
        """A text beside the numbers."""
        self._run.log({"eval/episodes": text}, step=iteration)

    def close(self, status: str) -> None:
        self._run.finish()


register_tracker(TrackerEntry("wandb", WandbTracker, "wandb", "pip install wandb"))
register_tracker(TrackerEntry("mlflow", MlflowTracker, "mlflow", "pip install mlflow-skinny"))
register_tracker(TrackerEntry("trackio", TrackioTracker, "trackio", "pip install trackio"))
