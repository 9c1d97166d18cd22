"""3SPO: GRPO whose group is a state, at states that a search chooses by how often they were solved before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.gigpo import StepNormKeys, step_std
from rl_agents.algorithms.grpo import DualClipKeys, policy_loss
from rl_agents.credit.group import grpo
from rl_agents.credit.statistics import FloatArray
from rl_agents.credit.three_spo import StateScore, state_score
from rl_agents.data.steps import StepTable
from rl_agents.search.chain import StateChain
from rl_agents.search.states import MAX_STATES, Outcomes
from rl_agents.settings.learning import DiscountKeys
from rl_agents.settings.options import key
from rl_agents.settings.search import SearchKeys

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class ThreeSpoKeys(SearchKeys, StepNormKeys, DualClipKeys, DiscountKeys):
    """3spo: which states are closed, and how trajectories are counted."""

    score_xi: float = key(10.0, "failures from which a state may close", at_least=0)
    score_zeta: float = key(0.1, "success rate that keeps it open", at_least=0, at_most=1)
    score_gate: Literal["count", "score"] = key(
        "count", "what a closed state loses: its samples alone (n = 0), or S as well, as in equation 1, so that "
        "S(s) - S(s') pays for walking into it",
    )  # fmt: skip
    score_rate: Literal["counts", "chain"] = key(
        "counts", "p(s): share of solved trajectories (equation 1), or the value of the chain of all sampled steps"
    )
    score_clock: Literal["depth", "global"] = key("depth", "t: depth in the trajectory, or finished trajectories")
    state_count: Literal["trajectory", "visit"] = key("trajectory", "a state counts once per trajectory, or per visit")
    state_terminal: Literal["counted", "ignored"] = key(
        "counted", "terminal states are counted and a solved one has S = 0; or neither (released code)"
    )


class StateCounts:
    """N_total and N_succ per state (3SPO, section 3.2), kept over the whole run, and the scores from them.

    Attributes:
        finished, solved: trajectories counted, and those of them that were solved.
    """

    once_per: Literal["search", "siblings"] = "search"

    def __init__(self, settings: ThreeSpoKeys, max_states: int = MAX_STATES) -> None:
        self.settings, self.max_states = settings, max_states
        self.finished = self.solved = 0
        #: key -> (total, successes), least recently counted first.
        self._counts: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        """States known."""
        return len(self._counts)

    def count(self, key: str) -> tuple[int, int]:
        """Return (N_total, N_succ); (0, 0) for an unseen state."""
        return self._counts.get(key, (0, 0))

    def visits(self, key: str) -> float:
        """N_total."""
        return self.count(key)[0]

    def score(self, keys: Sequence[str], depth: int) -> StateScore:
        """S and gate of states (eq. 1), float64 [states]; t is the depth, or counts finished trajectories."""
        counts = np.array([self.count(key) for key in keys], dtype=np.float64).reshape(len(keys), 2)
        return state_score(
            counts[:, 0],
            counts[:, 1],
            depth if self.settings.score_clock == "depth" else 1 + self.finished,
            alpha=self.settings.score_alpha,
            xi=self.settings.score_xi,
            zeta=self.settings.score_zeta,
            gate=self.settings.score_gate,
        )

    def progress(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """S(s) - S(s'), float64 [samples], with S = 0 where a trajectory ended solved.

        With ``state_terminal=ignored`` ends are never counted (released code), so that S = 1, solved or not.
        """
        before, after = self.score([key], depth).score[0], self.score(outcomes.keys, depth + 1).score
        if self.settings.state_terminal == "counted":
            return np.asarray(before - np.where(outcomes.solved, 0.0, after))
        return np.asarray(before - np.where(outcomes.ended, 1.0, after))

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Sampled steps are not counted; finished trajectories are."""

    def finish(self, path: Sequence[str], success: bool, *, terminal: bool) -> None:
        """Count a finished trajectory at each distinct state of its path, or at every visit with ``state_count``."""
        self.finished += 1
        self.solved += success
        counted = path[:-1] if terminal and self.settings.state_terminal == "ignored" else path
        for name in dict.fromkeys(counted) if self.settings.state_count == "trajectory" else counted:
            total, successes = self._counts.pop(name, (0, 0))
            self._counts[name] = (total + 1, successes + success)  # behind all others, as the most recent
        while len(self._counts) > self.max_states:
            del self._counts[next(iter(self._counts))]

    def end_iteration(self) -> None:
        """Counts are kept."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        total, successes = zip(*self._counts.values(), strict=True) if self._counts else ((), ())
        counts = {"keys": list(self._counts), "total": list(total), "successes": list(successes)}
        return {"finished": self.finished, "solved": self.solved, **counts}

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.finished = int(data["finished"])
        rows = zip(data["keys"], data["total"], data["successes"], strict=True)
        self._counts = {str(key): (int(total), int(successes)) for key, total, successes in rows}
        self.solved = int(data.get("solved", max(data["successes"], default=0)))  # earlier checkpoints: at least these


class ChainRates(StateCounts):
    """p(s) = V(s) of the Markov chain of all sampled steps (`rl_agents.search.chain`); the gate is that of the counts.

    Counts know only of trajectories that ended. A path that a search leaves, at a closed state or because its actions
    were executed before, is counted nowhere, so that p(s) = 1 wherever a success was met. The chain knows every step.
    """

    def __init__(self, settings: ThreeSpoKeys, max_states: int = MAX_STATES) -> None:
        super().__init__(settings, max_states)
        self.chain = StateChain(settings.gamma, max_states)

    def visits(self, key: str) -> float:
        """Actions sampled at a state."""
        return self.chain.steps(key)

    def score(self, keys: Sequence[str], depth: int) -> StateScore:
        """S of eq. 1 with V(s) for p; a state without samples has S = 1."""
        return self._scored(keys, depth, self.chain.values(keys, 0.0))

    def progress(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """S(s) - S(s'), float64 [samples]; a state without samples is as good as the one before it, V(s') = V(s).

        S(s') = 0 where a trajectory ended solved, 1 where it ended otherwise.
        """
        here = self.chain.values([key], 0.0)
        before = self._scored([key], depth, here).score[0]
        after = self._scored(outcomes.keys, depth + 1, self.chain.values(outcomes.keys, float(here[0]))).score
        return np.asarray(before - np.where(outcomes.ended, 1.0 - np.asarray(outcomes.solved, dtype=np.float64), after))

    def _scored(self, keys: Sequence[str], depth: int, rates: FloatArray) -> StateScore:
        clock = depth if self.settings.score_clock == "depth" else 1 + self.finished
        score = state_score(np.ones(len(keys)), rates, clock, alpha=self.settings.score_alpha, xi=np.inf, epsilon=0.0)
        opened = super().score(keys, depth).open
        gated = self.settings.score_gate == "score"
        return StateScore(np.where(opened, score.score, 0.0) if gated else score.score, opened)

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the sampled steps, those that the search does not follow included."""
        self.chain.observe(key, outcomes)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        return {**super().to_json(), "chain": self.chain.to_json()}

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        super().load_json(data)
        self.chain.load_json(data["chain"])


def states_of(settings: ThreeSpoKeys) -> StateCounts:
    """What a run knows of states."""
    return ChainRates(settings) if settings.score_rate == "chain" else StateCounts(settings)


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ThreeSpoKeys) -> None:
    """A_i = (R_i - mean_s R) / (std_s R + 1e-6) over the n(s) samples at a state s (eq. 4): GRPO within a state.

    A trajectory is one sample, its group the state, its reward the step reward of eq. 2
    (`rl_agents.search.states.step_rewards`), less the price of an action that cannot be parsed.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    table.spread(rows, grpo(table.rewards - table.penalties, table.groups, std=step_std(settings)))


RECIPE = Recipe(
    name="3spo",
    summary="GRPO among actions sampled on purpose at one state, which a search with state scores chooses",
    reference="3SPO: State-Score-Supervised Policy Optimization for LLM Agents, section 3 and algorithm 1",
    credit=credit,
    policy_loss=policy_loss,
    defaults={
        "kl_coef": 0.01,
        "step_norm": "mean_std",
        "aggregation": "seq-mean-token-mean",
        "minibatches": 1,
        "gamma": 0.95,
    },
    keys=ThreeSpoKeys,
    source="search",
    states=states_of,
    grouped=True,
    stale_unit="step",
    preset="alfworld_chain_gae_small.yaml",
    stand_in="chain-gae",
    stand_in_note=(
        "--algo 3spo runs chain-gae: values of states, as 3SPO scores them, learned from whole episodes without its",
        "search, whose step rewards lowered success wherever a model was trained (docs/algorithms/3spo.md#finding).",
        "The search itself: name one of its keys, such as --set score_gate=score (all as in the paper), or its",
        "preset, --config alfworld_3spo; with values of the chain: --algo chain-search",
    ),
)
