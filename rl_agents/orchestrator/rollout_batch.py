"""What an iteration trains on: rounds of episodes until enough groups are informative, or scripted demonstrations.

The second half computes the metrics of a batch of episodes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.data.difficulty import Difficulty
from rl_agents.data.failures import AGENT_ERROR, BadTasks, FailedEpisodes
from rl_agents.data.samples import Row
from rl_agents.data.selection import Selected, SelectionError
from rl_agents.data.step_table import step_spans
from rl_agents.data.tasks import (
    DEMONSTRATION,
    SELECTION,
    by_environment,
    item_at,
    measured,
    stream_seed,
    training_specs,
)
from rl_agents.data.trajectory import Trajectory, seat_metrics, step_metrics
from rl_agents.envs.base import game_seats
from rl_agents.envs.spec import CUT
from rl_agents.orchestrator.collector import Collected, Collector
from rl_agents.orchestrator.older_policies import OlderPolicies
from rl_agents.rewards.base import Reward
from rl_agents.rollout.demonstrations import Dialogues, demonstrated_trajectories
from rl_agents.tools.thoughts import read_thoughts


@dataclass(frozen=True)
class TaskPosition:
    """The position of a run in its stream of tasks.

    Attributes:
        bad: tasks that are no longer sampled.
        difficulty: recent success of tasks; None: it does not influence which are drawn.
        environments: the names of several.
    """

    position: int = 0
    bad: BadTasks = field(default_factory=BadTasks)
    difficulty: Difficulty | None = None
    environments: tuple[str, ...] = ()

    def after(self, played: Sequence[Trajectory], position: int | None = None) -> TaskPosition:
        """Return the position after these episodes, and print the tasks that it excludes from now on.

        Args:
            position: the new one; None: each of their groups was a task of the stream.
        """
        bad, shares, new = copy.deepcopy(self.bad), by_environment(self.environments, played), dict[str, str]()
        for own in shares.values() if shares else [played]:
            new |= bad.observe(own)
        if new:
            names = ", ".join(list(new)[:5]) + (", ..." if len(new) > 5 else "")
            cause = next(iter(new.values()))
            print(f"[rl_agents] {len(new)} tasks are excluded from sampling from now on ({cause}): {names}", flush=True)
        for line in filter(None, (bad.observe_environment(name, own) for name, own in shares.items())):
            print(f"[rl_agents] {line}", flush=True)
        groups = len({t.group_id for t in played})
        difficulty = self.difficulty and self.difficulty.after(played)
        position = self.position + groups if position is None else position
        return TaskPosition(position, bad, difficulty, self.environments)


@dataclass
class Experience:
    """The trajectories of one iteration.

    Attributes:
        weights: factor on the advantages by group id; absent is 1.
        unjudged: gets the judge's rewards and chooses; None: that is done. The next rollouts do not depend on it.
    """

    played: list[Trajectory]
    chosen: list[Trajectory]
    weights: Mapping[int, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    unjudged: Callable[[], Experience] | None = None

    def judge(self) -> None:
        """Get missing rewards and choose; raises like `Episodes.choose`, or `InputError` if a judge does not answer."""
        if self.unjudged is not None:
            whole = self.unjudged()
            self.chosen, self.weights = whole.chosen, whole.weights
            self.metrics.update(whole.metrics)
            self.unjudged = None


def select(
    recipe: AlgorithmSpec, usable: Sequence[Trajectory], settings: Settings, rng: np.random.Generator
) -> Selected:
    """Choose the episodes to train on; all if the recipe does not choose."""
    if recipe.select is None:
        return Selected(np.ones(len(usable), dtype=bool))
    return recipe.select(usable, settings, rng)


@dataclass
class Episodes:
    """Runs the tasks of the training stream, ``group_size`` times each, in a game from every seat."""

    settings: Settings
    recipe: AlgorithmSpec
    reward: Reward
    tasks: Sequence[str]
    older: OlderPolicies | None = None

    def play(self, collector: Collector, iteration: int, place: TaskPosition) -> Experience:
        """Run round after round until the recipe has enough groups to train on.

        Args:
            place: position in the stream of tasks before this iteration.

        Returns:
            An `Experience` with ``unjudged`` if there is a judge, and one round suffices for any answer.

        Raises:
            SelectionError: ``max_generation_batches`` rounds were not enough.
            EpisodesFail: the environment failed all episodes, and the recipe needs more.
        """

        def play_round(played: list[Trajectory], missing: int) -> int:
            return self._rewarded(played, self._play_round(collector, iteration, place, played))

        if not self.reward.waits or not (self.recipe.select is None or self.recipe.one_round(self.settings)):
            return self.choose(iteration, play_round)
        collected = self._play_round(collector, iteration, place, [])

        def judged_round(played: list[Trajectory], missing: int) -> int:
            assert not played, f"{self.recipe.name}: `one_round` is true, and `select` asks for a further one"
            return self._rewarded(played, collected)

        return Experience(collected.answers, [], unjudged=lambda: self.choose(iteration, judged_round))

    def choose(self, iteration: int, more: Callable[[list[Trajectory], int], int]) -> Experience:
        """Take round after round until the recipe has enough groups to train on; raises like `play`.

        Args:
            more: (episodes so far, number of missing groups) -> number of episodes that were repeated; appends the
                rewarded episodes of a round to the first.
        """
        rng = np.random.default_rng(stream_seed(self.settings.seed, SELECTION, iteration))
        played: list[Trajectory] = []
        rounds: list[int] = []
        missing = wanted = self.settings.tasks_per_iteration
        while True:
            rounds.append(more(played, missing))
            usable = [t for t in played if not t.failed]
            if self.recipe.select is not None and not usable:  # nothing to choose from, in any further round
                failed = FailedEpisodes.of(played)
                raise failed.error(failed.sentence())
            selected = select(self.recipe, usable, self.settings, rng)
            missing = selected.missing
            if not missing:
                break
            self._check_rounds(len({t.group_id for t in played}) // wanted, missing)
        chosen = [t for t, keep in zip(usable, selected.keep, strict=True) if keep]
        return Experience(played, chosen, selected.weights, self._metrics(played, rounds) | dict(selected.metrics))

    def _play_round(
        self, collector: Collector, iteration: int, place: TaskPosition, played: Sequence[Trajectory]
    ) -> Collected[Trajectory]:
        """Run the ``tasks_per_iteration`` tasks after those of ``played``."""
        settings, groups = self.settings, len({t.group_id for t in played})
        specs = training_specs(
            self.tasks, iteration, settings.tasks_per_iteration, settings.group_size, settings.seed,
            position=place.position + groups, first_group=groups, left_out=place.bad.left_out,
            difficulty=place.difficulty, busy={t.task_id for t in played},
            seats=max(game_seats(own.env, own.env_options) for own in settings.each.values()),
            opponent=self.older.at(iteration) if self.older else None,
        )  # fmt: skip
        collected = collector.collect(specs, record=True)
        for event in collected.events:
            print(f"[rl_agents] {event}; repeating its episodes", flush=True)
        return collected

    def _rewarded(self, played: list[Trajectory], collected: Collected[Trajectory]) -> int:
        self.reward.apply(collected.answers)
        played.extend(collected.answers)
        return collected.resampled

    def _check_rounds(self, rounds: int, missing: int) -> None:
        settings = self.settings
        if not settings.max_generation_batches or rounds < settings.max_generation_batches:
            return
        wanted = settings.tasks_per_iteration
        raise SelectionError(
            f"{wanted - missing} of {rounds * wanted} tasks had rollouts that differ in "
            f"return, {wanted} are needed, and max_generation_batches={rounds} is spent: "
            "tasks are too easy or too hard for the policy; raise group_size or max_generation_batches, or set "
            "dynamic_sampling=false"
        )

    def _metrics(self, played: Sequence[Trajectory], rounds: Sequence[int]) -> dict[str, float]:
        """Return the metrics of all episodes together: rounds differ in size.

        Args:
            rounds: number of repeated episodes of each.
        """
        metrics = {**self.reward.metrics(played), **measured(rollout_metrics, self.settings.parts, played)}
        if self.settings.truncation != "none":
            metrics.update(truncation_metrics(played))
        metrics["rollout/resampled_episodes"] = float(sum(rounds))
        metrics["rollout/generation_batches"] = float(len(rounds))
        return metrics


@dataclass
class Demonstrations:
    """Scripted episodes, in an order that every pass shuffles again."""

    settings: Settings
    model_dir: str
    _pool: Sequence[Trajectory] = ()

    def all(self) -> Sequence[Trajectory]:
        settings = self.settings
        if not self._pool:
            self._pool = demonstrated_trajectories(settings, self.model_dir, stream_seed(settings.seed, DEMONSTRATION))
        return self._pool

    def names(self) -> Iterable[str]:
        """Return the task or the row of each."""
        pool = self.all()
        return pool.sources() if isinstance(pool, Dialogues) else (t.task_id for t in pool)

    def next(self, iteration: int) -> Experience:
        pool, count = self.all(), self.settings.tasks_per_iteration * self.settings.group_size
        indices = range(len(pool))
        chosen = [
            pool[item_at(indices, iteration * count + i, self.settings.seed, DEMONSTRATION)] for i in range(count)
        ]
        return Experience(chosen, chosen)


# --- metrics of a batch -----------------------------------------------------------------------------------------------


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return success, return, length and end causes; of episodes that an environment failed only number and cost."""
    played = [t for t in trajectories if not t.failed]
    metrics = {
        "rollout/episodes": float(len(trajectories)),
        "rollout/failed_episodes": float(len(trajectories) - len(played)),
        "rollout/turns": float(sum(t.turns for t in trajectories)),
        "rollout/response_tokens": float(sum(t.response_tokens for t in trajectories)),
    }
    for cause, count in Counter(t.end_cause.split(":")[0] for t in trajectories).items():
        metrics[f"end_cause/{cause}"] = count / len(trajectories)
        if cause == AGENT_ERROR:
            metrics["rollout/agent_errors"] = float(count)
    if not played:
        return metrics
    steps = [step for t in played for step in t.steps]
    returns = np.array([t.episode_return for t in played])
    metrics.update(
        {
            "rollout/success_rate": float(np.mean([t.success for t in played])),
            "rollout/return_mean": float(returns.mean()),
            "rollout/return_std": float(returns.std()),
            "rollout/turns_mean": float(np.mean([t.turns for t in played])),
            **seat_metrics("rollout", played),
        }
    )
    if "opponent" in played[0].facts:
        metrics["rollout/opponent_iteration"] = float(played[0].facts["opponent"])
    if steps:
        anchors = [s.anchor for s in steps if not s.is_summary]
        metrics["rollout/unique_states_per_step"] = len(set(anchors)) / max(1, len(anchors))
        metrics |= step_metrics(steps) | summary_metrics(played)
        if cut := float(np.mean([CUT in s.observation for s in steps])):
            metrics["rollout/observation_cut_share"] = cut
    for name in sorted({name for t in played for name in t.metrics}):
        metrics[f"env/{name}"] = float(np.mean([t.metrics[name] for t in played if name in t.metrics]))
    return metrics


