"""One iteration of a run: tasks -> rollouts -> rows -> credit -> optimizer steps -> engines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Protocol

import numpy as np

from rl_agents.algorithms import Settings
from rl_agents.algorithms.base import AlgorithmSpec, Memory
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.tasks import MINIBATCHES, monitor_specs, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.orchestrator.offline_dataset import Recorded
from rl_agents.orchestrator.older_policies import OlderPolicies
from rl_agents.orchestrator.rollout_batch import (
    TaskPosition,
    rollout_metrics,
    staleness_metrics,
    success_replay_metrics,
    updates_behind,
)
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.reporting.collapse_monitor import SAMPLE, policy_sample
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.iteration import run_iteration
from rl_agents.trainer.advantage_pipeline import assign_credit
from rl_agents.trainer.batch_source import Buffer
from rl_agents.trainer.expert_data import ExpertData
from rl_agents.trainer.run_store import RunPool

#: Extra episodes of the plain policy per iteration of a search.
MONITORED = 16


class Run(Protocol):
    """The parts of a run that an iteration uses and changes (`rl_agents.trainer.algorithm.AgentAlgorithm`).

    Attributes:
        place: position in the stream of tasks.
        memory: state of the credit from earlier iterations.
        staleness: number of steps of the iteration by the number of updates since they were sampled.
        learning: False only while the iteration can be aborted without effect, before its first optimizer step.
    """

    settings: Settings
    recipe: AlgorithmSpec
    policy_version: int
    place: TaskPosition
    train_tasks: Sequence[str]
    buffer: Buffer
    explorer: Explorer | None
    memory: Memory | None
    recorded: Recorded | None
    experts: ExpertData | None
    older: OlderPolicies
    pool: RunPool | None
    rollout_workers: RolloutWorkers | None
    learner_group: AgentLearnerGroup
    last_trajectories: list[Trajectory]
    staleness: Counter[int]
    learning: bool

    @property
    def iteration(self) -> int: ...

    def started_workers(self) -> RolloutWorkers: ...

    def sync_engines(self) -> bool: ...

    def set_place(self, place: TaskPosition) -> None: ...


def train_iteration(run: Run) -> dict[str, float]:
    """Run one iteration; return its metrics."""
    started, busy = time.perf_counter(), engines_busy(run)
    run.learning = False
    run.staleness.clear()
    metrics = train_on_batch(run) if run.explorer is None else search(run, run.explorer)
    if left_out := run.place.bad.left_out:
        metrics["fault/left_out_tasks"] = float(len(left_out))
    if run.place.difficulty is not None:
        metrics |= run.place.difficulty.metrics(run.train_tasks)
    elapsed = time.perf_counter() - started
    # The paths of a search share steps, and most siblings are on no path.
    searched = run.explorer.counts.response_tokens if run.explorer else 0
    tokens = searched or sum(t.response_tokens for t in run.last_trajectories)
    metrics["timing_s/iteration"] = elapsed
    if run.recorded is None and run.recipe.source != "demonstrations":
        metrics["perf/tokens_per_s"] = tokens / elapsed
    metrics.update(staleness_metrics(run.staleness))
    now = engines_busy(run)
    # An engine with less time than before has restarted.
    if worked := [now[i] - busy[i] for i in now.keys() & busy.keys() if now[i] >= busy[i]]:
        metrics["perf/engine_busy_share"] = fmean(worked) / elapsed
    return metrics


def engines_busy(run: Run) -> dict[int, float]:
    """Return each engine's sampling time so far in seconds; empty without actors."""
    group = run.rollout_workers.engine_group if run.rollout_workers is not None else None
    return group.busy_seconds() if group is not None else {}


def train_on_batch(run: Run) -> dict[str, float]:
    experience = run.buffer.next(run.iteration)
    run.last_trajectories = experience.played
    if run.pool is not None:
        run.pool.add_sessions(run.iteration, experience.played)
    metrics = experience.metrics | learn(run, experience.chosen, experience.weights)
    run.older.keep(run.iteration + 1, run.learner_group.save_hf)
    if run.settings.collapse_monitor != "off" and run.recipe.source == "rollouts" and run.recorded is None:
        metrics |= policy_sample(experience.played, run.settings.tasks_per_iteration)
    if run.pool is not None:
        run.pool.confirm(run.buffer.recorded())
    run.buffer.publish(run.policy_version)
    run.place = run.buffer.place
    return metrics


