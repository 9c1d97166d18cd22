"""3SPO: tree search. The score of a state determines how many actions are sampled there, and their rewards.

    S(s) = exp(-α·ln(t)·p(s))·gate(s)                                          eq. 1: 1 unknown, 0 mastered
    R    = ω·R_novel + (½ - ω)·(S(s) - S(s')) + ½·R_success                    eq. 2: ω = ½·exp(-γ_w·N(s))
    n(s) = ceil(G_max·S(s))                                                    eq. 3: 1 continues, 0 drops the path
    A_i  = (R_i - mean_s R)/unit over the n(s) samples at s                    eq. 4

p(s) is the success rate of trajectories through s, t the 1-based depth, ξ and ζ the thresholds of gate(s) = 1{N_fail <
ξ or p > ζ}. The search itself is `rl_agents.rollout.tree_search`: several tasks are searched concurrently, and each
tick samples at the current state of every task and ends with an update.

There are two readings of the paper, `READINGS`: ``published`` has the printed equations, ``learned`` (default) is tuned
with small models. docs/algorithms/3spo.md lists every difference with its reason. ``learned`` also trains on paths,
with A = w·gain: on the steps that led to a success (`path_gains`), and on those of failures (`failure_gains`).

Source: 3SPO, State-Score-Supervised Policy Optimization for LLM Agents (arXiv 2606.09961), section 3, algorithm 1.
Everything is float64: in float32, S underflows to 0, which would drop paths that should continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages import BoolArray, FloatArray, IntArray, grpo, step_gae
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.options import key, off, on
from rl_agents.config.sections import DiscountKeys, PolicyGradientKeys, SearchKeys
from rl_agents.data.step_table import StepTable
from rl_agents.rollout.tree_search.states import MAX_STATES, PATH, Outcomes, StateChain

if TYPE_CHECKING:
    from rl_agents.algorithms import Settings
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory

#: What a success adds to R (eq. 2): the unit in which differences of R are differences of the return.
UNIT = 0.5
#: λ of `failure_gains`.
FAILURE_LAMBDA = 0.95

#: Defaults that differ between the readings of the paper; a key that is set takes precedence.
READINGS: Mapping[str, Mapping[str, Any]] = {
    "learned": {
        "group_size": 2,
        "tasks_per_iteration": 64,
        "kl_coef": 0.0,
        "loss_agg_mode": "step-mean",
        "score_alpha": 1.0,
        "score_gate": "off",
        "score_rate": "chain",
        "score_difference": "value",
        "novelty_until": "solved",
        "sibling_norm": "none",
        "path_weight": 1.0,
        "search_max_finished": 1,
        "lr_decay": 0.5,
        "grad_clip": 0.05,  # advantages are about 0.15: 1 would clip no update, and success on lake rose later
    },
    "published": {
        "group_size": 8,
        "tasks_per_iteration": 16,
        "kl_coef": 0.01,
        "loss_agg_mode": "seq-mean-token-mean",
        "score_alpha": 50.0,
        "score_gate": "score",
        "score_rate": "counts",
        "score_difference": "score",
        "novelty_until": "always",
        "sibling_norm": "group",
        "path_weight": 0.0,
        "search_max_finished": 32,  # the authors' code; the paper has no number
        "state_key": "observation",
    },
}


@dataclass
class ThreeSpoKeys(SearchKeys, PolicyGradientKeys, DiscountKeys):
    """3SPO: state scores, step rewards, and what is trained on"""

    reading: Literal["learned", "published"] = key(
        "learned", "Defaults of the other keys: as printed in the paper (`published`), or tuned with small models"
    )
    score_alpha: float = key(
        1.0, "Alpha of the annealing term alpha*ln(t); at 50 the sample count n is 0, 1, or group_size", ge=0
    )
    score_rate: Literal["counts", "chain"] = key(
        "chain", "p(s): success rate of finished trajectories (paper), or value in the chain of all sampled steps"
    )
    score_gate: Literal["off", "count", "score"] = key(
        "off", "How states that keep failing are closed: never; n(s) = 0; or n(s) = 0 and S(s) = 0 (paper, equation 1)"
    )
    score_xi: float = key(10.0, "Number of failures at which a state may close", ge=0, needs=off(score_gate="off"))
    score_zeta: float = key(0.1, "Success rate above which a state stays open", ge=0, le=1, needs=off(score_gate="off"))
    search_rollouts: Literal["adaptive", "uniform"] = key(
        "adaptive", "Number of samples n(s) at a state: by its score, or group_size everywhere"
    )
    score_difference: Literal["value", "score", "none"] = key(
        "value",
        "Reward of a transition: gamma*V(s') - V(s); S(s) - S(s'), plus 1/2 for success (paper); or success only",
    )
    novelty: Literal["changed", "unseen", "none"] = key(
        "changed", "Novel states: other than the previous one, or never counted before; `none`: omega = 0"
    )
    novelty_decay: float = key(
        0.1,
        "Decay gamma_w of the novelty weight omega(N) = exp(-gamma_w*N)/2",
        ge=0,
        needs=off(novelty="none") + on(novelty_fixed=0),
    )
    novelty_fixed: float = key(
        0.0, "Constant novelty weight omega (ablation: 0.25); 0: omega(N)", ge=0, le=0.5, needs=off(novelty="none")
    )
    novelty_until: Literal["always", "solved"] = key(
        "solved",
        "How long novelty is rewarded: in the whole run, or until its first success",
        needs=off(novelty="none"),
    )
    sibling_norm: Literal["none", "group"] = key(
        "none", "Sibling advantages: in units of the return, or divided by the siblings' standard deviation (paper)"
    )
    path_weight: float = key(
        1.0, "Weight w of the steps of finished paths; 0: only siblings are trained on (paper)", ge=0
    )
    path_failures: Literal["all", "last"] = key(
        "all",
        "Trained steps of failed paths: all, at the turn limit too; or the last, if the environment ended the path",
        needs="path_weight",
    )


# --- equations -----------------------------------------------------------------------------------------------------


class StateScore(NamedTuple):
    """``score`` S in [0, 1]; ``open``: the gate, false for a state that keeps failing. Both [states]."""

    score: FloatArray
    open: BoolArray


def success_rate(total: ArrayLike, successes: ArrayLike) -> FloatArray:
    """p = N_succ/(N_total + 1e-6); 0 for an unseen state.

    Raises:
        ValueError: more successes than trajectories.
    """
    visits, wins = np.asarray(total, dtype=np.float64), np.asarray(successes, dtype=np.float64)
    if np.any(wins > visits) or np.any(wins < 0):
        raise ValueError("successes must lie between 0 and total")
    return np.asarray(wins / (visits + 1e-6))


def gate(total: ArrayLike, successes: ArrayLike, *, xi: float = 10.0, zeta: float = 0.1) -> BoolArray:
    """1{N_fail < ξ or p > ζ}: false for a state that keeps failing."""
    failures = np.asarray(total, dtype=np.float64) - np.asarray(successes, dtype=np.float64)
    return np.asarray((failures < xi) | (success_rate(total, successes) > zeta))


def state_score(rate: ArrayLike, t: ArrayLike, *, alpha: float = 50.0) -> FloatArray:
    """S = exp(-α·ln(t)·p) (eq. 1 without its gate; section 4). At depth 1 S = 1.

    Args:
        rate: p(s) in [0, 1].
        t: 1-based depth. In the authors' code all states have one t, the number of ended trajectories plus 1.
        alpha: 50 in the paper; 1 for graded counts.

    Raises:
        ValueError: t < 1.
    """
    depth = np.asarray(t, dtype=np.float64)
    if np.any(depth < 1):
        raise ValueError(f"t counts from 1, got {depth.min()}")
    return np.asarray(np.exp(-alpha * np.log(depth) * np.asarray(rate, dtype=np.float64)))


def rollout_count(score: ArrayLike, opened: ArrayLike, *, maximum: int = 8) -> IntArray:
    """n = ceil(G_max·S) where the gate is open, at least 1; 0 where it is closed (eq. 3).

    n = 0 drops the path, n = 1 continues without an update, n >= 2 branches. Only the gate gives 0, so that a score
    that underflows still continues.
    """
    count = np.clip(np.ceil(maximum * np.asarray(score, dtype=np.float64)), 1, maximum)
    gated: IntArray = np.where(np.asarray(opened), count, 0).astype(np.int64)
    return gated


def novelty_weight(total: ArrayLike, *, decay: float = 0.1, fixed: float | None = None) -> FloatArray:
    """ω(N) = ½·exp(-γ_w·N): rewards novelty at rarely visited states, progress at familiar ones.

    Args:
        total: N of the state before the step.
        decay: γ_w; ω = ¼ at N = ln 2/γ_w.
        fixed: a constant instead (the "w/o adaptive ω" ablation; 0.25).
    """
    visits = np.asarray(total, dtype=np.float64)
    weight: FloatArray = 0.5 * np.exp(-decay * visits) if fixed is None else np.full(visits.shape, fixed)
    return weight


def step_reward(novel: ArrayLike, progress: ArrayLike, success: ArrayLike, weight: ArrayLike) -> FloatArray:
    """R = ω·R_novel + (½ - ω)·(S(s_t) - S(s_{t+1})) + ½·R_success (eq. 2).

    Args:
        novel: R_novel in {0, 1}.
        progress: S(s_t) - S(s_{t+1}) before the step's own outcome is counted; S = 0 in a solved terminal state.
        success: R_success in {0, 1}, not the environment's scale.
        weight: ω(N(s_t)), see `novelty_weight`.
    """
    omega, gained = np.asarray(weight, dtype=np.float64), np.asarray(progress, dtype=np.float64)
    solved = np.asarray(success, dtype=np.float64)
    reward: FloatArray = omega * np.asarray(novel, dtype=np.float64) + (0.5 - omega) * gained + 0.5 * solved
    return reward


def path_gains(values: ArrayLike, gamma: float, solved: bool) -> FloatArray:
    """Gains of a finished path's steps: max(0, z·γ^(T-t) - V(s_t)) for t < T, z - V(s_T) at T; [steps].

    z is 1 for a solved path, else 0. Steps before the last are only reinforced: a search chooses the steps that it
    follows, so a later failure says little about a step. The last step of a path is a fair sample of the policy and
    counts with both signs: with successes alone, guess_numbers degraded from 0.51 to 0.17, because guessing at once is
    the shortest path to a lucky success.

    Args:
        values: [steps], V of the state before each step, with all turns left: with the remaining turns, slow successes
            gained most, and taxi degraded from 0.66 to 0.
    """
    before, outcome = np.asarray(values, dtype=np.float64), float(solved)
    gains = np.maximum(0.0, outcome * gamma ** np.arange(before.size - 1.0, -1.0, -1.0) - before)
    gains[-1:] = outcome - before[-1:]
    return np.asarray(gains)


def failure_gains(values: ArrayLike, gamma: float) -> FloatArray:
    """Gains of a failed path's steps: A_t = γ·V(s_{t+1}) - V(s_t) + γλ·A_{t+1}, in [-1, 1]; `step_gae` without reward.

    V is 0 after the last step, also at the turn limit. With the last step alone (`path_gains`) nothing tells a policy
    which earlier step was wrong: on errand, where one wrong step ends an episode, success fell from 0.27 to 0.16.

    Args:
        values: [steps], V of the state before each step, with all turns left.
    """
    steps = np.asarray(values).size
    zeros, following = np.zeros(steps), [*range(1, steps), -1][:steps]
    return step_gae(zeros, values, following, gamma=gamma, lam=FAILURE_LAMBDA, final_values=zeros).advantages


def sibling_advantages(
    rewards: ArrayLike, groups: ArrayLike, paths: ArrayLike, *, norm: Literal["none", "group"], weight: float = 1.0
) -> FloatArray:
    """A_i = (R_i - mean_s R)/unit (eq. 4), and w·gain for steps of paths; float64 [steps].

    In units of the return all are bounded, |A_i| <= 2 with `value_difference` and |A| <= w for paths, and differences
    that vanish, as on a solved task, give advantages that vanish. A divisor estimated from R would make them grow: with
    the deviation of recent updates, single steps of a solved game had advantages of -125.

    Args:
        rewards: R of every sibling, or the gain of a path's step (`path_gains`).
        groups: index of the state where a step was sampled.
        paths: true for steps of paths.
        norm: ``none``: the unit is `UNIT`; ``group``: the siblings' standard deviation, as in GRPO.
        weight: w.
    """
    earned, path = np.asarray(rewards, dtype=np.float64), np.asarray(paths, dtype=bool)
    found = weight * earned
    if (own := ~path).any():
        compared = grpo(earned[own], np.asarray(groups)[own], std="sample" if norm == "group" else "none")
        found[own] = compared if norm == "group" else compared / UNIT
    return np.asarray(found)


# --- statistics of states ------------------------------------------------------------------------------------------


class StateStatistics:
    """N_total and N_succ per state (section 3.2), the chain of all sampled steps, and equations 1 to 3 on them.

    Counts include only finished trajectories. The chain (`rl_agents.rollout.tree_search.states`) includes every sampled
    step, also those that the search does not follow, so that its values are the policy's.

    Attributes:
        finished, solved: number of counted trajectories, and of solved ones.
    """

    def __init__(self, settings: ThreeSpoKeys, max_states: int = MAX_STATES) -> None:
        from rl_agents.rollout.turns import episode_turns  # imports gymnasium: reading algorithms does without

        self.settings, self.max_states = settings, max_states
        self.turns = episode_turns(cast("Settings", settings))
        self.chain = StateChain(settings.gamma, max_states, self.turns) if settings.score_rate == "chain" else None
        self.finished = self.solved = 0
        #: key -> (total, successes), least recently counted first.
        self._counts: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        """Return the number of known states."""
        return len(self._counts if self.chain is None else self.chain)

    def count(self, key: str) -> tuple[float, float]:
        """Return (N_total, N_succ); (0, 0) for an unseen state."""
        return self._counts.get(key, (0.0, 0.0))

    def visits(self, key: str) -> float:
        """Return N of ω: counted trajectories at a state, or with the chain the actions sampled there."""
        return self.count(key)[0] if self.chain is None else self.chain.steps(key)

    def rates(self, keys: Sequence[str], depth: int = 1, unseen: float = 0.0) -> FloatArray:
        """Return p(s), float64 [states]; ``unseen`` for states that the chain does not know.

        With the chain it is the value with the remaining turns at a depth (all turns at depth 1).
        """
        if self.chain is not None:
            return self.chain.values_within(keys, self.chain.turns + 1 - depth, unseen)
        counts = self._table(keys)
        return success_rate(counts[:, 0], counts[:, 1])

    def score(self, keys: Sequence[str], depth: int, unseen: float = 0.0) -> StateScore:
        """Return S and gate of states at this depth (1 for start states), [states]."""
        settings = self.settings
        score = state_score(self.rates(keys, unseen=unseen), depth, alpha=settings.score_alpha)
        if settings.score_gate == "off":
            return StateScore(score, np.ones(len(keys), dtype=bool))
        counts = self._table(keys)
        opened = gate(counts[:, 0], counts[:, 1], xi=settings.score_xi, zeta=settings.score_zeta)
        return StateScore(np.where(opened, score, 0.0) if settings.score_gate == "score" else score, opened)

    def allocation(self, key: str, depth: int, most: int) -> tuple[float, int]:
        """Return (S, n) of a state (eq. 3), or (S, G_max) with uniform sampling; ``most`` is G_max."""
        found = self.score([key], depth)
        score = float(found.score[0])
        if self.settings.search_rollouts == "uniform":
            return score, most
        return score, int(rollout_count(found.score, found.open, maximum=most)[0])

    def step_rewards(self, path: Sequence[str], outcomes: Outcomes) -> FloatArray:
        """Return R of every sample (eq. 2) from the statistics before these steps, float64 [samples].

        Args:
            path: keys from the start state to the state of the samples.
        """
        settings, here, count = self.settings, path[-1], len(outcomes.keys)
        weight, novel, gained = 0.0, np.zeros(count), np.zeros(count)
        if settings.novelty != "none" and not (settings.novelty_until == "solved" and self.solved):
            weight = float(
                novelty_weight(self.visits(here), decay=settings.novelty_decay, fixed=settings.novelty_fixed or None)
            )
            novel = np.array([self._is_novel(here, after) for after in outcomes.keys], dtype=np.float64)
        if settings.score_difference == "value":
            return step_reward(novel, self.value_difference(here, len(path), outcomes), np.zeros(count), weight)
        if settings.score_difference == "score":
            gained = self.score_difference(here, len(path), outcomes)
        return step_reward(novel, gained, outcomes.solved, weight)

    def value_difference(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """γ·V(s') - V(s), float64 [samples], with 1 or 0 for γ·V(s') where a trajectory ended solved or not.

        V is the value with the remaining turns (`values_within`), so that a step to the turn limit leads to 0. It is a
        potential: over a trajectory it sums to the outcome minus V of the start, so that ending early earns no more
        than continuing to a state of the same value. S is compressed at shallow depths.
        """
        here = float(self.rates([key], depth)[0])
        after = self.settings.gamma * self.rates(outcomes.keys, depth + 1, unseen=here) * (depth < self.turns)
        return np.asarray(np.where(outcomes.ended, outcomes.solved, after) - here, dtype=np.float64)

    def score_difference(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """S(s) - S(s'), float64 [samples]; S(s') = 0 where a trajectory ended solved.

        With the chain, an unseen state has the value of the previous one, and an end without success has S = 1. With
        counts, ends are states (paper).
        """
        here = float(self.rates([key])[0]) if self.chain is not None else 0.0
        before = self.score([key], depth).score[0]
        after = self.score(outcomes.keys, depth + 1, unseen=here).score
        if self.chain is not None:
            after = np.where(outcomes.ended, 1.0, after) if depth < self.turns else np.ones(len(after))
        return np.asarray(before - np.where(outcomes.solved, 0.0, after))

    def path_gains(self, path: Sequence[str], solved: bool, terminated: bool) -> FloatArray:
        """Return the gains of the last steps of a finished path that are trained on, float64 [steps]; empty: none."""
        settings = self.settings
        whole = settings.path_failures == "all"
        if not settings.path_weight or not (terminated or whole):
            return np.zeros(0)
        values = self.rates(path[:-1])
        if whole and not solved:
            return failure_gains(values, settings.gamma)
        gains = path_gains(values, settings.gamma, solved)
        return gains if solved else gains[-1:]

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the steps sampled at a state, also those that the search does not follow."""
        if self.chain is not None:
            self.chain.observe(key, outcomes)

    def finish(self, path: Sequence[str], success: bool) -> None:
        """Count a finished trajectory, once at each distinct state of its path."""
        self.finished += 1
        self.solved += success
        for name in dict.fromkeys(path):
            total, successes = self._counts.pop(name, (0.0, 0.0))
            self._counts[name] = (total + 1, successes + success)  # at the end, as the most recent
        while len(self._counts) > self.max_states:
            del self._counts[next(iter(self._counts))]

    def end_iteration(self) -> None:
        """Decay the counts of old steps and trajectories by ``state_decay``."""
        factor = self.settings.state_decay
        if factor == 1.0:
            return
        self._counts = {name: (total * factor, wins * factor) for name, (total, wins) in self._counts.items()}
        if self.chain is not None:
            self.chain.fade(factor)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        total, successes = zip(*self._counts.values(), strict=True) if self._counts else ((), ())
        counts = {"keys": list(self._counts), "total": list(total), "successes": list(successes)}
        chain = {} if self.chain is None else {"chain": self.chain.to_json()}
        return {"finished": self.finished, "solved": self.solved, **counts, **chain}

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.finished, self.solved = int(data["finished"]), int(data["solved"])
        rows = zip(data["keys"], data["total"], data["successes"], strict=True)
        self._counts = {str(name): (float(total), float(wins)) for name, total, wins in rows}
        if self.chain is not None:
            self.chain.load_json(data["chain"])

    def _table(self, keys: Sequence[str]) -> FloatArray:
        return np.array([self.count(key) for key in keys], dtype=np.float64).reshape(len(keys), 2)

    def _is_novel(self, before: str, after: str) -> bool:
        return after != before if self.settings.novelty == "changed" else self.visits(after) == 0


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ThreeSpoKeys) -> None:
    """Compute eq. 4 over an update's siblings, and the advantages of paths; see `sibling_advantages`.

    A sibling is a trajectory of one step, its group is the state, and its reward is R of eq. 2 minus the penalty of an
    action that cannot be parsed. A path is a trajectory whose step rewards are gains.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    paths = [trajectories[number].end_cause == PATH for number in table.trajectories.tolist()]
    rewards = table.rewards - np.where(paths, 0.0, table.penalties)
    norm, weight = settings.sibling_norm, settings.path_weight
    table.spread(rows, sibling_advantages(rewards, table.groups, paths, norm=norm, weight=weight))


ALGORITHM = AlgorithmSpec(
    name="3spo",
    summary="tree search that branches at states by their score; GRPO among the actions sampled at one state",
    reference="3SPO: State-Score-Supervised Policy Optimization for LLM Agents, section 3 and algorithm 1",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"minibatches": 1, "gamma": 0.95},
    variants={"reading": READINGS},
    keys=ThreeSpoKeys,
    source="search",
    states=StateStatistics,
    grouped=True,
    stale_unit="step",
    preset="alfworld_3spo_small.yaml",
)
