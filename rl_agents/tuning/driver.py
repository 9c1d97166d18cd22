"""Running a sweep: pass the remaining trials to Tune, monitor them, and stop on a signal.

Trials run to the end unless ASHA stops them. Tune does not save its schedulers, so `Tuner.restore` would lose ASHA's
results; a resumed sweep passes the remaining trials to a new `Tuner`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from rl_agents.config import Settings
from rl_agents.durable import read_json, replace_text
from rl_agents.errors import InputError
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.resources import cluster_nodes, named_bundles, obstacle, run_bundles, set_engine_gpus
from rl_agents.tuning.sweep import Sweep, TrialSpec
from rl_agents.tuning.trial import BAD_INPUT, DIVERGED, ITERATION, NOTES, VALUE, SweepTrial

#: Trial name -> (iteration, value) of every iteration before the sweep stopped.
History = Mapping[str, Sequence[tuple[int, float]]]


def make_scheduler(sweep: Sweep, iterations: int, history: History) -> TrialScheduler:
    """Return the sweep's scheduler.

    Args:
        iterations: of the longest trial.
        history: earlier results of a resumed sweep.
    """
    if sweep.asha is not None:
        asha = sweep.asha
        return ResumableAsha(
            history, metric=VALUE, mode=sweep.mode, time_attr=ITERATION, max_t=iterations,
            grace_period=min(asha.grace, iterations), reduction_factor=asha.reduction,
            stop_last_trials=False,  # trials end after their last evaluation
        )  # fmt: skip
    return FIFOScheduler()


class ResumableAsha(AsyncHyperBandScheduler):
    """ASHA with the earlier results of a resumed sweep, including those of finished trials."""

    def __init__(self, history: History, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._history = dict(history)
        for name in self._history:
            stand_in = SimpleNamespace(trial_id=name)
            super().on_trial_add(None, stand_in)
            self._replay(stand_in, name)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Add a trial; a resumed one replaces its stand-in, so that it counts once at each rung."""
        super().on_trial_add(tune_controller, trial)
        name = trial.custom_dirname
        if name in self._history:
            for bracket in self._brackets:
                for _, recorded in bracket._rungs:
                    recorded.pop(name, None)
            self._replay(trial, name)

    def _replay(self, trial: Any, name: str) -> None:
        for iteration, value in self._history[name]:
            super().on_trial_result(None, trial, {ITERATION: iteration, VALUE: value})


#: Seconds between checks of the cluster, and for which it must be too small before the sweep ends.
LOOK_S, PATIENCE_S = 10.0, 60.0
STOPPED_EARLY, FAILED = "stopped early", "failed"