def summary_metrics(played: Sequence[Trajectory]) -> dict[str, float]:
    """Return the number and length of summaries, and the share that is empty or cut; nothing if there are none."""
    summaries = [step for t in played for step in t.steps if step.is_summary]
    if not summaries:
        return {}
    lengths = [len(step.response_ids) for step in summaries]
    return {
        "summary/per_episode": len(summaries) / len(played),
        "summary/tokens_mean": float(np.mean(lengths)),
        "summary/empty_share": float(np.mean([not read_thoughts(s.action).words.strip() for s in summaries])),
        "summary/cut_share": float(np.mean([s.finish_reason == "length" for s in summaries])),
    }


def truncation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return how often a truncation rule fired, when, with what outcome, and estimated savings.

    Saved turns and tokens are relative to the mean untruncated episode of the same batch, and absent if there is none.
    This underestimates savings, because untruncated episodes are those that went well.
    """
    played = [t for t in trajectories if not t.failed]
    cut = [t for t in played if "truncation" in t.facts]
    whole = [t for t in played if "truncation" not in t.facts]
    if not played:
        return {}
    metrics = {"truncation/ratio": len(cut) / len(played)}
    if cut:
        facts = [t.facts["truncation"] for t in cut]
        metrics["truncation/turn_mean"] = float(np.mean([fact["turn"] for fact in facts]))
        metrics["truncation/success_rate"] = float(np.mean([t.success for t in cut]))
        for outcome, count in Counter(fact["outcome"] for fact in facts).items():
            metrics[f"truncation/{outcome.replace(' ', '_')}_share"] = count / len(cut)
    if whole:
        turns, tokens = np.mean([[t.turns, t.response_tokens] for t in whole], axis=0)
        metrics["truncation/turns_saved"] = float(sum(turns - t.turns for t in cut))
        metrics["truncation/tokens_saved"] = float(sum(tokens - t.response_tokens for t in cut))
    return metrics


def updates_behind(rows: Sequence[Row], trajectories: Sequence[Trajectory], version: int) -> Counter[int]:
    """Count steps by the number of updates since their first token was sampled.

    Args:
        rows: of an update; ``Row.trajectory`` indexes ``trajectories``.
        version: the learner's, before the update.
    """
    steps = [trajectories[row.trajectory].steps[step] for row in rows for step, *_ in step_spans(row)]
    return Counter(version - step.policy_version for step in steps)


def success_replay_metrics(rows: Sequence[Row], trajectories: Sequence[Trajectory], version: int) -> dict[str, float]:
    """Return the replayed episodes of an update: their number, share of the sampled tokens, and staleness.

    Args:
        rows, trajectories, version: see `updates_behind`.
    """
    again = [row for row in rows if row.again]
    if not again:
        return {}
    behind = staleness_metrics(updates_behind(again, trajectories, version))
    tokens = [sum(float(row.mask.sum()) for row in part) for part in (again, rows)]
    return {
        "success_replay/episodes": float(len({row.trajectory for row in again})),
        "success_replay/token_share": tokens[0] / max(tokens[1], 1.0),
        "success_replay/staleness_mean": behind["rollout/staleness_mean"],
        "success_replay/staleness_max": behind["rollout/staleness_max"],
    }


def staleness_metrics(counts: Mapping[int, int]) -> dict[str, float]:
    """Return mean, 95th percentile and maximum of the staleness of an iteration's steps; empty without steps.

    Args:
        counts: steps by staleness (`updates_behind`).
    """
    if not counts:
        return {}
    values = np.repeat(sorted(counts), [counts[value] for value in sorted(counts)])
    return {
        "rollout/staleness_mean": float(values.mean()),
        "rollout/staleness_p95": float(np.percentile(values, 95)),
        "rollout/staleness_max": float(values.max()),
    }
