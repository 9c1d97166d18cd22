"""What an iteration trains on: rounds of episodes until enough groups are informative, or scripted demonstrations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.data.failures import BadTasks, FailedEpisodes
from rl_agents.data.selection import Selected, SelectionError
from rl_agents.data.tasks import DEMONSTRATION, SELECTION, item_at, stream_seed, training_specs
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import EpisodesFail
from rl_agents.orchestrator.collector import Collected, Collector
from rl_agents.orchestrator.rollout_metrics import rollout_metrics, truncation_metrics
from rl_agents.rewards.base import Reward
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.demonstrations import demonstrated_trajectories


@dataclass(frozen=True)
class TaskPosition:
    """The position of a run in its stream of tasks.

    Attributes:
        bad: those that are no longer sampled.
    """

    position: int = 0
    bad: BadTasks = field(default_factory=BadTasks)

    def after(self, played: Sequence[Trajectory], position: int | None = None) -> TaskPosition:
        """Return the position behind these episodes, and print the tasks that it excludes from now on.

        Args:
            position: default: each of their groups was a task of the stream.
        """
        bad = copy.deepcopy(self.bad)
        if new := bad.observe(played):
            names = ", ".join(list(new)[:5]) + (", ..." if len(new) > 5 else "")
            cause = next(iter(new.values()))
            print(f"[rl_agents] {len(new)} tasks are excluded from sampling from now on ({cause}): {names}", flush=True)
        groups = len({t.group_id for t in played})
        return TaskPosition(self.position + groups if position is None else position, bad)


@dataclass
class Experience:
    """The trajectories of one iteration.

    Attributes:
        weights: factor on the advantages by group id; absent is 1.
        unjudged: gives the rewards that a judge is asked for, and chooses; None: that is done. The next
            rollouts do not depend on it.
    """

    played: list[Trajectory]
    chosen: list[Trajectory]
    weights: Mapping[int, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    unjudged: Callable[[], Experience] | None = None

    def judge(self) -> None:
        """Do what is left to do; raises as `Episodes.choose` does, and `InputError` where a judge never answers."""
        if self.unjudged is not None:
            whole = self.unjudged()
            self.chosen, self.weights = whole.chosen, whole.weights
            self.metrics.update(whole.metrics)
            self.unjudged = None


def select(
    recipe: AlgorithmSpec, usable: Sequence[Trajectory], settings: Settings, rng: np.random.Generator
) -> Selected:
    """Choose what to train on; all of it where the recipe does not choose."""
    if recipe.select is None:
        return Selected(np.ones(len(usable), dtype=bool))
    return recipe.select(usable, settings, rng)


@dataclass
class Episodes:
    """Runs the tasks of the training stream, ``group_size`` times each."""

    settings: Settings
    recipe: AlgorithmSpec
    reward: Reward
    tasks: Sequence[str]

    def play(self, collector: Collector, iteration: int, place: TaskPosition) -> Experience:
        """Run round after round until the recipe has enough groups to train on.

        Args:
            place: position in the stream of tasks before this iteration.

        Returns:
            `Experience.unjudged`, where a judge is asked and one round is enough for any answer.

        Raises:
            SelectionError: ``max_generation_batches`` rounds were not enough.
            EpisodesFail: the environment failed all episodes, and the recipe waits for others.
        """

        def play_round(played: list[Trajectory], missing: int) -> dict[str, float]:
            return self._rewarded(played, self._play_round(collector, iteration, place, played))

        if not self.reward.waits or not (self.recipe.select is None or self.recipe.one_round(self.settings)):
            return self.choose(iteration, play_round)
        collected = self._play_round(collector, iteration, place, [])

        def judged_round(played: list[Trajectory], missing: int) -> dict[str, float]:
            assert not played, f"{self.recipe.name}: `one_round` is true, and `select` asks for a further one"
            return self._rewarded(played, collected)

        return Experience(collected.answers, [], unjudged=lambda: self.choose(iteration, judged_round))

    def choose(self, iteration: int, more: Callable[[list[Trajectory], int], dict[str, float]]) -> Experience:
        """Take round after round until the recipe has enough groups to train on; raises as `play` does.

        Args:
            more: appends the episodes of a round to those that it receives, and returns metrics; also gets the number
                of missing groups.
        """
        rng = np.random.default_rng(stream_seed(self.settings.seed, SELECTION, iteration))
        played: list[Trajectory] = []
        rounds: list[dict[str, float]] = []
        missing = wanted = self.settings.tasks_per_iteration
        while True:
            rounds.append(more(played, missing))
            usable = [t for t in played if not t.failed]
            if self.recipe.select is not None and not usable:  # nothing to choose from, in any further round
                raise EpisodesFail(FailedEpisodes.of(played).sentence())
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
        """Run the ``tasks_per_iteration`` tasks that follow those of ``played``."""
        settings, groups = self.settings, len({t.group_id for t in played})
        specs = training_specs(
            self.tasks, iteration, settings.tasks_per_iteration, settings.group_size, settings.seed,
            position=place.position + groups, first_group=groups, left_out=place.bad.left_out,
        )  # fmt: skip
        collected = collector.collect(specs, record=True)
        for event in collected.events:
            print(f"[rl_agents] {event}; repeating its episodes", flush=True)
        return collected

    def _rewarded(self, played: list[Trajectory], collected: Collected[Trajectory]) -> dict[str, float]:
        shaped = self.reward.apply(collected.answers)
        played.extend(collected.answers)
        return {**shaped, "rollout/resampled_episodes": float(collected.resampled)}

    def _check_rounds(self, rounds: int, missing: int) -> None:
        settings = self.settings
        if not settings.max_generation_batches or rounds < settings.max_generation_batches:
            return
        wanted = settings.tasks_per_iteration
        raise SelectionError(
            f"{wanted - missing} of {rounds * wanted} tasks had rollouts that differ in "
            f"success, {wanted} are needed, and max_generation_batches={rounds} is spent: "
            "tasks are too easy or too hard for the policy; raise group_size or max_generation_batches, or set "
            "dynamic_sampling=false"
        )

    def _metrics(self, played: Sequence[Trajectory], rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Reward metrics averaged over the rounds that have them, and what all episodes say."""
        names = dict.fromkeys(name for metrics in rounds for name in metrics)
        metrics = {name: float(np.mean([m[name] for m in rounds if name in m])) for name in names}
        metrics.update(rollout_metrics(played))
        if self.settings.truncation != "none":
            metrics.update(truncation_metrics(played))
        metrics["rollout/resampled_episodes"] *= len(rounds)
        metrics["rollout/generation_batches"] = float(len(rounds))
        return metrics


@dataclass
class Expanding:
    """Expands the states that a search names.

    Attributes:
        resampled: states that were expanded again because a runner or an engine was lost.
    """

    collector: Collector
    resampled: int = 0

    def __call__(self, specs: Sequence[BranchSpec]) -> list[Expansion]:
        """Sample children at all of them; raises as `Collector.gather` does."""
        collected = self.collector.expand(specs)
        for event in collected.events:
            print(f"[rl_agents] {event}; expanding its states again", flush=True)
        self.resampled += collected.resampled
        return collected.answers


@dataclass
class Demonstrations:
    """Scripted episodes, in an order that every pass over them shuffles again."""

    settings: Settings
    model_dir: str
    _pool: Sequence[Trajectory] = ()

    def next(self, iteration: int) -> Experience:
        settings = self.settings
        if not self._pool:
            self._pool = demonstrated_trajectories(settings, self.model_dir, stream_seed(settings.seed, DEMONSTRATION))
        count = settings.tasks_per_iteration * settings.group_size
        indices = range(len(self._pool))
        chosen = [
            self._pool[item_at(indices, iteration * count + i, settings.seed, DEMONSTRATION)] for i in range(count)
        ]
        return Experience(chosen, chosen)
