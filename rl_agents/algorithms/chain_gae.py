"""chain-gae: step GAE whose critic is the Markov chain of all sampled steps, counted by the names of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.ppo import LambdaKeys
from rl_agents.algorithms.steppo import RatioLevelKeys, policy_loss
from rl_agents.credit.gae import Gae, step_gae, whiten_steps
from rl_agents.data.steps import StepTable
from rl_agents.search.chain import StateChain
from rl_agents.search.states import state_key
from rl_agents.settings.search import ChainKeys, StateKeys

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory

#: Names the state behind a cut, at which nothing is ever sampled: the chain takes it for as good as the one before it.
BEHIND_A_CUT = ""


@dataclass
class ChainGaeKeys(LambdaKeys, RatioLevelKeys, ChainKeys, StateKeys):
    """chain-gae."""


class ChainCritic:
    """V(s) of the chain of the steps of this and of earlier iterations, and step GAE over it.

    Attributes:
        chain: of all batches that were learned from.
    """

    def __init__(self, settings: ChainGaeKeys) -> None:
        self.settings = settings
        self.chain = StateChain(settings.gamma)
        self._next = self.chain
        self._metrics: dict[str, float] = {}

    def credit(self, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> None:
        """δ_t = r_t + γ·V(s_{t+1}) - V(s_t);  A_t = Σ_l (γλ)^l·δ_{t+l}, whitened over the batch's steps.

        Earlier counts fade by ``state_decay``, these steps are counted, and V is the chain's by the names of states. An
        episode that was cut ended with nothing, or with ``bootstrap_on_truncation`` goes on from the value of its last
        state that has a name, the one before the last action. In a tree of calls t+1 is the step that reads what came
        of t.
        """
        settings = self.settings
        table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
        names, rewards = state_names(table, trajectories, settings), table.rewards - table.penalties
        goes_on = table.cut & settings.bootstrap_on_truncation
        self._next = chain = self.chain.faded(settings.state_decay)
        for name, reward, after, cut in zip(
            names, rewards.tolist(), table.following.tolist(), goes_on.tolist(), strict=True
        ):
            chain.count(name, reward, names[after] if after >= 0 else BEHIND_A_CUT if cut else None)
        values = chain.values(names)
        gae = step_gae(
            rewards, values, table.following, gamma=settings.gamma, lam=settings.lam, final_values=values * goes_on
        )
        table.spread(rows, whiten_steps(gae.advantages) if settings.whiten else gae.advantages)
        _show(rows, table, gae)
        visits = sum(chain.steps(name) for name in names) / max(len(names), 1)
        self._metrics = {"chain/states_known": float(len(chain)), "chain/visits_mean": visits}

    def keep(self) -> None:
        """Remember the steps that were credited last."""
        self.chain = self._next

    def metrics(self) -> dict[str, float]:
        """States known, and the mean weight of the steps at the states of the batch."""
        return self._metrics

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        return self.chain.to_json()

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.chain.load_json(data)


def state_names(table: StepTable, trajectories: Sequence[Trajectory], settings: StateKeys) -> list[str]:
    """Name of the state before every step, [steps]."""
    owners = [trajectories[number] for number in table.trajectories.tolist()]
    if settings.state_name == "anchor":
        texts = table.anchors
    else:
        texts = [owner.steps[step].observation for owner, step in zip(owners, table.index.tolist(), strict=True)]
    return [state_key(owner.task_id, text, settings) for owner, text in zip(owners, texts, strict=True)]


def _show(rows: Sequence[Row], table: StepTable, gae: Gae) -> None:
    """Note V and what it should have been at every token of a step, for metrics and the pool."""
    for row in rows:
        row.values, row.returns = np.zeros(len(row), np.float32), np.zeros(len(row), np.float32)
    for number, step, advantage, target in zip(table.rows, table.index, gae.advantages, gae.returns, strict=True):
        row = rows[number]
        tokens = row.segments == step
        row.values[tokens], row.returns[tokens] = target - advantage, target  # type: ignore[index]


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ChainGaeKeys) -> None:
    """Credit where nothing is remembered; see `ChainCritic.credit`."""
    ChainCritic(settings).credit(rows, trajectories)


RECIPE = Recipe(
    name="chain-gae",
    summary="step GAE whose critic is no network but the Markov chain of all sampled steps, by the names of states",
    reference="ours: docs/algorithms/chain-gae.md; step GAE is that of StepPO (arXiv 2604.18401), equation 6",
    credit=credit,
    memory=ChainCritic,
    policy_loss=policy_loss,
    defaults={
        "group_size": 1,
        "tasks_per_iteration": 128,
        "gamma": 0.95,
        "lam": 0.95,
        "state_decay": 0.7,
        "ratio_level": "token",
        "aggregation": "step-mean",
    },
    keys=ChainGaeKeys,
)
