"""Training on a pool's recorded sessions only: which sessions are usable, and which of them each iteration takes.

No environment runs. The sampling policy is known by its recorded log-probabilities. The learner scores every batch
before its first optimizer step, and ``rollout_correction`` corrects for the difference
(`rl_agents.trainer.advantage_pipeline.correct_mismatch`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.data.tasks import RECORDED, SELECTION, item_at, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.orchestrator.rollout_batch import Experience, rollout_metrics, select
from rl_agents.store.reader import PoolReader, Stored, StoreQuery

#: Kinds of sessions to train on; evaluations use test tasks, and siblings of searches are no episodes.
KINDS = ("episode", "gateway")


@dataclass
class Recorded:
    """The usable sessions of a pool in their recorded groups, in an order that every pass shuffles again.

    For supervised recipes every session is its own group. A resumed run continues exactly if the pool has not changed.

    Attributes:
        vocabulary: ids that the model reads; None: unknown.
        groups: ids of the sessions of every group, in recorded order.
    """

    settings: Settings
    recipe: AlgorithmSpec
    vocabulary: int | None
    groups: list[list[str]]

    @classmethod
    def open(cls, settings: Settings, recipe: AlgorithmSpec, vocabulary: int | None) -> Recorded:
        """Read the pool's index, and print the excluded sessions.

        Raises:
            InputError: no pool at ``settings.pool``, or nothing in it to train on.
        """
        left_out: Counter[str] = Counter()
        usable: list[Stored] = []
        with PoolReader(settings.pool) as reader:
            for stored in reader.stored():
                if reason := unusable(stored, settings, recipe):
                    left_out[reason] += 1
                else:
                    light = dataclasses.replace(stored.session, facts={}, metrics={})  # the list may be long
                    usable.append(dataclasses.replace(stored, session=light))
        single = [[stored.session.id] for stored in usable]
        groups = single if recipe.source == "demonstrations" else _groups(usable, recipe, left_out)
        out = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "none"
        if not groups:
            raise InputError(f"{settings.pool}: no session that {recipe.name} can train on; excluded: {out}")
        kept = sum(map(len, groups))
        print(f"[rl_agents] {settings.pool}: {kept} sessions in {len(groups)} groups; excluded: {out}", flush=True)
        return cls(settings, recipe, vocabulary, groups)

    def next(self, iteration: int, position: int) -> Experience:
        """Return the data of the iteration: the next ``tasks_per_iteration`` groups, or more if the recipe needs them.

        Args:
            position: groups taken from the stream before this iteration.

        Raises:
            InputError: too few groups are informative, or the sessions are of another tokenizer.
        """
        rng = np.random.default_rng(stream_seed(self.settings.seed, SELECTION, iteration))
        count = self.settings.tasks_per_iteration
        if self.recipe.source == "demonstrations":
            count *= self.settings.group_size
        count, drawn, taken = min(count, len(self.groups)), list[Trajectory](), 0
        while True:
            drawn += self._draw(position + taken, taken, count)
            taken += count
            selected = select(self.recipe, drawn, self.settings, rng)
            if not selected.missing:
                break
            if taken >= len(self.groups):
                raise InputError(
                    f"{self.settings.pool}: {selected.missing} more groups are needed whose sessions differ in "
                    f"return, and all {len(self.groups)} were tried: lower "
                    "tasks_per_iteration, or set dynamic_sampling=false"
                )
        chosen = [t for t, keep in zip(drawn, selected.keep, strict=True) if keep]
        return Experience(drawn, chosen, selected.weights, rollout_metrics(drawn) | dict(selected.metrics))

    def _draw(self, position: int, first: int, count: int) -> list[Trajectory]:
        """Read groups, and number them again, because groups of different iterations share numbers."""
        drawn: list[Trajectory] = []
        with PoolReader(self.settings.pool) as reader:
            for number in range(count):
                ids = item_at(self.groups, position + number, self.settings.seed, RECORDED)
                for stored in reader.stored(StoreQuery(ids=ids)):
                    trajectory = reader.trajectory(stored)
                    self._check_ids(stored.session.id, trajectory)
                    trajectory.group_id = first + number
                    drawn.append(trajectory)
        return drawn

    def _check_ids(self, session: str, trajectory: Trajectory) -> None:
        largest = max(max([*step.prompt_ids, *step.response_ids], default=0) for step in trajectory.steps)
        if self.vocabulary is not None and largest >= self.vocabulary:
            raise InputError(
                f"{self.settings.pool}: session '{session}' holds token id {largest}, and the model reads "
                f"{self.vocabulary} ids: another tokenizer wrote it; name the model that sampled it (--model)"
            )


def unusable(stored: Stored, settings: Settings, recipe: AlgorithmSpec) -> str:
    """Return why a session is excluded, as a phrase after a count; empty if it is usable."""
    session = stored.session
    if session.kind not in KINDS:
        return f"of kind {session.kind}"
    if session.env != settings.env:
        return f"of env {session.env or 'unknown'}"
    if session.failed:
        return "failed"
    if not stored.steps:
        return "without steps"
    if recipe.source != "demonstrations":
        return ""
    least = settings.pool_min_return
    if least is not None:
        return "" if stored.total >= least else f"with a return below pool_min_return={least:g}"
    return "" if session.success else "not solved (see pool_min_return)"


def _groups(usable: Sequence[Stored], recipe: AlgorithmSpec, left_out: Counter[str]) -> list[list[str]]:
    """Return the recorded groups; for grouped recipes without groups of a single session."""
    found: dict[tuple[int, int, str], list[str]] = {}
    for session in (stored.session for stored in usable):
        found.setdefault((session.iteration, session.group_id, session.task_id), []).append(session.id)
    if not recipe.grouped:
        return list(found.values())
    groups = [group for group in found.values() if len(group) > 1]
    if len(groups) < len(found):
        left_out["alone in their group"] += len(found) - len(groups)
    return groups