class SweepFolder:
    """The folder of a sweep: ``sweep.yaml``, ``outcomes.json``, ``results.*``, ``best.yaml`` and trials."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes_file = path / "outcomes.json"
        #: Trial name -> ``status`` and ``reason`` of trials that ended early.
        self.outcomes: dict[str, dict[str, str]] = {}
        if self.outcomes_file.exists():
            self.outcomes = read_json(self.outcomes_file, dict)

    def trial(self, spec: TrialSpec) -> RunFolder:
        return RunFolder(self.path / "trials" / spec.name)

    def is_done(self, spec: TrialSpec) -> bool:
        return self.trial(spec).read_summary().get("status") == "done"

    def note(self, name: str, status: str, reason: str = "") -> None:
        self.outcomes[name] = {"status": status, "reason": reason}
        self._write()

    def begin(self, sweep: Sweep) -> None:
        """Write the files of a resumable sweep, and reset failed trials."""
        (self.path / "trials").mkdir(parents=True, exist_ok=True)
        replace_text(self.path / "sweep.yaml", sweep.to_yaml())
        self.outcomes = {name: o for name, o in self.outcomes.items() if o["status"] not in (FAILED, BAD_INPUT)}
        self._write()

    def left(self, sweep: Sweep) -> list[TrialSpec]:
        """Return the trials that are not finished; failed ones are repeated."""
        over = {name for name, o in self.outcomes.items() if o["status"] not in (FAILED, BAD_INPUT)}
        return [spec for spec in sweep.trials if spec.name not in over and not self.is_done(spec)]

    def _write(self) -> None:
        replace_text(self.outcomes_file, json.dumps(self.outcomes, indent=1))


def run_sweep(sweep: Sweep, folder: SweepFolder, settings: Mapping[str, Settings], interrupts: Interrupts) -> str:
    """Run all unfinished trials, until they end or a signal stops the sweep.

    Args:
        folder: the sweep's folder; trials continue from their checkpoints there.
        settings: resolved settings of each trial, by name.
        interrupts: signals; the first one stops all trials after their current iteration.

    Returns:
        Why the remaining trials can no longer start because the cluster shrank; else empty.

    Raises:
        InputError: a trial can never start; nothing is written.
    """
    left = folder.left(sweep)
    gpus = ray.cluster_resources().get("GPU", 0.0)
    for chosen in settings.values():
        set_engine_gpus(chosen, gpus)
    if not sweep.autoscaling:
        check_room(left, settings)
    folder.begin(sweep)
    if not left:
        return ""
    watch = SweepMonitor(sweep, folder, settings, interrupts)
    internal = folder.path / ".tune"
    shutil.rmtree(internal, ignore_errors=True)
    quiet_tune()
    _tuner(sweep, folder, left, settings, watch).fit()
    shutil.rmtree(internal, ignore_errors=True)
    return watch.too_small


def check_room(specs: Sequence[TrialSpec], settings: Mapping[str, Settings]) -> None:
    """Check that all trials can start on the current cluster.

    Raises:
        InputError: a trial does not fit; the message has the required and available resources.
    """
    nodes = cluster_nodes()
    for spec in specs:
        if problem := obstacle(named_bundles(settings[spec.name]), nodes, "a trial"):
            raise InputError(f"trial {spec.name} can never start: {problem}")


def _tuner(
    sweep: Sweep, folder: SweepFolder, left: Sequence[TrialSpec], settings: Mapping[str, Settings], watch: SweepMonitor
) -> tune.Tuner:
    trials = [
        {"name": spec.name, "bundles": run_bundles(settings[spec.name]), "settings": settings[spec.name]}
        for spec in left
    ]
    shared = {"sweep": sweep, "output": str(folder.path)}
    history = {spec.name: values for spec in sweep.trials if (values := known_values(sweep, folder, spec))}
    iterations = max(chosen.iterations for chosen in settings.values())
    return tune.Tuner(
        SweepTrial,
        param_space={**shared, "trial": tune.grid_search(trials)},
        tune_config=tune.TuneConfig(
            scheduler=make_scheduler(sweep, iterations, history),
            max_concurrent_trials=sweep.max_concurrent or None,
            # A process imports torch and RLlib once for many small trials.
            reuse_actors=sweep.local,
            trial_dirname_creator=_trial_name,
            trial_name_creator=_trial_name,
        ),
        run_config=tune.RunConfig(
            name=".tune",
            storage_path=str(folder.path),
            failure_config=tune.FailureConfig(max_failures=sweep.max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # the run folder has its own
            callbacks=[watch],
            stop=watch,
            verbose=0,
        ),
    )


def _trial_name(trial: Trial) -> str:
    return str(trial.config["trial"]["name"])


def known_values(sweep: Sweep, folder: SweepFolder, spec: TrialSpec) -> list[tuple[int, float]]:
    """Return (iteration, last known value of the metric) of every completed iteration."""
    values, last = [], None
    for record in folder.trial(spec).read_metrics():
        last = record.get(sweep.metric, last)
        if last is not None and record["iteration"] > 0:
            values.append((int(record["iteration"]), float(last)))
    return values


#: Disable Tune's loggers, SIGINT handler, change of folder and reports.
TUNE_ENVIRONMENT: Mapping[str, str] = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def quiet_tune() -> None:
    """Set Tune's environment variables, and silence messages that `SweepMonitor` replaces."""
    os.environ.update(TUNE_ENVIRONMENT)
    for name in ("ray.tune.tune", "ray.tune.execution.tune_controller"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class SweepMonitor(Callback, Stopper):
    """Print the progress of trials, record their end, and end the sweep after a signal or if the cluster shrank."""

    def __init__(
        self, sweep: Sweep, folder: SweepFolder, settings: Mapping[str, Settings], interrupts: Interrupts
    ) -> None:
        self.sweep, self.folder, self.settings, self.interrupts = sweep, folder, settings, interrupts
        #: Why the remaining trials can never start.
        self.too_small = ""
        self._looked = time.monotonic()
        self._small_since: float | None = None
        self._order = {spec.name: number for number, spec in enumerate(sweep.trials, start=1)}
        self._shown: dict[str, float] = {}
        #: Note without numbers -> trials that had it.
        self._noted: dict[str, set[str]] = {}

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Check every `LOOK_S` whether the cluster has become too small, for example because a node died."""
        now = time.monotonic()
        if self.sweep.autoscaling or now - self._looked < LOOK_S:
            return
        self._looked = now
        waiting = [trial for trial in trials if trial.status == Trial.PENDING]
        idle = waiting and not any(trial.status == Trial.RUNNING for trial in trials)
        problem = ""
        if idle:
            processes = named_bundles(self.settings[waiting[0].custom_dirname])
            problem = obstacle(processes, cluster_nodes(), "a trial")
        self._small_since = (self._small_since or now) if problem else None
        if self._small_since is not None and now - self._small_since >= PATIENCE_S:
            self.too_small = f"trial {waiting[0].custom_dirname} can no longer start: {problem}"

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Print a new value of the metric, and record a trial that diverged or has bad input."""
        name, value = trial.custom_dirname, float(result[VALUE])
        self._pass_on(name, result.get(NOTES, ()))
        for why in (DIVERGED, BAD_INPUT):
            if why in result:
                self.folder.note(name, why, result[why])
                self._say(name, f"{why.replace('_', ' ')}: {result[why]}")
                return
        total = self.settings[name].iterations
        if value == value and (self._shown.get(name) != value or result["done"]):
            self._shown[name] = value
            self._say(name, f"iteration {result[ITERATION]}/{total}, {self.sweep.metric} {value:.3g}")

    def _pass_on(self, name: str, notes: Sequence[str]) -> None:
        """Print each note once per trial, and its advice only with the first trial."""
        for note in notes:
            kind = re.sub(r"\d+", "#", note)
            trials = self._noted.setdefault(kind, set())
            if name not in trials:
                self._say(name, re.split("[:;] ", note)[0] if trials else note)
            trials.add(name)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        name = trial.custom_dirname
        if name not in self.folder.outcomes and trial.last_result[ITERATION] < self.settings[name].iterations:
            reason = f"at iteration {trial.last_result[ITERATION]}"
            self.folder.note(name, STOPPED_EARLY, reason)
            self._say(name, f"{STOPPED_EARLY} {reason}")

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._say(trial.custom_dirname, f"failed, restarts from its last checkpoint ({_last_line(trial)})")

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        name, reason = trial.custom_dirname, _last_line(trial)
        self.folder.note(name, FAILED, reason)
        self._say(name, f"{FAILED} {self.sweep.max_failures + 1} times, not restarted: {reason}")

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return bool(self.interrupts.requested or self.too_small)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles its run configuration; this object stays in this process."""
        return Callback, ()

    def _say(self, name: str, text: str) -> None:
        print(f"trial {self._order[name]}/{len(self._order)} {name.partition('-')[2]}: {text}", flush=True)


def _last_line(trial: Trial) -> str:
    file = Path(trial.error_file) if trial.error_file else None
    text = file.read_text(encoding="utf-8") if file is not None and file.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "its process died"
