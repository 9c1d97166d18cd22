"""chain-gae: step GAE whose critic is the Markov chain of all sampled steps, counted by state keys.

V(s') values a step by the state key that it led to. If the state key does not contain what the step achieved (for
example, that a tool was picked up), step GAE with a low λ hardly reflects it. The return does, with high variance. Its
mean over the visits of a transition has less variance, and `transition_prior` adds this mean to the advantage:

    b(s, s') = Σ (A^1 - A^λ) / (N(s, s') + k)

A^λ is step GAE, A^1 the same with λ = 1, and k is a number of prior visits with b = 0. If state keys are sufficient,
the mean of A^1 - A^λ is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rl_agents.advantages import BoolArray, FloatArray, Gae, IntArray, gains, step_gae, whiten_steps
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.ppo import GaeKeys
from rl_agents.algorithms.steppo import RatioLevelKeys, policy_loss
from rl_agents.config.options import key
from rl_agents.config.sections import Rules, StateKeys
from rl_agents.data.step_table import StepTable
from rl_agents.data.success_replay import SolvedEpisode, SolvedEpisodes
from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.tree_search.states import LEAST_WEIGHT, MAX_STATES, StateChain, state_key

if TYPE_CHECKING:
    from rl_agents.config import Settings
    from rl_agents.data.samples import Row


#: The state keys of a transition.
Pair = tuple[str, str]


class TransitionMeans:
    """Sums of A^1 - A^λ and numbers of visits, by the keys of a state and the next one.

    Args:
        prior: k.
        most: number of pairs to keep; the least recently visited ones are forgotten first.
    """

    def __init__(self, prior: float, most: int = MAX_STATES) -> None:
        self.prior, self.most = prior, most
        #: Visits, and sums of A^1 - A^λ; least recently visited first.
        self._sums: dict[Pair, tuple[float, float]] = {}

    def faded(self, factor: float) -> TransitionMeans:
        """Return a copy with all sums multiplied by ``factor``, without negligible ones."""
        found = TransitionMeans(self.prior, self.most)
        found._sums = {
            pair: (visits * factor, beyond * factor)
            for pair, (visits, beyond) in self._sums.items()
            if visits * factor > LEAST_WEIGHT
        }
        return found

    def count(self, pairs: Sequence[Pair], beyond: Sequence[float]) -> None:
        """Count one visit of each pair."""
        for pair, value in zip(pairs, beyond, strict=True):
            visits, total = self._sums.pop(pair, (0.0, 0.0))
            self._sums[pair] = (visits + 1.0, total + value)
        while len(self._sums) > self.most:
            del self._sums[next(iter(self._sums))]

    def corrections(self, pairs: Sequence[Pair]) -> FloatArray:
        """Return b of each pair, float64; 0 for a pair that was never counted."""
        sums = (self._sums.get(pair, (0.0, 0.0)) for pair in pairs)
        return np.array([beyond / (visits + self.prior) for visits, beyond in sums], dtype=np.float64)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def to_json(self) -> list[Any]:
        """Plain data; `load_json` is its inverse."""
        return [[*pair, *sums] for pair, sums in self._sums.items()]

    def load_json(self, data: Sequence[Sequence[Any]]) -> None:
        """Replace everything by what `to_json` returned."""
        self._sums = {(str(here), str(there)): (float(n), float(d)) for here, there, n, d in data}


#: Deviation of a batch's own advantages below which they agree: what the sweeps of the chain leave.
ROUNDING = 1e-3
#: Least σ of replayed steps, times max(1, largest gain): A <= w/0.04. That is 3SPO's, where a success counts 1/2.
LEAST_DEVIATION = 0.04
#: Key of the state behind a cut, at which nothing is ever sampled: the chain gives it the value of the previous state.
BEHIND_A_CUT = ""


@dataclass
class ChainGaeKeys(GaeKeys, RatioLevelKeys, StateKeys):
    """Chain-GAE"""

    success_replay: int = key(
        4,
        "Iterations for which successful episodes are replayed where returns exceed V; 0: off, as with top_p < 1",
        ge=0,
    )
    success_replay_weight: float = key(
        0.3, "Weight of the advantages of replayed episodes", gt=0, needs="success_replay"
    )
    transition_prior: float = key(0.0, "Prior visits k in the correction for state aliasing; 0: no correction", ge=0)

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        return {
            f"top_p={run.top_p:g} does not work with success_replay: its ratios need the engine's logprobs of the "
            "whole vocabulary, not of the nucleus; set top_p=1 or success_replay=0": run.top_p < 1
            and run.success_replay,
        }


class ChainCritic:
    """V(s) of the chain of the steps of this and earlier iterations, and step GAE over it.

    Attributes:
        chain: counts of all batches that were trained on.
        transitions: their corrections for state aliasing.
        solved: their solved episodes, at most as many as an iteration has.
    """

    def __init__(self, settings: ChainGaeKeys) -> None:
        run = cast("Settings", settings)
        self.settings = settings
        self.chain = StateChain(settings.gamma)
        self.transitions = TransitionMeans(settings.transition_prior)
        # A pool's sessions are drawn again anyway, and no pool records when they were drawn.
        iterations = 0 if run.pool else settings.success_replay
        self.solved = SolvedEpisodes(iterations, run.tasks_per_iteration * run.group_size)
        self._next, self._played = (self.chain, self.transitions), list[Trajectory]()
        self._metrics: dict[str, float] = {}

    def again(self, iteration: int) -> Sequence[SolvedEpisode]:
        """Solved episodes of the last ``success_replay`` iterations, oldest first."""
        return self.solved.again(iteration)

    def credit(self, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> None:
        """δ_t = r_t + γ·V(s_{t+1}) - V(s_t);  A_t = Σ_l (γλ)^l·δ_{t+l}, whitened over the batch's steps.

        Earlier counts decay by ``state_decay``, these steps are counted, and V is the chain's by state key. An episode
        that was cut has the value 0 beyond the cut, or with ``bootstrap_on_truncation`` the value of its last state
        with a key, the one before the last action. In a tree of calls, t+1 is the step that reads the result of t. With
        ``transition_prior``, b(s_t, s_{t+1}) is added to A_t (see the module's docstring).

        Replayed episodes are not counted again, and their advantages are never negative: the return beyond V, scaled
        like the batch's own advantages, A = w·max(0, G_t - V(s_t))/σ (`rl_agents.advantages.gains`). σ is the
        deviation of those, at least `LEAST_DEVIATION`, and 1 where they agree.
        """
        settings = self.settings
        table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
        names, rewards = state_names(table, trajectories, settings), table.rewards - table.penalties
        continues = table.cut & settings.bootstrap_on_truncation
        again = np.array([rows[number].again for number in table.rows], dtype=bool)
        chain, transitions = self.chain.faded(settings.state_decay), self.transitions.faded(settings.state_decay)
        self._next = chain, transitions
        for t in np.flatnonzero(~again).tolist():
            after = int(table.following[t])
            chain.count(
                names[t], float(rewards[t]), names[after] if after >= 0 else BEHIND_A_CUT if continues[t] else None
            )
        values = chain.values(names)
        final = values * continues
        gae = step_gae(
            rewards, values, table.following, gamma=settings.gamma, lam=settings.gae_lambda, final_values=final
        )
        advantages = gae.advantages
        if settings.transition_prior:
            whole = step_gae(rewards, values, table.following, gamma=settings.gamma, lam=1.0, final_values=final)
            beyond = whole.advantages - advantages
            advantages = advantages + _corrections(transitions, names, table.following, beyond, again)
        gained = gains(rewards, values, table.following, gamma=settings.gamma, final_values=final)
        table.spread(rows, _joined(advantages, gained, again, settings))
        _show(rows, table, gae)
        visits = sum(chain.steps(name) for name, old in zip(names, again, strict=True) if not old)
        own = max(int((~again).sum()), 1)
        self._metrics = {"chain/states_known": float(len(chain)), "chain/visits_mean": visits / own}
        if again.any():
            self._metrics["success_replay/gain_share"] = float((gained[again] > 0).mean())
        learned = {row.trajectory for row in rows if row.again}
        self._played = [trajectory for n, trajectory in enumerate(trajectories) if n not in learned]

    def keep(self, iteration: int, sessions: Sequence[str]) -> None:
        """Store the counts of the steps that were credited last, and ``iteration``'s own solved episodes."""
        self.chain, self.transitions = self._next
        self.solved.keep(iteration, zip(sessions, self._played, strict=True))

    def disown(self) -> None:
        self.solved.disown()

    def metrics(self) -> dict[str, float]:
        """Return the number of known states and the mean number of counted steps at the states of the batch."""
        return self._metrics

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        return {
            **self.chain.to_json(), "solved": self.solved.to_json(), "transitions": self.transitions.to_json(),
        }  # fmt: skip

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.chain.load_json(data)
        self.solved.load_json(data["solved"])
        self.transitions.load_json(data["transitions"])


def _corrections(
    transitions: TransitionMeans, names: Sequence[str], following: IntArray, beyond: FloatArray, again: BoolArray
) -> FloatArray:
    """Count A^1 - A^λ of the batch's own steps that have a follower; return their b, and 0 for the others, [steps]."""
    found, counted = np.zeros(len(names)), np.flatnonzero((following >= 0) & ~again)
    pairs = [(names[t], names[following[t]]) for t in counted.tolist()]
    transitions.count(pairs, beyond[counted].tolist())
    found[counted] = transitions.corrections(pairs)
    return found


def _joined(own: FloatArray, gained: FloatArray, again: BoolArray, settings: ChainGaeKeys) -> FloatArray:
    """Join the advantages of the batch's own steps, whitened or not, with those of replayed steps on the same scale."""
    found = np.where(again, settings.success_replay_weight * gained, own)
    if settings.whiten:
        found[~again] = whiten_steps(own[~again])
        # Without the mean: replayed steps keep positive advantages.
        deviation = float(own[~again].std(ddof=1)) if (~again).sum() > 1 else 0.0
        least = LEAST_DEVIATION * max(1.0, float(gained[again].max(initial=0.0)))
        found[again] /= max(deviation + 1e-8, least) if deviation > ROUNDING else 1.0
    return found


def state_names(table: StepTable, trajectories: Sequence[Trajectory], settings: StateKeys) -> list[str]:
    """Key of the state before every step, [steps]."""
    owners = [trajectories[number] for number in table.trajectories.tolist()]
    if settings.state_key == "anchor":
        texts = table.anchors
    else:
        steps = [owner.steps[step] for owner, step in zip(owners, table.index.tolist(), strict=True)]
        texts = [step.anchor if step.is_summary else step.observation for step in steps]
    return [state_key(owner.task_id, text, settings) for owner, text in zip(owners, texts, strict=True)]


def _show(rows: Sequence[Row], table: StepTable, gae: Gae) -> None:
    """Set values and returns at every token of a step, for metrics and the trajectory store."""
    for row in rows:
        row.values, row.returns = np.zeros(len(row), np.float32), np.zeros(len(row), np.float32)
    for number, step, advantage, target in zip(table.rows, table.index, gae.advantages, gae.returns, strict=True):
        row = rows[number]
        tokens = row.segments == step
        row.values[tokens], row.returns[tokens] = target - advantage, target  # type: ignore[index]


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ChainGaeKeys) -> None:
    """Compute the credit of a first iteration; see `ChainCritic.credit`."""
    ChainCritic(settings).credit(rows, trajectories)


ALGORITHM = AlgorithmSpec(
    name="chain-gae",
    summary="step GAE with values estimated from transition counts over visited states instead of a critic network",
    reference="ours: docs/algorithms/chain-gae.md; step GAE is that of StepPO (arXiv 2604.18401), equation 6",
    credit=credit,
    memory=ChainCritic,
    policy_loss=policy_loss,
    defaults={
        "group_size": 1,
        "tasks_per_iteration": 128,
        "gamma": 0.95,
        "gae_lambda": 0.7,
        "transition_prior": 2.0,
        "state_decay": 0.7,
        "ratio_level": "token",
        "loss_agg_mode": "step-mean",
    },
    keys=ChainGaeKeys,
)
