"""A finite world of known chances, a softmax policy in it, and what dynamic programming knows about both.

Arrays over runs have a leading axis [runs]: one call looks at the policies of all seeds at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rl_agents.advantages.statistics import FloatArray, IntArray


@dataclass(frozen=True)
class World:
    """A world that ends solved, ends unsolved, or is cut after ``horizon`` steps, unsolved; success is the only reward.

    Attributes:
        chances: [states, actions, states + 2], P(s'|s, a); the last two are the ends, solved and unsolved.
        starts: [states], P(s_0): one state per task.
        names: [states], what estimators take for the state; equal names of unequal states are aliases.
        features: [states, parts]; logits are ``features @ weights``. The identity is a table.
        weights: [parts, actions], of the policy that every run starts from.
        task: [states], the task that a state belongs to.
    """

    name: str
    chances: FloatArray
    starts: FloatArray
    horizon: int
    names: IntArray
    features: FloatArray
    weights: FloatArray
    task: IntArray

    @property
    def states(self) -> int:
        """Number of states that are no ends."""
        return int(self.chances.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions, the same everywhere."""
        return int(self.chances.shape[1])

    @property
    def won(self) -> int:
        """Index of the solved end; the unsolved one is the next."""
        return self.states


class Values(NamedTuple):
    """V [horizon + 1, runs, states] and A = Q - V [horizon, runs, states, actions]: success to come, by the step."""

    values: FloatArray
    advantages: FloatArray


def policy(world: World, weights: FloatArray) -> FloatArray:
    """π(a|s), [runs, states, actions], of ``weights`` [runs, parts, actions]."""
    logits = np.matmul(world.features, weights)
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: FloatArray = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def values(world: World, chosen: FloatArray) -> Values:
    """V_h = Σ_a π·Q_h;  Q_h(s, a) = Σ_s' P(s'|s, a)·V_{h+1}(s'), with 1 at the solved end and 0 after the horizon."""
    runs = chosen.shape[0]
    table = world.chances.reshape(-1, world.states + 2)
    found = np.zeros((world.horizon + 1, runs, world.states))
    gains = np.zeros((world.horizon, runs, world.states, world.actions))
    for step in reversed(range(world.horizon)):
        after = np.concatenate([found[step + 1], np.ones((runs, 1)), np.zeros((runs, 1))], axis=1)
        q = (after @ table.T).reshape(runs, world.states, world.actions)
        found[step] = (chosen * q).sum(axis=-1)
        gains[step] = q - found[step][..., None]
    return Values(found, gains)


def success(world: World, chosen: FloatArray) -> FloatArray:
    """J = Σ_s P(s_0 = s)·V_0(s), [runs]: what a run's policy really achieves."""
    table = world.chances.reshape(-1, world.states + 2)
    runs = chosen.shape[0]
    now = np.zeros((runs, world.states))
    for _ in range(world.horizon):
        after = np.concatenate([now, np.ones((runs, 1)), np.zeros((runs, 1))], axis=1)
        now = (chosen * (after @ table.T).reshape(chosen.shape)).sum(axis=-1)
    return np.asarray(now @ world.starts)


def occupancy(world: World, chosen: FloatArray) -> FloatArray:
    """d_h(s) = P(s_h = s), [horizon, runs, states]: it sums to less than 1 once episodes have ended."""
    table = world.chances[..., : world.states].reshape(-1, world.states)
    found = np.zeros((world.horizon, chosen.shape[0], world.states))
    found[0] = world.starts
    for step in range(1, world.horizon):
        flow = (found[step - 1][..., None] * chosen).reshape(chosen.shape[0], -1)
        found[step] = flow @ table
    return found


def exact_gradient(world: World, chosen: FloatArray) -> FloatArray:
    """∇J = Σ_h Σ_s d_h(s)·Σ_a π(a|s)·A_h(s, a)·∇log π(a|s), [runs, parts, actions] (policy gradient theorem)."""
    reach, gains = occupancy(world, chosen), values(world, chosen).advantages
    logits = np.einsum("hrs,hrsa->rsa", reach, gains) * chosen
    return np.asarray(np.matmul(world.features.T, logits))


def gradient(
    world: World, chosen: FloatArray, run: IntArray, state: IntArray, action: IntArray, advantage: FloatArray
) -> FloatArray:
    """Σ_i A_i·∇log π(a_i|s_i) of sampled steps, [runs, parts, actions]; the arguments are [steps], A_i weighted."""
    runs, states, actions = chosen.shape
    place = run * states + state
    taken = np.bincount(place * actions + action, advantage, runs * states * actions).reshape(chosen.shape)
    total = np.bincount(place, advantage, runs * states).reshape(runs, states)
    return np.asarray(np.matmul(world.features.T, taken - total[..., None] * chosen))