def search(run: Run, explorer: Explorer) -> dict[str, float]:
    """Sample siblings at a state of every active task, update, and repeat until the budget is spent."""
    workers = run.started_workers()
    workers.version = None  # as in a resumed run, which begins with new engines
    sampled = sample_policy(run, workers)
    run.learning = True  # results of a search cannot be undone
    resampled = 0

    def expand(specs: Sequence[BranchSpec]) -> list[Expansion]:
        nonlocal resampled
        collected = workers.collector.expand(specs)
        for event in collected.events:
            print(f"[rl_agents] {event}; expanding its states again", flush=True)
        resampled += collected.resampled
        return collected.answers

    def update(samples: Sequence[Trajectory], number: int) -> dict[str, float]:
        if run.pool is not None:
            run.pool.add_sessions(run.iteration, samples, number)
        return learn(run, samples, {}, number)

    finished, metrics = run_iteration(explorer, run.sync_engines, expand, update)
    metrics["search/syncs"] += bool(sampled)  # made before
    run.last_trajectories = finished
    if run.pool is not None:
        run.pool.add_sessions(run.iteration, finished)
        run.pool.confirm(workers.collector.recorded())
    run.set_place(run.place.after(finished, explorer.position))
    metrics["rollout/resampled_episodes"] = resampled
    found = rollout_metrics(finished)
    # A search follows the best actions, so that the success of its paths is not the policy's.
    if "rollout/success_rate" in found:
        found["search/success_rate"] = found.pop("rollout/success_rate")
    if SAMPLE in sampled:
        found["rollout/success_rate"] = sampled[SAMPLE]
    return {**metrics, **found, **explorer.metrics(), **sampled}


def sample_policy(run: Run, workers: RolloutWorkers) -> dict[str, float]:
    """Measure the plain policy's success in separate episodes: a search's own paths do not show it."""
    started, settings = time.perf_counter(), run.settings
    if settings.collapse_monitor == "off":
        return {}
    specs = monitor_specs(run.train_tasks, run.iteration, MONITORED, settings.seed, run.place.bad.left_out)
    run.sync_engines()
    episodes = workers.collector.collect(specs).answers
    return {
        **policy_sample(episodes, MONITORED),
        "collapse_monitor/turns": float(sum(len(t.steps) for t in episodes)),
        "collapse_monitor/response_tokens": float(sum(t.response_tokens for t in episodes)),
        "timing_s/collapse_monitor": time.perf_counter() - started,
    }


def learn(run: Run, trajectories: Sequence[Trajectory], weights: Mapping[int, float], *update: int) -> dict[str, float]:
    """Build rows, compute credit, and take optimizer steps, as the ``update``-th of an iteration if it has several.

    Args:
        weights: factor on the advantages by group.
    """
    started, settings, skipped = time.perf_counter(), run.settings, {"actor/skipped_iterations": 1.0}
    again = run.memory.again(run.iteration) if run.memory is not None else ()
    everything = [*trajectories, *(kept.trajectory for kept in again)]
    version = run.policy_version if run.recorded is None else -1  # recorded versions are another run's
    rows = [row for row in build_samples(everything, settings.sample_layout, version) if row.mask.any()]
    for row in rows:
        row.again = row.trajectory >= len(trajectories)
    own = [row for row in rows if not row.again]
    if not own:
        return skipped
    if run.rollout_workers is not None:
        run.rollout_workers.rest()
    run.learner_group.fill_scores(rows, everything, run.recipe)
    metrics = assign_credit(run.recipe, rows, everything, settings, weights, settings.kl_in_reward_coef, run.memory)
    if not any(row.mask.any() for row in own):
        return metrics | skipped
    rng = np.random.default_rng(stream_seed(settings.seed, MINIBATCHES, run.iteration, *update))
    shown = run.experts.draw(run.iteration, *update) if run.experts else ()
    expert_rows = run.experts.rows(shown, run.iteration, len(everything)) if run.experts else []
    data = AgentTrainingData.build([*rows, *expert_rows], settings, rng, fold=run.explorer is not None)
    if not data.minibatches:  # siblings that all agree
        return metrics | skipped
    data.set_progress(run.iteration, settings.iterations, several=run.explorer is not None)
    if run.explorer is not None:
        metrics["search/optimizer_steps"] = float(len(data.minibatches))
    run.learning = True
    metrics.update(success_replay_metrics(rows, everything, run.policy_version))
    sessions = [""] * len(trajectories)  # names in the trajectory store
    if run.pool is not None:
        sessions = run.pool.names(run.iteration, trajectories, *update)
    names = [*sessions, *(kept.session for kept in again)]
    keep_batch(run, rows, everything, names, *update)
    if run.pool is not None:
        names += run.pool.add_experts(run.iteration, shown, *update)
    if run.memory is not None:
        run.memory.keep(run.iteration, sessions)
    data.by_token = run.pool is not None and any([settings.expert_data, settings.teacher, settings.teacher_url])
    metrics.update(run.learner_group.learn(data, train_policy=run.iteration >= settings.critic_warmup))
    if run.pool is not None:
        run.pool.add_token_losses(run.iteration, run.learner_group.token_losses, names, *update)
    run.policy_version += 1
    return metrics | {"timing_s/learn": time.perf_counter() - started, **data.size(rows, settings.epochs)}


def keep_batch(
    run: Run, rows: Sequence[Row], trajectories: Sequence[Trajectory], sessions: Sequence[str], *update: int
) -> None:
    """Record an update's batch; versions of recorded sessions count another run's updates."""
    if run.recipe.credit is not None and run.recorded is None:
        own = [row for row in rows if not row.again]
        run.staleness += updates_behind(own, trajectories, run.policy_version)
    if run.pool is not None:
        run.pool.add_batch(run.iteration, rows, sessions, *update)
