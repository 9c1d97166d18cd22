"""One training iteration, from tasks to new weights in the engines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from rl_agents.data.samples import Row, build_samples
from rl_agents.data.success import policy_sample
from rl_agents.data.tasks import MINIBATCHES, guard_specs, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.orchestrator.rollout_batch import Expanding
from rl_agents.orchestrator.rollout_metrics import again_metrics, rollout_metrics, staleness_metrics, updates_behind
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.iteration import Order, run_iteration
from rl_agents.trainer.advantage_pipeline import assign_credit
from rl_agents.trainer.setup import RunParts


class OneIteration(RunParts):
    """What an iteration does: whole episodes and one update, or a search with many."""

    def step(self) -> dict[str, Any]:
        """One iteration; RLlib's own would retry behind our back, and return metrics that are no plain numbers."""
        return {"agent": self.training_step()}

    def training_step(self) -> dict[str, float]:
        """tasks -> rollouts -> rows -> credit -> optimizer steps -> engines; returns this iteration's metrics."""
        started, busy = time.perf_counter(), self._engines_busy()
        self.learning = False
        self.staleness.clear()
        metrics = self._play_and_learn() if self.explorer is None else self._explore(self.explorer)
        if left_out := self.place.bad.left_out:
            metrics["fault/left_out_tasks"] = float(len(left_out))
        elapsed = time.perf_counter() - started
        # The paths of a search share steps, and most siblings are on none.
        searched = self.explorer.counts.response_tokens if self.explorer else 0
        tokens = searched or sum(t.response_tokens for t in self.last_trajectories)
        metrics.update({"timing_s/iteration": elapsed, "perf/tokens_per_s": tokens / elapsed})
        metrics.update(staleness_metrics(self.staleness))
        now = self._engines_busy()
        # Less than before: it has restarted.
        if worked := [now[i] - busy[i] for i in now.keys() & busy.keys() if now[i] >= busy[i]]:
            metrics["perf/engine_busy_share"] = fmean(worked) / elapsed
        return metrics

    def _play_and_learn(self) -> dict[str, float]:
        """Whole episodes, then one update."""
        experience = self.pipeline.next(self.iteration)
        self.last_trajectories = experience.played
        self._keep(experience.played)
        metrics = experience.metrics | self._learn(experience.chosen, experience.weights)
        if self.settings.guard != "off" and self.recipe.source == "rollouts" and self.recorded is None:
            metrics |= policy_sample(experience.played, self.settings.tasks_per_iteration)
        if self.pool is not None:
            self.pool.confirm(self.pipeline.recorded())
        self.pipeline.publish(self.policy_version)
        self.place = self.pipeline.place
        return metrics

    def _explore(self, explorer: Explorer) -> dict[str, float]:
        """Searches: siblings at one state of every active task, one update, and so on until the budget is spent."""
        workers = self._started_workers()
        workers.version = None  # a resumed run begins with fresh engines, too
        guarded = self._play_for_guard(workers)
        self.learning = True  # what a tick found out cannot be taken back
        beside: Order = "beside" if self.settings.num_env_runners else "after"
        expand, order = Expanding(workers.collector), beside if self.settings.lag else "before"

        def learn(samples: Sequence[Trajectory], update: int) -> dict[str, float]:
            self._keep(samples, update)
            return self._learn(samples, {}, update)

        finished, metrics = run_iteration(explorer, self._sync_engines, expand, learn, order)
        metrics["search/syncs"] += bool(guarded)  # made before
        metrics["search/optimizer_steps"] *= self.settings.epochs * self.settings.minibatches
        self.last_trajectories = finished
        self._keep(finished)
        if self.pool is not None:
            self.pool.confirm(workers.collector.recorded())
        self.place = self.place.after(finished, explorer.position)
        explorer.left_out = self.place.bad.left_out
        metrics["rollout/resampled_episodes"] = expand.resampled
        return {**metrics, **rollout_metrics(finished), **explorer.metrics(), **guarded}

    def _play_for_guard(self, workers: RolloutWorkers) -> dict[str, float]:
        """Tell the plain policy's success by episodes that nobody learns from: a search's own paths do not tell it."""
        started, settings = time.perf_counter(), self.settings
        count = 0 if settings.guard == "off" else settings.guard_episodes
        if not count:
            return {}
        specs = guard_specs(self.train_tasks, self.iteration, count, settings.seed, self.place.bad.left_out)
        self._sync_engines()
        played = workers.collector.collect(specs).answers
        return {
            **policy_sample(played, count),
            "guard/turns": float(sum(len(t.steps) for t in played)),
            "guard/response_tokens": float(sum(t.response_tokens for t in played)),
            "timing_s/guard": time.perf_counter() - started,
        }

    def _learn(
        self, trajectories: Sequence[Trajectory], weights: Mapping[int, float], *update: int
    ) -> dict[str, float]:
        """Rows, credit, optimizer steps: the ``update``-th of an iteration; none when no episode teaches anything."""
        started, settings, skipped = time.perf_counter(), self.settings, {"actor/skipped_iterations": 1.0}
        warm = self.iteration >= settings.critic_warmup
        again = self.memory.again(self.iteration) if self.memory is not None else ()
        everything = [*trajectories, *(kept.trajectory for kept in again)]
        rows = [row for row in build_samples(everything, settings.rows) if row.mask.any()]
        for row in rows:
            row.again = row.trajectory >= len(trajectories)
        own = [row for row in rows if not row.again]
        if not own:
            return skipped
        if self.rollout_workers is not None:
            self.rollout_workers.rest()
        self.learner_group.fill_scores(rows, self.recipe)
        metrics = assign_credit(
            self.recipe, rows, everything, settings, weights, settings.kl_in_reward_coef, self.memory
        )
        if not any(row.mask.any() for row in own):
            return metrics | skipped
        rng = np.random.default_rng(stream_seed(settings.seed, MINIBATCHES, self.iteration, *update))
        data = AgentTrainingData.build(rows, settings, rng, fold=self.explorer is not None)
        if not data.minibatches:  # siblings that all agree
            return metrics | skipped
        data.done = self.iteration / settings.iterations if self.explorer is not None else None
        self.learning = True
        metrics.update(again_metrics(rows, everything, self.policy_version))
        sessions = self._sessions(trajectories, *update)
        self._keep_batch(rows, everything, [*sessions, *(kept.session for kept in again)], *update)
        if self.memory is not None:
            self.memory.keep(self.iteration, sessions)
        metrics.update(self.learner_group.learn(data, train_policy=warm))
        self.policy_version += 1
        return metrics | {"timing_s/learn": time.perf_counter() - started, **data.size(rows, settings.epochs)}

    def _engines_busy(self) -> dict[int, float]:
        """Seconds in which each engine has sampled so far; empty without actors."""
        group = self.rollout_workers.engine_group if self.rollout_workers is not None else None
        return group.busy_seconds() if group is not None else {}

    def _keep(self, trajectories: Sequence[Trajectory], update: int | None = None) -> None:
        if self.pool is not None:
            self.pool.add_sessions(self.iteration, trajectories, update)

    def _sessions(self, trajectories: Sequence[Trajectory], *update: int) -> list[str]:
        """Names of an update's own episodes in the pool; empty where there is none."""
        if self.pool is None:
            return [""] * len(trajectories)
        return self.pool.names(self.iteration, trajectories, *update)

    def _keep_batch(
        self, rows: Sequence[Row], trajectories: Sequence[Trajectory], sessions: Sequence[str], *update: int
    ) -> None:
        """Note what an update is about to learn from; versions of recorded sessions count another run's updates."""
        if self.recipe.credit is not None and self.recorded is None:
            own = [row for row in rows if not row.again]
            self.staleness += updates_behind(own, trajectories, self.policy_version)
        if self.pool is not None:
            self.pool.add_batch(self.iteration, rows, sessions, *update)

    def _sync_engines(self) -> bool:
        """Give the engines the learners' weights; False when they have them."""
        return self._started_workers().sync(self.learner_group, self.policy_version)
