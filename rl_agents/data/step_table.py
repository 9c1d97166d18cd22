"""Interaction steps of a batch as arrays, for step-level credit, in any layout of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_agents.data.samples import FloatArray, Row
from rl_agents.data.trajectory import Trajectory
from rl_agents.data.tree import credited, followers, is_tree, parents

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Returns(NamedTuple):
    """Units of a group statistic: ``values`` and ``groups`` [n], and the unit ``of_step`` [steps]."""

    values: Floats
    groups: Ints
    of_step: Ints


@dataclass(slots=True)
class StepTable:
    """One entry per interaction step, in the order of the rows; all arrays [steps].

    Attributes:
        rows, starts: the row that contains the step, and the index of its first sampled token there.
        trajectories, index, groups: trajectory in the batch, step within it, task group.
        rewards: sum of the step's token rewards.
        penalties: penalty of an action that could not be parsed, else 0.
        anchors: the state before the action.
        following: the entry that first reads the step's result, -1: none (`rl_agents.data.tree`).
        previous: the entry that the step continues, -1 for the first of a conversation.
        cut: true where no step follows and a limit ended the episode.
    """

    rows: Ints
    starts: Ints
    lengths: Ints
    trajectories: Ints
    index: Ints
    groups: Ints
    rewards: Floats
    penalties: Floats
    anchors: list[str]
    following: Ints
    previous: Ints
    cut: NDArray[np.bool_]

    @classmethod
    def build(cls, rows: Sequence[Row], trajectories: Sequence[Trajectory], penalty: float = 0.0) -> StepTable:
        """Read the steps from the rows' segments.

        Args:
            rows: all rows of the trajectories, from `build_samples`.
            trajectories: ``Row.trajectory`` is an index of them.
            penalty: penalty of an action that could not be parsed.
        """
        found = [(number, *span) for number, row in enumerate(rows) for span in step_spans(row)]
        owners = [rows[number] for number, *_ in found]
        steps = [trajectories[row.trajectory].steps[step] for row, (_, step, _, _) in zip(owners, found, strict=True)]
        keys = [(row.trajectory, step) for row, (_, step, _, _) in zip(owners, found, strict=True)]
        following = _links(keys, lambda trajectory: followers(trajectories[trajectory]))
        return cls(
            rows=np.array([number for number, *_ in found], dtype=np.int64),
            starts=np.array([start for *_, start, _ in found], dtype=np.int64),
            lengths=np.array([length for *_, length in found], dtype=np.int64),
            trajectories=np.array([row.trajectory for row in owners], dtype=np.int64),
            index=np.array([step for _, step, *_ in found], dtype=np.int64),
            groups=np.array([row.group_id for row in owners], dtype=np.int64),
            rewards=np.array(
                [row.rewards[row.segments == f[1]].sum(dtype=np.float64) for row, f in zip(owners, found, strict=True)]
            ),
            penalties=np.array([0.0 if step.valid else penalty for step in steps]),
            anchors=[step.anchor for step in steps],
            following=following,
            previous=_links(keys, lambda trajectory: parents(trajectories[trajectory])),
            cut=np.array([not row.terminated for row in owners], dtype=bool) & (following < 0),
        )

    def __len__(self) -> int:
        return len(self.anchors)

    def returns(self, statistics: Literal["trajectories", "step_rows"], *, penalized: bool = True) -> Returns:
        """Episode returns less penalties for unparsable actions, once per unit of a group statistic.

        Args:
            statistics: ``trajectories``: every trajectory once, less all its penalties (papers);  ``step_rows``: every
                step, less its own penalty, so that long trajectories weigh more (verl-agent).
            penalized: False excludes the penalties.
        """
        _, first, number = np.unique(self.trajectories, return_index=True, return_inverse=True)
        total = np.bincount(number, weights=self.rewards).astype(np.float64)
        if statistics == "step_rows":
            own = self.penalties if penalized else 0.0
            return Returns(total[number] - own, self.groups, np.arange(len(self)))
        if penalized:
            total = total - np.bincount(number, weights=self.penalties)
        return Returns(total, self.groups[first], number)

    def spread(self, rows: Sequence[Row], advantages: ArrayLike) -> None:
        """Give every sampled token of a step the step's advantage."""
        for row in rows:
            row.advantages = np.zeros(len(row), np.float32)
        for value, number, step in zip(np.asarray(advantages), self.rows, self.index, strict=True):
            row = rows[number]
            assert row.advantages is not None
            row.advantages[(row.segments == step) & (row.mask > 0)] = value


