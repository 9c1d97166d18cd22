"""Advantages as pure functions of numpy arrays in float64: statistics, returns and GAE, groups, and chain values.

token GAE, step GAE    δ + γλ·A of what follows (PPO, StepPO)
GRPO                   (R - μ_g)/(σ_g + ε)
Dr.GRPO                R - μ_g
RLOO                   R - mean of the others = n/(n-1)·(R - μ_g)
NeMo-RL                (R - mean of the others)/(std of the others + ε)
chain values           V of the Markov chain of all sampled steps (chain-gae, 3SPO)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# --- statistics -------------------------------------------------------------------------------------------------------

#: Values count as equal up to this share of the spread that returns can have; see `tolerance`.
EQUAL = 1e-4
#: Relative rounding of float32, in which rewards are kept: two units in the last place.
ROUNDING = 2.0**-22


def tolerance(values: FloatArray) -> float:
    """Largest difference at which two returns of a batch count as equal: max(1e-4·S, 2^-22·max |R|).

    S = max(1, max R - min R) is the spread that returns can have: a batch in which all fail does not show it, so it is
    at least 1. Returns in [0, 1] that differ by 1e-5 (a KL in the reward) are equal, and so are 0 and 0.01 next to
    200; returns near 1e6 that differ by 1 are not. The second term is the rounding of rewards in float32. Dividing what
    is equal by its deviation, or whitening it, would turn noise into advantages of the usual size.

    Source: ours; scale rewards whose whole range is below 1e-2.
    """
    if not values.size:
        return 0.0
    return max(EQUAL * max(1.0, float(np.ptp(values))), ROUNDING * float(np.abs(values).max()))


def masked_mean(x: ArrayLike, mask: ArrayLike) -> float:
    """mean_m(x) = Σ m·x / (Σ m + 1e-8); values outside the mask may be NaN. 0 for an empty mask."""
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    return float(values.sum() / (flag.sum() + 1e-8))


def masked_var(x: ArrayLike, mask: ArrayLike) -> float:
    """var_m(x) = mean_m((x - mean_m)²)·n/(n - 1), n = Σ m.

    Raises:
        ValueError: n < 2, where the variance is undefined.
    """
    flag = np.asarray(mask) != 0
    count = int(flag.sum())
    if count < 2:
        raise ValueError(f"the sample variance needs at least 2 valid values, got {count}")
    values = np.asarray(x, dtype=np.float64)
    centered = np.where(flag, values, 0.0) - masked_mean(values, flag)
    return masked_mean(centered**2, flag) * count / (count - 1)


def masked_whiten(x: ArrayLike, mask: ArrayLike) -> FloatArray:
    """whiten_m(x) = (x - mean_m)·(var_m + 1e-8)^{-1/2} on the mask, 0 elsewhere.

    A single value becomes 0, and so do values that are equal (`tolerance`).
    """
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    if _agree(values[flag]):
        return np.zeros(flag.shape)
    scale = np.sqrt(masked_var(values, flag) + 1e-8)
    whitened: FloatArray = np.where(flag, (values - masked_mean(values, flag)) / scale, 0.0)
    return whitened


def _agree(values: FloatArray) -> bool:
    return values.size < 2 or float(np.ptp(values)) <= tolerance(values)


def whiten_rows(rows: Sequence[FloatArray], masks: Sequence[ArrayLike]) -> list[FloatArray]:
    """Whiten over all sampled tokens of the batch, so that long rows dominate mean and deviation; 0 where masked.

    Args:
        rows, masks: one [tokens] array per row.
    """
    flat = masked_whiten(np.concatenate(rows), np.concatenate([np.asarray(mask) for mask in masks]))
    return list(np.split(flat, np.cumsum([row.size for row in rows])[:-1]))


def whiten_by_length(advantages: ArrayLike, lengths: ArrayLike) -> FloatArray:
    """`whiten_rows` for steps whose tokens all share one advantage.

    Args:
        advantages, lengths: [steps]; sampled tokens of every step, at least one.
    """
    counts = np.asarray(lengths, dtype=np.int64)
    tokens = np.repeat(np.asarray(advantages, dtype=np.float64), counts)
    of_steps: FloatArray = masked_whiten(tokens, np.ones(tokens.size))[np.cumsum(counts) - counts]
    return of_steps


def backward(following: ArrayLike) -> list[int]:
    """Order the entries so that each comes after the one that follows it.

    Args:
        following: [entries], the entry that follows each one, negative where none does; chains, or trees whose
            branches join.

    Raises:
        ValueError: an entry follows itself.
    """
    links = np.asarray(following, dtype=np.int64)
    depth, ahead = np.zeros(links.size, dtype=np.int64), links
    while (unfinished := ahead >= 0).any():
        depth += unfinished
        if depth.max() > links.size:
            raise ValueError("entries follow each other in a circle")
        ahead = np.where(unfinished, links[ahead], -1)
    order: list[int] = np.argsort(depth, kind="stable").tolist()
    return order


# --- returns and generalized advantage estimation, on tokens and on interaction steps ---------------------------------

# All recursions run backwards and step over masked tokens: an action keeps the credit for what happens after the tool
# output that follows it, and observation tokens consume no discount. They follow the links between entries: in a plain
# dialogue the next entry of the trajectory; in a tree of calls several entries may flow into one, and each of them gets
# the credit for all that comes after (`rl_agents.data.tree`).


class Gae(NamedTuple):
    advantages: FloatArray
    returns: FloatArray


class GaeRows(NamedTuple):
    """Advantages and returns G = A + V, one [tokens] array per row, 0 where masked."""

    advantages: list[FloatArray]
    returns: list[FloatArray]


def _backward(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, gamma: float, lam: float, carry: tuple[float, float]
) -> tuple[Gae, tuple[float, float]]:
    """One row of GAE; ``carry`` is (V, A) of the token that follows the row, and of its first token on return."""
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    advantages, returns = np.zeros(reward.size), np.zeros(reward.size)
    next_value, next_advantage = carry
    for j in np.flatnonzero(mask)[::-1]:
        next_advantage = reward[j] + gamma * next_value - value[j] + gamma * lam * next_advantage
        next_value = value[j]
        advantages[j], returns[j] = next_advantage, next_advantage + next_value
    return Gae(advantages, returns), (float(next_value), float(next_advantage))


def token_gae(
    rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    following: ArrayLike,
    *,
    gamma: float,
    lam: float,
    final_values: ArrayLike,
) -> GaeRows:
    """δ_j = r_j + γ·V_next - V_j;  A_j = δ_j + γλ·A_next, over the sampled tokens (Schulman et al. 2016).

    The recursion continues from row to row: the end of a row bootstraps from the first sampled token of the row that
    follows and inherits its advantage; rows without a sampled token are transparent.

    Args:
        rewards, values, masks: one [tokens] array per row: outcome on the last sampled token; value of the prefix
            before the token; 1 on sampled tokens; other tokens are skipped, regardless of their values.
        following: [rows], the row that follows, negative where the trajectory (or a conversation of it) ends.
        gamma: γ per sampled token.
        final_values: [rows], value after a row that no row follows: 0 where the task ended; not read elsewhere.

    Returns:
        Un-whitened advantages and returns.

    Raises:
        ValueError: rows follow each other in a circle.
    """
    final, links = np.asarray(final_values, dtype=np.float64), np.asarray(following)
    advantages, returns = [np.zeros(0)] * len(rewards), [np.zeros(0)] * len(rewards)
    first = [(0.0, 0.0)] * len(rewards)
    for row in backward(links):
        carry = first[links[row]] if links[row] >= 0 else (float(final[row]), 0.0)
        (advantages[row], returns[row]), first[row] = _backward(
            rewards[row], values[row], masks[row], gamma, lam, carry
        )
    return GaeRows(advantages, returns)


def step_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    following: ArrayLike,
    *,
    gamma: float,
    lam: float,
    final_values: ArrayLike,
) -> Gae:
    """δ_t = r_t + γ·V_{t+1} - V_t;  A_t = Σ_l (γλ)^l δ_{t+l}: token GAE with an interaction step as the time unit.

    StepPO, eq. 6. V_t is read at the last prompt token of step t. The advantage goes unchanged to every token of the
    step; the 1/L_t comes from the step ratio. t+1 is the step that follows t: in a tree of calls, a subagent's last
    step is followed by the call that reads its report.

    Args:
        rewards, values: [steps], r_t = sum of the step's token rewards, and V_t.
        following, final_values: as in `token_gae`, [steps].
        gamma: γ per step.

    Returns:
        Un-whitened advantages and returns; see `whiten_steps`.
    """
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    final, links = np.asarray(final_values, dtype=np.float64), np.asarray(following)
    advantages = np.zeros(reward.size)
    for t in backward(links):
        after = links[t]
        next_value, next_advantage = (value[after], advantages[after]) if after >= 0 else (final[t], 0.0)
        advantages[t] = reward[t] + gamma * next_value - value[t] + gamma * lam * next_advantage
    return Gae(advantages, advantages + value)


def gains(
    rewards: ArrayLike, values: ArrayLike, following: ArrayLike, *, gamma: float, final_values: ArrayLike
) -> FloatArray:
    """max(0, G_t - V_t), G_t = Σ_{k>=t} γ^{k-t} r_k: the return in excess of V, for steps that other policies sampled.

    Self-imitation (Oh et al. 2018, arXiv 1806.05635, equation 2). G is a lower bound of the best return from s_t, and
    not an estimate of the policy's own return. If it is below V, it carries no information.

    Args:
        rewards, values, following, final_values: as in `step_gae`, [steps].
        gamma: γ per step.
    """
    zeros = np.zeros(np.asarray(rewards).size)
    returns = step_gae(rewards, zeros, following, gamma=gamma, lam=1.0, final_values=final_values).advantages
    return np.maximum(returns - np.asarray(values, dtype=np.float64), 0.0)


def whiten_steps(advantages: ArrayLike) -> FloatArray:
    """(A - mean)/(sample std + 1e-8) over all steps of the batch (StepPO's code, not in its equations).

    Equal advantages (`tolerance`), or a single one, become 0.
    """
    values = np.asarray(advantages, dtype=np.float64)
    if _agree(values):
        return np.zeros(values.size)
    everywhere = np.ones(values.size)
    whitened: FloatArray = (values - masked_mean(values, everywhere)) / (np.sqrt(masked_var(values, everywhere)) + 1e-8)
    return whitened


def discounted_returns(rewards: ArrayLike, following: ArrayLike, penalties: ArrayLike, *, gamma: float) -> FloatArray:
    """G_t = Σ_{k>=t} γ^{k-t} r_k over the steps that follow, then minus the step's own penalty (GiGPO, eq. 7).

    The case V = 0, λ = 1 of `step_gae`. Penalties (an unparsable action) are not propagated to earlier steps.

    Args:
        rewards, penalties: [steps]; penalties are non-negative.
        following: [steps], as in `step_gae`.
        gamma: γ per step.
    """
    zeros = np.zeros(np.asarray(rewards).size)
    returns = step_gae(rewards, zeros, following, gamma=gamma, lam=1.0, final_values=zeros).advantages
    return returns - np.asarray(penalties, dtype=np.float64)


def reward_to_go(
    rewards: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    following: ArrayLike,
    *,
    gamma: float,
) -> list[FloatArray]:
    """G_j = r_j + γ·G_next over the sampled tokens of a trajectory, 0 elsewhere (REINFORCE++, Hu et al. 2025).

    `token_gae` with V = 0 and λ = 1. Masked tokens are skipped, so an action keeps its credit across a tool output
    and across rows.

    Args:
        rewards, masks, following: as in `token_gae`; rewards on masked tokens are ignored.
        gamma: γ per sampled token.

    Raises:
        ValueError: rows follow each other in a circle.
    """
    zeros, ends = [np.zeros(np.asarray(row).size) for row in rewards], np.zeros(len(rewards))
    return token_gae(rewards, zeros, masks, following, gamma=gamma, lam=1.0, final_values=ends).advantages


# --- groups -----------------------------------------------------------------------------------------------------------

# Advantages from comparing rollouts of one task, without a critic. Arrays are [n]: return, group and advantage of n
# rollouts; `rl_agents.data.step_table.StepTable.returns` chooses what counts as one. The members of a group of equal
# returns (`tolerance`), and of a group of one, get exactly 0. So does a return that is its group's mean up to the
# rounding of float64: HGPO counts advantages other than 0.

Std = Literal["sample", "population", "none"]
EPSILON = 1e-6
#: A return is its group's mean if it differs by at most this share of the tolerance.
NOISE = 1e-7


class Groups(NamedTuple):
    """Of the group of every return, [n]: size, μ (the return itself where it equals μ), Σ(R - μ)², all equal."""

    size: IntArray
    mean: FloatArray
    squares: FloatArray
    equal: BoolArray


def group_statistics(returns: FloatArray, groups: ArrayLike) -> Groups:
    """Statistics of the groups; equal numbers in ``groups`` form one. ``returns`` are the whole batch's."""
    index = np.unique(groups, return_inverse=True)[1].reshape(-1)
    size = np.bincount(index)
    mean = np.bincount(index, weights=returns) / size
    squares: FloatArray = np.bincount(index, weights=(returns - mean[index]) ** 2).astype(np.float64)
    low, high = np.full(size.size, np.inf), np.full(size.size, -np.inf)
    np.minimum.at(low, index, returns)
    np.maximum.at(high, index, returns)
    most = tolerance(returns)
    equal: BoolArray = (high - low <= most)[index]
    average = equal | (np.abs(returns - mean[index]) <= NOISE * most)
    return Groups(size[index], np.where(average, returns, mean[index]), squares[index], equal)


def grpo(returns: ArrayLike, groups: ArrayLike, *, std: Std = "sample") -> FloatArray:
    """A = (R - μ_g)/(σ_g + ε): PPO whose critic is the group mean (Shao et al. 2024, section 4.1).

    Args:
        std: σ_g with ddof 1 (verl, NeMo-RL) or 0; ``none`` is Dr.GRPO, A = R - μ_g (Liu et al. 2025, section 3.2).
    """
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, squares, _ = group_statistics(rewards, groups)
    advantages: FloatArray = rewards - mean
    if std != "none":
        ddof = 1 if std == "sample" else 0
        advantages = advantages / (np.sqrt(squares / np.maximum(size - ddof, 1)) + EPSILON)
    return advantages


def rloo(returns: ArrayLike, groups: ArrayLike) -> FloatArray:
    """A = R - mean of the others = n/(n-1)·(R - μ_g): unbiased Dr.GRPO (Ahmadian et al. 2024, section 3.3)."""
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, *_ = group_statistics(rewards, groups)
    advantages: FloatArray = (rewards - mean) * size / np.maximum(size - 1, 1)
    return advantages


def leave_one_out(returns: ArrayLike, groups: ArrayLike, *, std: Std = "sample") -> FloatArray:
    """A = (R - μ_o)/(σ_o + ε), mean and deviation of the n_o = n-1 *other* members (NeMo-RL default).

    σ_o² = (E_o[R²] - E_o[R]²)·n_o/(n_o-1), or without the last factor. Divided only where σ_o is above `tolerance`, so
    never in a group of two; a group of one gets 0.

    Args:
        std: as in `grpo`; ``none`` is `rloo`.
    """
    if std == "none":
        return rloo(returns, groups)
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, squares, _ = group_statistics(rewards, groups)
    others, centered = np.maximum(size - 1, 1), rewards - mean
    variance = (squares - centered**2) / others - (centered / others) ** 2
    ddof = 1 if std == "sample" else 0
    deviation = np.sqrt(np.maximum(variance * others / np.maximum(others - ddof, 1), 0.0))
    divide = (size > 2) & (deviation > tolerance(rewards))
    advantages: FloatArray = rloo(rewards, groups) / np.where(divide, deviation + EPSILON, 1.0)
    return advantages


# --- values of the Markov chain of sampled steps, counted as transitions between named states -------------------------

#: Maximum number of sweeps, and the change of a value below which they end.
MAX_SWEEPS, SWEEP_TOLERANCE = 200, 1e-5


def chain_values(
    steps: ArrayLike,
    rewards: ArrayLike,
    origin: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    gamma: float,
    prior: float,
    chain: ArrayLike | None = None,
    start: ArrayLike | None = None,
) -> FloatArray:
    """V(s) = (W(s) + γ·Σ_s' N(s, s')·V(s') + γ·k·V̄)/(N(s) + k), V̄ = Σ N·V/Σ N; float64 [states].

    N(s) steps were sampled at s, N(s, s') of them led to s', the others ended, W(s) is the sum of their rewards; k
    prior steps lead to an average state. If the reward is 1 for a solved end and else 0, W(s) counts solved ends and V
    is in [0, 1]. Swept until the largest change is below `SWEEP_TOLERANCE`.

    Args:
        steps, rewards: [states], N and W.
        origin, target, weight: [links], the states s and s' of a link and N(s, s'); a target below 0 is a state at
            which nothing was sampled, which has its parent's value.
        gamma: γ per step.
        prior: k > 0.
        chain: [states], index of a state's chain if there are several, each with its own V̄; None: one.
        start: [states], values to sweep from; None: 0.

    Source: ours, docs/algorithms/chain-gae.md.
    """
    links = _Links.of(steps, rewards, origin, target, weight, chain)
    values: FloatArray = np.zeros(links.visits.size) if start is None else np.array(start, dtype=np.float64)
    for _ in range(MAX_SWEEPS):
        previous, values = values, links.backed_up(values, gamma, prior)
        if np.abs(values - previous).max() < SWEEP_TOLERANCE:
            break
    return values


def values_within(
    steps: ArrayLike, rewards: ArrayLike, origin: ArrayLike, target: ArrayLike, weight: ArrayLike, *,
    turns: int, gamma: float, prior: float,
) -> FloatArray:  # fmt: skip
    """V_h(s) = (W(s) + γ·Σ_s' N(s, s')·V_{h-1}(s') + γ·k·V̄_{h-1})/(N(s) + k), V_0 = 0; float64 [turns + 1, states].

    The value of a state with h turns left. Arguments as in `chain_values`; a step that reached the turn limit is a
    link, not an end.

    Source: ours, docs/algorithms/3spo.md.
    """
    links = _Links.of(steps, rewards, origin, target, weight)
    found = np.zeros((turns + 1, links.visits.size))
    for left in range(1, turns + 1):
        found[left] = links.backed_up(found[left - 1], gamma, prior)
    return found


class _Links(NamedTuple):
    """The counts of a chain: N, W and index of the chain [states]; ΣN [chains]; s, s' and N(s, s') [links]."""

    visits: FloatArray
    earned: FloatArray
    chain: IntArray
    total: FloatArray
    here: IntArray
    there: IntArray
    weight: FloatArray

    @staticmethod
    def of(
        steps: ArrayLike, rewards: ArrayLike, origin: ArrayLike, target: ArrayLike, weight: ArrayLike,
        chain: ArrayLike | None = None,
    ) -> _Links:  # fmt: skip
        visits, earned, weights = (np.asarray(part, dtype=np.float64) for part in (steps, rewards, weight))
        of = np.zeros(visits.size, dtype=np.int64) if chain is None else np.asarray(chain, dtype=np.int64)
        here, there = (np.asarray(part, dtype=np.int64) for part in (origin, target))
        return _Links(visits, earned, of, np.maximum(np.bincount(of, visits), 1e-300), here, there, weights)

    def backed_up(self, values: FloatArray, gamma: float, prior: float) -> FloatArray:
        """One backup of all states, each chain with its own mean."""
        mean = np.bincount(self.chain, values * self.visits) / self.total
        after = np.where(self.there < 0, values[self.here], values[self.there])
        inflow = np.bincount(self.here, self.weight * after, self.visits.size) + prior * mean[self.chain]
        return np.asarray((self.earned + gamma * inflow) / (self.visits + prior))
