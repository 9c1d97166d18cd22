"""Sampled steps of many runs, in complete episodes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from benchmarks.exact_worlds.world import World
from rl_agents.advantages import BoolArray, FloatArray, IntArray


@dataclass
class Steps:
    """Sampled steps, all [steps]; the steps of an episode are contiguous.

    Attributes:
        run, group, episode: numbers; a group's episodes start in the same state.
        after: the next state, or the end (`World.won`, or the next number).
        ended: by itself or by the horizon.
        following: index of the episode's next step; -1 for the last one.
        reach: weight of the step in the gradient; 1 for new episodes.
    """

    run: IntArray
    group: IntArray
    episode: IntArray
    time: IntArray
    state: IntArray
    action: IntArray
    after: IntArray
    ended: BoolArray
    following: IntArray
    reach: FloatArray

    def __len__(self) -> int:
        return int(self.run.size)

    def solved(self, world: World) -> BoolArray:
        return np.asarray(self.after == world.won)

    def ends(self, world: World) -> IntArray:
        """Return the next states; an episode that the horizon cut ended unsolved."""
        return np.where(self.ended & ~self.solved(world), world.won + 1, self.after)

    def taken(self, which: BoolArray) -> Steps:
        columns = {f.name: getattr(self, f.name)[which] for f in fields(self)}
        place = np.cumsum(which) - 1
        columns["following"] = np.where(columns["following"] < 0, -1, place[columns["following"]])
        return Steps(**columns)

    @classmethod
    def none(cls) -> Steps:
        numbers = np.zeros(0, dtype=np.int64)
        return cls(*(numbers for _ in range(7)), np.zeros(0, dtype=np.bool_), numbers, np.zeros(0))

    @classmethod
    def joined(cls, parts: list[Steps]) -> Steps:
        """Concatenate; numbers of groups and episodes are kept, links are shifted."""
        if not parts:
            return cls.none()
        before = np.cumsum([0, *(len(part) for part in parts)])
        columns = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)}
        shift = np.repeat(before[:-1], np.diff(before))
        columns["following"] = np.where(columns["following"] < 0, -1, columns["following"] + shift)
        return cls(**columns)


class Sampler:
    """Samples with the policies π(a|s) of all runs, [runs, states, actions], from one random stream."""

    def __init__(self, world: World, chosen: FloatArray, generator: np.random.Generator) -> None:
        self.world, self.chosen, self.generator = world, chosen, generator
        self._choice = np.cumsum(chosen, axis=-1)
        self._chance = np.cumsum(world.chances, axis=-1)
        self.episodes = self.groups = 0

    def actions(self, run: IntArray, state: IntArray) -> IntArray:
        dice = self.generator.random(run.size)[:, None]
        return np.minimum((dice >= self._choice[run, state]).sum(axis=1), self.world.actions - 1)

    def outcomes(self, state: IntArray, action: IntArray) -> IntArray:
        dice = self.generator.random(state.size)[:, None]
        return np.minimum((dice >= self._chance[state, action]).sum(axis=1), self.world.states + 1)

    def starts(self, count: int) -> IntArray:
        return self.generator.choice(self.world.states, size=count, p=self.world.starts)

    def one_group(self, runs: IntArray, size: int) -> Steps:
        """Sample one group of episodes for each of these runs; a group has one start state."""
        world, run = self.world, np.repeat(runs, size)
        state = np.repeat(self.starts(runs.size), size)
        group = np.repeat(self.groups + np.arange(runs.size), size)
        self.groups += runs.size
        rows: list[tuple[IntArray, ...]] = []
        alive = np.arange(run.size)
        for clock in range(world.horizon):
            if not alive.size:
                break
            here = state[alive]
            action = self.actions(run[alive], here)
            after = self.outcomes(here, action)
            ended = (after >= world.states) | (clock + 1 >= world.horizon)
            rows.append((alive, np.full(alive.size, clock), here, action, after, ended))
            state[alive] = after
            alive = alive[~ended]
        columns = [np.concatenate([row[part] for row in rows]) for part in range(6)]
        order = np.lexsort((columns[1], columns[0]))
        walker, time, here, action, after, ended = (column[order] for column in columns)
        following = np.where(ended, -1, np.arange(1, order.size + 1))
        first, self.episodes = self.episodes, self.episodes + run.size
        reach = np.ones(order.size)
        return Steps(run[walker], group[walker], first + walker, time, here, action, after, ended, following, reach)


@dataclass
class Budget:
    """Environment steps per iteration and run; steps beyond it are subtracted from the next iteration."""

    steps: int
    left: FloatArray

    def renew(self) -> None:
        self.left += self.steps

    def spend(self, run: IntArray) -> None:
        self.left -= np.bincount(run, minlength=self.left.size)

    def able(self) -> IntArray:
        return np.flatnonzero(self.left > 0)


def episodes(sampler: Sampler, budget: Budget, size: int) -> Steps:
    """Sample groups of complete episodes until every run's budget is spent."""
    parts = []
    while (runs := budget.able()).size:
        parts.append(sampler.one_group(runs, size))
        budget.spend(parts[-1].run)
    return Steps.joined(parts)
