"""Ragged token rows and the schedule of optimizer steps, as RLlib's `LearnerGroup.update` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ray.rllib.core.learner.training_data import TrainingData

from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row
from rl_agents.learner.prefix_sharing import split_shared
from rl_agents.losses import RL, aggregation_weights

#: Name of the critic's loss weights, alongside those of the policy's components.
VALUE = "value"
#: Weights of each token of some rows, by the name of a loss.
Weights = dict[str, list[FloatArray]]
#: (trajectory, step) -> loss component -> what it added to the loss at each of the step's sampled tokens.
TokenLosses = dict[tuple[int, int], dict[str, list[float]]]


@dataclass(slots=True)
class Minibatch:
    """One optimizer step: its rows, and the global weights of each of their tokens, by loss component and `VALUE`.

    Attributes:
        done: completed share of the run before the step, from 0 to 1.
    """

    rows: list[int]
    weights: Weights
    done: float = 0.0

    def part(self, local: Mapping[int, int]) -> Minibatch:
        """Return what of the step is in ``local``: the index of a row here -> there."""
        mine = [position for position, row in enumerate(self.rows) if row in local]
        weights = {name: [of[i] for i in mine] for name, of in self.weights.items()}
        return Minibatch([local[self.rows[i]] for i in mine], weights, self.done)


@dataclass
class AgentTrainingData(TrainingData):
    """Rows and the schedule of optimizer steps over them.

    RLlib calls only `validate` and `shard`. Loss weights come from global counts, so any split over learners and
    micro-batches gives the same gradient.

    Attributes:
        by_token: learners return the losses of their rows' tokens.
    """

    rows: list[Row] = field(default_factory=list)
    minibatches: list[Minibatch] = field(default_factory=list)
    by_token: bool = False

    def validate(self) -> None:
        if not self.rows:
            raise ValueError("no rows to learn from")

    def shard(
        self, num_shards: int, len_lookback_buffer: int | None = None, *, shared: bool = False, **kwargs: Any
    ) -> list[tuple[AgentTrainingData, dict[str, Any]]]:
        return [(self._subset(indices), {}) for indices in split_rows(self.rows, num_shards, shared=shared)]

    def _subset(self, indices: list[int]) -> AgentTrainingData:
        local = {row: position for position, row in enumerate(indices)}
        minibatches = [minibatch.part(local) for minibatch in self.minibatches]
        return AgentTrainingData(rows=[self.rows[i] for i in indices], minibatches=minibatches, by_token=self.by_token)

    @classmethod
    def build(
        cls, rows: Sequence[Row], settings: Settings, rng: np.random.Generator, *, fold: bool = False
    ) -> AgentTrainingData:
        """Schedule ``epochs`` x ``minibatches`` optimizer steps; whole trajectories stay together.

        Rows without a token to train on are excluded. Expert rows are spread evenly over the steps.

        Args:
            fold: compute equal rows once and rows without advantage not at all, see `folded`; needs no critic.
        """
        rows = [row for row in rows if row.scored.any() or (row.value_mask is not None and row.value_mask.any())]
        trajectories = np.array([row.trajectory for row in rows])
        experts = np.unique([row.trajectory for row in rows if row.expert])
        names = np.setdiff1d(trajectories, experts)
        count = min(settings.minibatches, len(names))
        minibatches = []
        for _ in range(settings.epochs):
            parts = np.array_split(rng.permutation(names), count)
            if len(experts):
                demonstrated = np.array_split(rng.permutation(experts), count)
                parts = [np.append(part, more) for part, more in zip(parts, demonstrated, strict=True)]
            for part in parts:
                chosen = [int(i) for i in np.flatnonzero(np.isin(trajectories, part))]
                weights = component_weights([rows[i] for i in chosen], settings)
                if fold:
                    all_teach = bool(settings.kl_coef or settings.entropy_coef)
                    chosen, weights = folded(rows, chosen, weights, keep_silent=all_teach)
                if chosen:
                    minibatches.append(Minibatch(chosen, weights))
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
    rows: Sequence[Row], chosen: Sequence[int], weights: Weights, *, keep_silent: bool
) -> tuple[list[int], Weights]:
    """Omit rows without effect on the gradient: the same sum in fewer forward passes.

    Siblings of a state repeat its prompt and often each other. Rows of a group with the same tokens have the same
    credit, so the first represents all with the sum of their weights; its old log-probabilities differ from the others'
    by the engine's rounding. Rows without advantage add nothing to a surrogate. Denominators are counted before.

    Args:
        chosen: indices in ``rows`` of one optimizer step.
        keep_silent: rows without advantage matter, too (KL, entropy).
    """
    kept: dict[tuple[int, bytes], int] = {}
    total: dict[int, dict[str, FloatArray]] = {}
    for position, index in enumerate(chosen):
        row, own = rows[index], {name: of[position] for name, of in weights.items()}
        if not keep_silent and not row.components and row.advantages is not None and not row.advantages.any():
            continue
        first = kept.setdefault((row.group_id, row.input_ids.tobytes()), index)
        total[first] = {name: total[first][name] + w for name, w in own.items()} if first in total else own
    return list(total), {name: [own[name] for own in total.values()] for name in weights}


def component_weights(rows: Sequence[Row], settings: Settings) -> Weights:
    """Return the weights of all components of the rows of one optimizer step, and of the critic's loss.

    A row's weight of a token is multiplied by the token's share of the component's own aggregation: with token-mean,
    the loss of component c is Σ w_c·ℓ_c / (number of tokens with w_c ≠ 0).
    """
    own: dict[str, list[FloatArray | None]] = {
        RL: [None if row.expert else row.mask for row in rows],
        VALUE: [None if row.expert else row.mask if row.value_mask is None else row.value_mask for row in rows],
    }
    for name in sorted({name for row in rows for name in row.components}):
        own[name] = [row.components.get(name) for row in rows]
    return {name: token_weights(rows, of, settings) for name, of in own.items()}


def token_weights(rows: Sequence[Row], own: Sequence[FloatArray | None], settings: Settings) -> list[FloatArray]:
    """Aggregate (`rl_agents.losses.aggregation_weights`) over the rows that have weights; the others have weight 0."""
    there = [(number, of) for number, of in enumerate(own) if of is not None]
    shares = aggregation_weights(
        [of for _, of in there],
        settings.loss_agg_mode,
        trajectories=np.array([rows[number].trajectory for number, _ in there]),
        segments=[rows[number].segments for number, _ in there],
        constant_length=settings.loss_length or None,
    )
    weights = [np.zeros(len(row), np.float32) for row in rows]
    for (number, of), share in zip(there, shares, strict=True):
        weights[number] = share.astype(np.float32) * of
    return weights


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
