"""The training loop: train, evaluate, report, save checkpoints, and stop without losing work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rl_agents.data.tasks import measured
from rl_agents.errors import EpisodesFail, LearnerLost, PolicyFell, RolloutError
from rl_agents.inference.base import EngineError
from rl_agents.interrupts import Interrupts
from rl_agents.reporting import collapse_monitor
from rl_agents.reporting.episode_diagnostics import EpisodeWatch
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import Record, RunFolder
from rl_agents.reporting.statistics import evaluation_metrics
from rl_agents.reporting.trackers import Trackers
from rl_agents.reporting.views import TensorBoardLog, episode_rows, plot_success, write_trajectories

if TYPE_CHECKING:
    from rl_agents.trainer.algorithm import AgentAlgorithm


def cpu_seconds() -> float:
    """CPU time of this process and its descendants so far, including actors of a Ray started here."""
    total, me = 0.0, psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


#: Errors that end the rollouts but leave the learners unchanged: a checkpoint can still be written.
NO_EPISODES = (EpisodesFail, RolloutError, EngineError)
#: Tag of a record: number of replacements of lost learners so far.
RESTARTS = "fault/learner_restarts"
#: Seconds before learners are replaced again, times the number of failures in a row.
RESTART_BACKOFF_S = 15.0
#: Replacements of lost learners without progress before the run ends.
MAX_RESTARTS = 3


@dataclass
class TrainLoop:
    """Runs an algorithm from its current iteration to the last: `run`, or `advance` by one iteration and `close`.

    Attributes:
        algo: the algorithm, already restored if the run is resumed.
        folder: the output folder; a resumed run's records end at the algorithm's iteration.
        interrupts: signals; the caller keeps the handlers installed.
    """

    algo: AgentAlgorithm
    folder: RunFolder
    progress: Progress
    interrupts: Interrupts
    _records: list[Record] = field(init=False)
    _started: float = field(init=False)
    _cpu_started: float = field(init=False)

    def __post_init__(self) -> None:
        self._records = self.folder.read_metrics()
        if open_pool := getattr(self.algo, "open_pool", None):  # first: a damaged one is bad input
            open_pool(self.folder.pool)
        self._started = time.monotonic()
        self._cpu_started = cpu_seconds()
        last = self._records[-1] if self._records else {}
        self._seconds_before: float = last.get("seconds", 0.0)
        self._cpu_before: float = last.get("cpu_seconds", 0.0)
        self._completed = self._furthest = self.algo.iteration
        self._clean = True
        self._restarts_in_a_row = 0
        #: Seconds spent on checkpoints since the last iteration.
        self._saving = 0.0
        #: The policy was reported as degraded and has not recovered since.
        self._degraded = False
        #: In the whole run, including the part before it was resumed.
        self._restarts: int = last.get(RESTARTS, 0)
        kept = self.algo.settings.save_trajectories
        self._write_trajectories = partial(write_trajectories, self.folder.trajectories, kept)
        self._tensorboard = TensorBoardLog(self.folder.tensorboard, self._completed if self._records else None)
        settings = self.algo.settings
        self._trackers = Trackers(
            self.folder.path, settings.trackers, settings.tracker_project, settings.to_dict(), self.progress.note
        )
        self._watch = EpisodeWatch(settings)

    def run(self) -> bool:
        """Train to the last iteration; return False when a signal ended the run early (after a checkpoint).

        Raises:
            EpisodesFail: environments failed too many episodes (after a checkpoint).
            RolloutError, EngineError: env runners or engines cannot be restarted (after a checkpoint).
            PolicyFell: the policy degraded, and ``collapse_monitor`` ends the run (after a checkpoint).
        """
        status = "failed"
        try:
            while not self.finished:
                self.advance()
            status = "done"
        except KeyboardInterrupt:
            self.interrupts.requested = True
            status = "interrupted"
            self.save()
        except NO_EPISODES:
            self.save()
            raise
        except PolicyFell:
            status = "fell"
            self.save()
            raise
        finally:
            self.close(status)
        return status == "done"

    @property
    def finished(self) -> bool:
        total = self.algo.settings.iterations
        return self._completed >= total and self._evaluated(total)

    def advance(self) -> Record:
        """Run one iteration with its evaluation, record and checkpoint; return its record.

        The first call evaluates the policy before training, and a resumed run's adds a missing evaluation. If
        learners are lost, new ones repeat the iterations since the last checkpoint.

        Raises:
            LearnerLost: `MAX_RESTARTS` times in a row, without progress.
            PolicyFell: the policy degraded, and ``collapse_monitor`` ends the run.
        """
        lost: LearnerLost | None = None
        while True:
            try:
                if lost is not None:
                    self._go_back(lost)
                return self._advance()
            except LearnerLost as error:
                if self._restarts_in_a_row >= MAX_RESTARTS:
                    raise
                lost = error

    def _go_back(self, error: LearnerLost) -> None:
        """Replace the learners; raises `LearnerLost` if the new ones are lost, too."""
        self._clean = False  # until the new ones have the checkpoint's weights, a signal must not save theirs
        # Ray detects a dead node late, and would start them there again.
        time.sleep(RESTART_BACKOFF_S * self._restarts_in_a_row)
        self._restarts_in_a_row += 1
        self._restarts += 1
        checkpoints = self.folder.complete_checkpoints()
        iteration, checkpoint = checkpoints[-1] if checkpoints else (0, None)
        self.progress.note(f"{error}; new learners continue after iteration {iteration}")
        self.algo.restart_learners(checkpoint)
        self._completed, self._clean = iteration, True
        self.folder.cut_after(iteration)
        self._records = self.folder.read_metrics()
        self._tensorboard.close()
        self._tensorboard = TensorBoardLog(self.folder.tensorboard, iteration)

    def _advance(self) -> Record:
        total, interval = self.algo.settings.iterations, self.algo.settings.eval_interval
        if (not self._completed or _due(self._completed, interval, total)) and not self._evaluated(self._completed):
            self._log({"iteration": self._completed, **self._evaluate()})
        if self._completed >= total:
            return self._records[-1]
        record = self._train_one()
        ended = self._monitor(record)
        try:
            if self.algo.settings.eval_episodes and _due(self._completed, interval, total):
                record.update(self._evaluate())
        finally:
            self._log(record)
        due = _due(self._completed, self.algo.settings.checkpoint_interval, total)
        if due or self._best == self._completed:
            self._save_checkpoint()
        if ended:
            raise PolicyFell(ended)
        self._watch.check_training()
        return record

    def save(self) -> None:
        """Write a checkpoint of the last complete iteration for a run that ends.

        There is none if an optimizer step was interrupted, the learners are lost, or a further signal arrives.
        """
        try:
            if self._clean:
                self._save_checkpoint()
        except (LearnerLost, KeyboardInterrupt) as error:
            cause = str(error) or "interrupted again"
            self.progress.note(f"{cause}; no checkpoint could be written after {self._completed} iterations")

    def close(self, status: str) -> None:
        """Write the summary with ``status`` (done, interrupted, fell, failed) and the plot."""
        self._tensorboard.close()
        self._trackers.close(status)
        counts = self._completed, self._restarts, self._best
        self.folder.write_summary(run_summary(self.algo, self.folder, self._records, status, *counts))
        if status != "failed":
            settings = self.algo.settings
            plot_success(self._records, self.folder.plot_file, f"{settings.algo} on {settings.env}")

    def _train_one(self) -> Record:
        started = time.monotonic()
        try:
            with self.interrupts.abortable(self._can_leave):
                self._clean = False  # a second signal can interrupt an optimizer step
                result = self.algo.train()
        except (KeyboardInterrupt, *NO_EPISODES):
            self._clean = self._clean or self._can_leave()
            raise
        self._clean, self._completed = True, self.algo.iteration
        if self._completed > self._furthest:
            self._furthest, self._restarts_in_a_row = self._completed, 0
        self._write_trajectories(self._completed, self.algo.last_trajectories)
        metrics = {tag: float(value) for tag, value in result["agent"].items()}
        self._say(self._watch.after_training(self.algo.last_trajectories, metrics))
        saving, self._saving = self._saving, 0.0
        times = {"timing_s/iteration": time.monotonic() - started, "timing_s/checkpoint": saving}
        return {"iteration": self._completed, **times, **metrics}

    def _monitor(self, record: Record) -> str:
        """Test whether the policy has degraded, and record it; return why the run ends, or an empty text."""
        settings = self.algo.settings
        if settings.collapse_monitor == "off":
            return ""
        verdict = collapse_monitor.judge([*self._records, record])
        record.update(verdict.tags())
        if not verdict.fallen:
            self._degraded = self._degraded and verdict.below
            return ""
        if settings.collapse_monitor == "stop":
            return f"{verdict.sentence()} (collapse_monitor=stop)"
        if not self._degraded:
            self._say([verdict.sentence()])
        self._degraded = True
        return ""

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self.progress.note(f"[rl_agents] {line}")

    def _can_leave(self) -> bool:
        return not getattr(self.algo, "learning", True)

    def _evaluate(self) -> dict[str, float]:
        settings, started = self.algo.settings, time.monotonic()
        with self.interrupts.abortable():
            # The same seed every time: evaluations differ only by the policy.
            trajectories = self.algo.evaluate_policy(
                split="test", episodes=settings.eval_episodes, temperature=settings.eval_temperature, seed=settings.seed
            )
        self._write_trajectories(self._completed, trajectories, evaluation=True)
        self._trackers.episodes(self._completed, episode_rows(self._completed, trajectories))
        self._watch.check_evaluation(trajectories)
        self._say(self._watch.after_evaluation(trajectories))
        metrics = measured(evaluation_metrics, settings.parts, trajectories)
        return {**metrics, "timing_s/eval": time.monotonic() - started}

    def _evaluated(self, iteration: int) -> bool:
        if not self.algo.settings.eval_episodes:
            return True
        return any(r["iteration"] == iteration and r.get("eval/success_rate") is not None for r in self._records)

    def _log(self, record: Record) -> None:
        if self._restarts:
            record[RESTARTS] = self._restarts
        record["seconds"] = self._seconds_before + time.monotonic() - self._started
        record["cpu_seconds"] = self._cpu_before + cpu_seconds() - self._cpu_started
        if self._records and self._records[-1]["iteration"] == record["iteration"]:
            # A resumed run adds an evaluation that a signal interrupted.
            self._trackers.write(record, late=True)
            record = {**self._records.pop(), **record}
            self._records.append(record)
            self.folder.write_metrics(self._records)
        else:
            self._records.append(record)
            self.folder.append_metrics(record)
            self._trackers.write(record)
        self._tensorboard.write(record)
        self.progress.update(record, self.algo.settings.iterations)

    def _save_checkpoint(self) -> None:
        started, target = time.monotonic(), self.folder.checkpoint(self._completed)
        if not target.exists():
            self.algo.save_run_checkpoint(target)
        self.folder.prune_checkpoints(self.algo.settings.keep_checkpoints, self._best)
        self._saving += time.monotonic() - started

    @property
    def _best(self) -> int | None:
        """Iteration of the best evaluation of trained weights, the first of equals; None where there is none."""
        rates = {r["iteration"]: rate for r in self._records if (rate := r.get("eval/success_rate")) is not None}
        rates.pop(0, None)
        return max(rates, key=rates.__getitem__, default=None)


def _due(iteration: int, interval: int, total: int) -> bool:
    return iteration == total or (interval > 0 and iteration % interval == 0)


def run_summary(
    algo: AgentAlgorithm, folder: RunFolder, records: Sequence[Record], status: str, completed: int, restarts: int,
    best_checkpoint: int | None,
) -> Record:  # fmt: skip
    """Return the content of ``summary.json``.

    Args:
        status: done, interrupted, fell, or failed.
        best_checkpoint: iteration whose checkpoint is the best.
    """
    settings, checkpoints = algo.settings, folder.complete_checkpoints()
    evaluations = [r for r in records if r.get("eval/success_rate") is not None]
    start = next((r for r in evaluations if r["iteration"] == 0), None)
    end = next((r for r in evaluations if r["iteration"] == settings.iterations), None)
    best = max(evaluations, key=lambda r: r["eval/success_rate"], default=None)
    each = {
        of: _evaluation("success_start", start, f"/{of}") | _evaluation("success_end", end, f"/{of}")
        for of in settings.parts
    }
    last, sampled = records[-1] if records else {}, () if settings.pool else records
    monitored = collapse_monitor.samples(records)
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
        **{f"eval_{count}": _sum([best or {}], f"eval/{count}") or None for count in ("episodes", "tasks")},
        **({"environments": each} if each else {}),
        "iterations": completed,
        "seconds": round(last.get("seconds", 0.0), 2),
        "cpu_seconds": round(last.get("cpu_seconds", 0.0), 2),
        "sampled_tokens": _sum(sampled, "rollout/response_tokens") + _sum(sampled, "collapse_monitor/response_tokens"),
        "rollout_turns": _sum(sampled, "rollout/turns"),
        "episodes": _sum(records, "rollout/episodes"),
        "failed_episodes": _sum(records, "rollout/failed_episodes"),
        "learner_restarts": restarts,
        **_policy("policy_start", monitored[: len(monitored) // 2]),
        **_policy("policy_end", monitored[: len(monitored) // 2 - 1 : -1]),
        "checkpoint_best": next((_relative(folder, path) for n, path in checkpoints if n == best_checkpoint), None),
        "checkpoint": _relative(folder, checkpoints[-1][1]) if checkpoints else None,
    }


def _relative(folder: RunFolder, path: Path) -> str:
    return str(path.relative_to(folder.path))


def _sum(records: Sequence[Record], tag: str) -> int:
    return round(sum(record.get(tag) or 0 for record in records))


def _policy(name: str, samples: Sequence[collapse_monitor.Sample]) -> Record:
    """Return the plain policy's success on the first training tasks, with two standard errors; None if they are few."""
    totals = accumulate(sample.tasks for sample in samples)
    count = next((n for n, total in enumerate(totals, 1) if total >= collapse_monitor.LEAST_TASKS), 0)
    if not count:
        return {name: None, f"{name}_interval": None}
    mean, width = (found := collapse_monitor.pooled(samples[:count])).mean, 2 * found.error
    return {name: mean, f"{name}_interval": [max(0.0, mean - width), min(1.0, mean + width)]}


def _evaluation(name: str, record: Record | None, of: str = "") -> Record:
    """Return an evaluation's success with its interval; ``of`` is a slash and one of several environments."""
    rate, *interval = (record.get(f"eval/success_{part}{of}") if record else None for part in ("rate", "low", "high"))
    return {name: rate, f"{name}_interval": interval if rate is not None else None}