def _links(keys: Sequence[tuple[int, int]], of: Callable[[int], Sequence[int]]) -> Ints:
    """Entry of the step that each step points to; ``of`` returns the targets of a trajectory's steps, -1: none."""
    entry = {key: number for number, key in enumerate(keys)}
    targets = {trajectory: of(trajectory) for trajectory in {trajectory for trajectory, _ in keys}}
    return np.array([entry.get((t, targets[t][step]), -1) for t, step in keys], dtype=np.int64)


def step_spans(row: Row) -> list[tuple[int, int, int]]:
    """(step, first sampled token, sampled tokens) of every step in a row."""
    sampled = np.flatnonzero(row.mask)
    steps, first, counts = np.unique(row.segments[sampled], return_index=True, return_counts=True)
    return [(int(s), int(sampled[f]), int(c)) for s, f, c in zip(steps, first, counts, strict=True)]


def step_starts(row: Row) -> FloatArray:
    """1 at the first sampled token of every step, where the prefix ends with the last token of the state."""
    starts = np.zeros(len(row), np.float32)
    starts[[start for _, start, _ in step_spans(row)]] = 1.0
    return starts


@dataclass(slots=True)
class CreditUnits:
    """Units of token-level credit: the rows of plain dialogues, and the single steps of trees of calls.

    In a tree, a conversation may be joined in the middle of a row.

    Attributes:
        rows: index of each piece's row.
        spans: its tokens in that row.
        following: the piece that follows, -1: none.
    """

    rows: list[int]
    spans: list[slice]
    following: Ints

    @classmethod
    def of(cls, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> CreditUnits:
        """Cut all rows of the trajectories."""
        numbers, spans, keys, links = list[int](), list[slice](), list[tuple[int, int]](), dict[int, list[int]]()
        for number, row in enumerate(rows):
            if is_tree(trajectories[row.trajectory]):
                links.setdefault(row.trajectory, followers(trajectories[row.trajectory]))
                cuts = [(step, slice(start, start + length)) for step, start, length in step_spans(row)]
            else:
                links.setdefault(row.trajectory, []).append(len(links.get(row.trajectory, [])) + 1)
                cuts = [(len(links[row.trajectory]) - 1, slice(None))]
            for step, span in cuts:
                numbers.append(number)
                spans.append(span)
                keys.append((row.trajectory, step))
        return cls(numbers, spans, _links(keys, links.__getitem__))

    def cut(self, arrays: Sequence[FloatArray]) -> list[FloatArray]:
        return [arrays[number][span] for number, span in zip(self.rows, self.spans, strict=True)]

    def join(self, parts: Sequence[NDArray[np.float64]], rows: Sequence[Row]) -> list[Floats]:
        """Inverse of `cut`, 0 between the pieces."""
        joined = [np.zeros(len(row)) for row in rows]
        for part, number, span in zip(parts, self.rows, self.spans, strict=True):
            joined[number][span] = part
        return joined


def penalized_return(trajectory: Trajectory, penalty: float) -> float:
    """The return that group methods compare, before there are rows: less ``penalty`` per action that cannot be parsed.

    It is that of `StepTable.returns` without the overlong penalty and the KL, which only rows have.
    """
    lost = sum(used and not step.valid for used, step in zip(credited(trajectory), trajectory.steps, strict=True))
    return trajectory.episode_return - penalty * lost


def penalized_rewards(rows: Sequence[Row], trajectories: Sequence[Trajectory], penalty: float) -> list[FloatArray]:
    """Token rewards less ``penalty`` at the last token of every action that could not be parsed."""
    rewards = [row.rewards.copy() for row in rows]
    if penalty:
        for row, reward in zip(rows, rewards, strict=True):
            for step, *_ in step_spans(row):
                if not trajectories[row.trajectory].steps[step].valid:
                    reward[np.flatnonzero(row.segments == step)[-1]] -= penalty
    return rewards
