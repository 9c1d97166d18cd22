"""Ragged token rows and the schedule of optimizer steps, as RLlib's `LearnerGroup.update` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ray.rllib.core.learner.training_data import TrainingData

from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row
from rl_agents.learner.prefix_sharing import split_shared
from rl_agents.losses import aggregation_weights


@dataclass(slots=True)
class Minibatch:
    """One optimizer step: its rows, and the global loss weight of each of their tokens.

    Attributes:
        value_weights: weights of the critic's loss, which may have another mask.
        done: completed share of the run before the step, from 0 to 1.
    """

    rows: list[int]
    weights: list[FloatArray]
    value_weights: list[FloatArray]
    done: float = 0.0


@dataclass
class AgentTrainingData(TrainingData):
    """Rows and the schedule of optimizer steps over them.

    RLlib calls only `validate` and `shard`. Loss weights come from global counts, so any split over learners and
    micro-batches gives the same gradient.
    """

    rows: list[Row] = field(default_factory=list)
    minibatches: list[Minibatch] = field(default_factory=list)

    def validate(self) -> None:
        if not self.rows:
            raise ValueError("no rows to learn from")

    def shard(
        self, num_shards: int, len_lookback_buffer: int | None = None, *, shared: bool = False, **kwargs: Any
    ) -> list[tuple[AgentTrainingData, dict[str, Any]]]:
        return [(self._subset(indices), {}) for indices in split_rows(self.rows, num_shards, shared=shared)]

    def _subset(self, indices: list[int]) -> AgentTrainingData:
        local = {row: position for position, row in enumerate(indices)}
        minibatches = []
        for minibatch in self.minibatches:
            mine = [position for position, row in enumerate(minibatch.rows) if row in local]
            minibatches.append(
                Minibatch(
                    [local[minibatch.rows[i]] for i in mine],
                    [minibatch.weights[i] for i in mine],
                    [minibatch.value_weights[i] for i in mine],
                    minibatch.done,
                )
            )
        return AgentTrainingData(rows=[self.rows[i] for i in indices], minibatches=minibatches)

    @classmethod
    def build(
        cls, rows: Sequence[Row], settings: Settings, rng: np.random.Generator, *, fold: bool = False
    ) -> AgentTrainingData:
        """Schedule ``epochs`` x ``minibatches`` optimizer steps; whole trajectories stay together.

        Rows without a token to train on are excluded.

        Args:
            fold: compute equal rows once and rows without advantage not at all, see `folded`; needs no critic.
        """
        rows = [row for row in rows if row.mask.any() or (row.value_mask is not None and row.value_mask.any())]
        trajectories = np.array([row.trajectory for row in rows])
        names = np.unique(trajectories)
        minibatches = []
        for _ in range(settings.epochs):
            for part in np.array_split(rng.permutation(names), min(settings.minibatches, len(names))):
                chosen = [int(i) for i in np.flatnonzero(np.isin(trajectories, part))]
                part_rows = [rows[i] for i in chosen]
                weights = token_weights(part_rows, [row.mask for row in part_rows], settings)
                if fold:
                    all_teach = bool(settings.kl_coef or settings.entropy_coef)
                    chosen, weights = folded(rows, chosen, weights, keep_silent=all_teach)
                    part_rows = [rows[i] for i in chosen]
                if not chosen:
                    continue
                value_masks = [row.mask if row.value_mask is None else row.value_mask for row in part_rows]
                minibatches.append(Minibatch(chosen, weights, token_weights(part_rows, value_masks, settings)))
        data = cls(rows=list(rows), minibatches=minibatches)
        return data._subset(sorted({i for m in minibatches for i in m.rows})) if fold else data

    def set_progress(self, iteration: int, iterations: int, *, several: bool) -> None:
        """Fill the steps' ``done``: iterations may have different numbers of steps, and some have none.

        Args:
            several: the iteration has other updates, too (search); then all its steps count as its first.
        """
        steps = len(self.minibatches)
        for number, minibatch in enumerate(self.minibatches):
            minibatch.done = (iteration * steps + (0 if several else number)) / (iterations * steps)

    def size(self, rows: Sequence[Row], epochs: int) -> dict[str, float]:
        """Return metrics: rows and tokens that are forwarded once, and trained tokens of all ``rows``."""
        return {
            "rows/count": float(len(self.rows)),
            "rows/tokens": float(sum(len(row) for row in self.rows)),
            "rows/trained_tokens": float(sum(row.mask.sum() for row in rows)) * epochs,
        }


def folded(
    rows: Sequence[Row], chosen: Sequence[int], weights: Sequence[FloatArray], *, keep_silent: bool
) -> tuple[list[int], list[FloatArray]]:
    """Omit rows without effect on the gradient: the same sum in fewer forward passes.

    Siblings of a state repeat its prompt and often each other. Rows of a group with the same tokens have the same
    credit, so the first represents all with the sum of their weights; its old log-probabilities differ from the others'
    by the engine's rounding. Rows without advantage add nothing to a surrogate. Denominators are counted before.

    Args:
        chosen: indices in ``rows`` of one optimizer step.
        keep_silent: rows without advantage matter, too (KL, entropy).
    """
    kept: dict[tuple[int, bytes], int] = {}
    total: dict[int, FloatArray] = {}
    for index, own in zip(chosen, weights, strict=True):
        row = rows[index]
        if not keep_silent and row.advantages is not None and not row.advantages.any():
            continue
        first = kept.setdefault((row.group_id, row.input_ids.tobytes()), index)
        total[first] = total[first] + own if first in total else own
    return list(total), list(total.values())


def token_weights(rows: Sequence[Row], masks: Sequence[FloatArray], settings: Settings) -> list[FloatArray]:
    """Return weights w with loss = Σ w·ℓ over all rows (`rl_agents.losses.aggregation_weights`)."""
    weights = aggregation_weights(
        masks,
        settings.loss_agg_mode,
        trajectories=np.array([row.trajectory for row in rows]),
        segments=[row.segments for row in rows],
        constant_length=settings.loss_length or None,
    )
    return [w.astype(np.float32) for w in weights]


def split_rows(rows: Sequence[Row], num_shards: int, *, shared: bool) -> list[list[int]]:
    """Return row indices per learner with about equally many tokens; ``shared`` keeps common prefixes together."""
    return split_shared([row.input_ids for row in rows], num_shards) if shared else split_by_tokens(rows, num_shards)


def split_by_tokens(rows: Sequence[Row], num_shards: int) -> list[list[int]]:
    """Return row indices per shard: the longest row first, to the shard with the fewest tokens."""
    shards: list[list[int]] = [[] for _ in range(num_shards)]
    loads = [0] * num_shards
    for index in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        shard = loads.index(min(loads))
        shards[shard].append(index)
        loads[shard] += len(rows[index])
    return [sorted(shard) for shard in shards]
