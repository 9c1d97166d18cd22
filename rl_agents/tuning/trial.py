"""A trial of a sweep: the train loop of ``run.py``, one iteration per Tune step."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from rl_agents.config import Settings
from rl_agents.errors import EpisodesFail, InputError, PolicyFell, unknown
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import Record, RunFolder
from rl_agents.resources import placement
from rl_agents.store.files import Lock
from rl_agents.trainer.train_loop import TrainLoop
from rl_agents.tuning.sweep import Sweep

if TYPE_CHECKING:
    from rl_agents.trainer.algorithm import AgentAlgorithm

#: Seconds to wait for the trial's previous process, which may still write its last checkpoint.
PREDECESSOR_S = 300.0
#: Keys of a result that schedulers read.
ITERATION, VALUE = "iteration", "value"
#: Reasons for an early end.
DIVERGED, BAD_INPUT = "diverged", "bad_input"
#: Key of a result: new lines for the user.
NOTES = "notes"


class SweepTrial(tune.Trainable):
    """A run in ``OUTPUT/trials/NAME``, an ordinary run folder.

    Tune's config has shared values (``sweep``, ``output``) and ``trial``: ``name``, ``bundles`` and the resolved
    ``settings``. Tune saves no checkpoints: a trial that starts again continues from the newest one of its run folder,
    with the keys of its config.yaml.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Return all bundles of the run, so that Tune starts it only if its actors also fit."""
        return placement(config["trial"]["bundles"])

    def _setup_logdir(self) -> None:
        """Create no folder in ~/ray_results outside of Tune."""
        if self._storage is not None:
            super()._setup_logdir()

    def setup(self, config: dict[str, Any]) -> None:
        """Build the run's algorithm; Tune then calls `step`."""
        self.sweep: Sweep = config["sweep"]
        self.output = Path(config["output"])
        self._build(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial in the same process, without new imports."""
        self.cleanup()
        self._build(new_config)
        return True

    def _build(self, config: Mapping[str, Any]) -> None:
        self.loop: TrainLoop | None = None
        self.algo: AgentAlgorithm | None = None
        self.lock: Lock | None = None
        self.value, self.notes, self.problem = math.nan, Notes(), ""
        #: Checkpoint to continue from; None: a new run.
        self.start: Path | None = None
        self.folder = RunFolder(self.output / "trials" / config["trial"]["name"])
        try:
            # Tune restarts a failed trial while its previous process may still be ending in the same folder.
            self.folder.path.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a shared file system without locks
                self.lock = Lock(self.folder.path / "run", PREDECESSOR_S, "one process at a time")
            complete = self.folder.complete_checkpoints()
            self.start = complete[-1][1] if complete else None
            self.algo = self._algorithm(config["trial"]["settings"])
        except InputError as error:
            self.problem = str(error)
        except Exception:
            self._keep_traceback()
            raise

    def _algorithm(self, settings: Settings) -> AgentAlgorithm:
        from rl_agents.trainer.algorithm import AgentAlgorithm

        begun = self.start is not None and self.folder.config_file.is_file()
        return AgentAlgorithm.from_settings(self.folder.load_settings() if begun else settings)

    def step(self) -> dict[str, Any]:
        """Run one iteration; the result has its number, the last value of the sweep's metric, and notes."""
        result = self._step()
        return {**result, NOTES: self.notes.taken()} if self.notes.lines else result

    def _step(self) -> dict[str, Any]:
        if self.problem:
            return self._end(BAD_INPUT, self.problem)
        try:
            if self.loop is None:
                self.loop = self._begin()
            record = self.loop.advance()
            self._note_value(record)
        except (InputError, EpisodesFail) as error:
            return self._end(BAD_INPUT, str(error))
        except PolicyFell as error:
            return self._end(DIVERGED, str(error))
        except Exception:
            self._keep_traceback()
            raise
        if self.sweep.metric in record and not math.isfinite(self.value):
            reason = f"{self.sweep.metric} is not finite at iteration {record['iteration']}"
            return self._end(DIVERGED, reason)
        if self.loop.finished:
            self.loop.close("done")
            self.loop = None
            return {ITERATION: record["iteration"], VALUE: self.value, "done": True}
        return {ITERATION: record["iteration"], VALUE: self.value}

    def _begin(self) -> TrainLoop:
        assert self.algo is not None
        if self.start is not None:
            self.algo.restore_run_checkpoint(self.start)
        self.folder.make_parts()
        # -1: discard everything of a run without a checkpoint.
        self.folder.cut_after(self.algo.iteration if self.start is not None else -1)
        self.folder.save_settings(self.algo.settings)
        known = [record for record in self.folder.read_metrics() if record.get(self.sweep.metric) is not None]
        self.value = float(known[-1][self.sweep.metric]) if known else math.nan
        return TrainLoop(self.algo, self.folder, self.notes, Interrupts())

    def _note_value(self, record: Record) -> None:
        metric = self.sweep.metric
        if metric in record:
            self.value = float(record[metric])
        elif math.isnan(self.value):
            before = self.folder.read_metrics()
            self.value = next((float(r[metric]) for r in before if r.get(metric) is not None), math.nan)
            if math.isnan(self.value):
                tags = {tag for r in [*before, record] for tag in r if "/" in tag}
                raise unknown("metric", metric, tags)

    def _end(self, why: str, reason: str) -> dict[str, Any]:
        """End the trial without a restart, which would end the same way."""
        iteration = self.algo.iteration if self.algo is not None else 0
        if self.loop is not None:
            self.loop.save()
            self.loop.close("failed")
            self.loop = None
        return {ITERATION: iteration, VALUE: math.nan, why: reason, "done": True}

    def _keep_traceback(self) -> None:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        (self.folder.path / "error.log").write_text(traceback.format_exc(), encoding="utf-8")

    def cleanup(self) -> None:
        """Save an unfinished run, free its actors, and release its lock."""
        loop, algo, lock = self.loop, self.algo, self.lock
        self.loop = self.algo = self.lock = None
        with contextlib.ExitStack() as at_last:
            if lock is not None:
                at_last.callback(lock.release)
            if algo is not None:
                at_last.callback(algo.stop)
            if loop is not None:
                loop.save()
                loop.close("interrupted")


class Notes(Progress):
    """Progress of a trial: the driver of the sweep prints its notes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def note(self, text: str) -> None:
        self.lines.append(text.removeprefix("[rl_agents] "))

    def update(self, record: Mapping[str, Any], total: int) -> None:
        """Nothing to show."""
