"""Rows: the ragged token sequences that the learner reads, built from trajectories. Token ids never change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rl_agents.data.trajectory import HINTS, Step, Trajectory, continued
from rl_agents.data.tree import credited, followers, is_tree, parents
from rl_agents.errors import unknown

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
#: Row layouts, see `build_samples`.
MODES = ("merged", "per_step")


@dataclass(slots=True)
class Row:
    """One token sequence with everything a loss needs, aligned position by position.

    Position j of every array belongs to token ``input_ids[j]``: ``mask[j]`` is 1 where the policy sampled
    it, ``logprobs[j]`` is the engine's log-probability of it (0 elsewhere). All arrays have length L.

    Attributes:
        trajectory: index of the trajectory in its batch; several rows may share one.
        segments: interaction step of a sampled token, -1 elsewhere.
        rewards: the step's reward at its last sampled token, 0 elsewhere.
        terminated: the row ends its trajectory by the task's own rules.
        last: the row ends its trajectory; in a tree of calls, one of its conversations.
        again: it is replayed: an earlier update has trained on it (`rl_agents.data.success_replay`).
        fresh: all of it was sampled by the weights that the learner has when it reads the batch.
        expert: it was demonstrated, not sampled, and has no credit.
        advantages: credit per token (filled by the algorithm's credit function).
        values: critic's value of the prefix before the token (filled when there is a critic).
        value_mask: 1 where the critic is read and trained (filled with the values).
        value_after: critic's value of the state after a row that a limit cut (filled with ``bootstrap_on_truncation``).
        returns: the critic's targets.
        old_logprobs: denominator of the importance ratio.
        reference_logprobs: log-probabilities under the reference (filled when there is a KL term).
        correction: factor on the policy loss for engine-learner mismatch (filled when it is corrected).
        teacher_logprobs: log-probabilities under the teacher (filled when it scores sampled tokens).
        hints: step -> (first, ids): before it the teacher reads ``input_ids[:first]`` and ids; see `teacher_rows`.
        components: weights per token of loss components (`rl_agents.losses.COMPONENTS`) besides `rl`, which has the
            weights of ``mask``; expert rows have no `rl`.
    """

    trajectory: int
    group_id: int
    input_ids: IntArray
    mask: FloatArray
    logprobs: FloatArray
    segments: IntArray
    rewards: FloatArray
    terminated: bool = False
    last: bool = True
    again: bool = False
    fresh: bool = True
    expert: bool = False
    value_after: float = 0.0
    advantages: FloatArray | None = None
    values: FloatArray | None = None
    value_mask: FloatArray | None = None
    returns: FloatArray | None = None
    old_logprobs: FloatArray | None = None
    reference_logprobs: FloatArray | None = None
    correction: FloatArray | None = None
    teacher_logprobs: FloatArray | None = None
    hints: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    components: dict[str, FloatArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def teacher_gap(self) -> FloatArray:
        """lp - lp_T of the policy that sampled, whose mean is an estimate of the KL from the teacher."""
        assert self.teacher_logprobs is not None, "the teacher scores rows before"
        return (self.logprobs if self.old_logprobs is None else self.old_logprobs) - self.teacher_logprobs

    @property
    def scored(self) -> FloatArray:
        """1 where some component has a weight: the tokens that the policy scores."""
        scored: FloatArray = np.any([self.mask, *self.components.values()], axis=0).astype(np.float32)
        return scored


def teacher_rows(row: Row) -> list[Row]:
    """Return what the teacher reads to score a row's scored tokens, in order: the row, or a row per step with hints."""
    if not row.hints:
        return [row]
    found, scored = [], row.scored
    for step in np.unique(row.segments[scored > 0]).tolist():
        sampled = np.flatnonzero(row.segments == step)
        first, ids = row.hints.get(step, (int(sampled[0]), []))
        mask = np.r_[np.zeros(first + len(ids)), scored[sampled]].astype(np.float32)
        tokens = np.r_[row.input_ids[:first], ids, row.input_ids[sampled]].astype(np.int32)
        segments = np.where(mask > 0, step, -1).astype(np.int32)
        found.append(Row(row.trajectory, row.group_id, tokens, mask, mask, segments, mask))
    return found


def build_samples(trajectories: Sequence[Trajectory], mode: str, version: int = 0) -> list[Row]:
    """Return the rows of all trajectories, in order.

    ``per_step``: one row per step, the prompt (mask 0) and the response (mask 1).
    ``merged``: consecutive steps share one row if each prompt begins with the previous prompt and response; tokens
    between responses have mask 0. Otherwise a new row of the same trajectory begins. A token has the same prefix in
    both layouts, so losses and gradients are the same, and merged rows have fewer tokens. In a tree of calls
    (`rl_agents.data.tree`), only steps that follow each other share a row: a branch begins another row, with mask 0 on
    the shared beginning, so that every sampled token is in exactly one row. Abandoned calls are in no row.

    ``Row.trajectory`` is the index in ``trajectories``. Failed trajectories never reach the learner: they have no
    rows. Neither do trajectories without steps.

    Args:
        version: of the learner's weights.

    Raises:
        InputError: unknown mode.
        ValueError: a step with an empty response, or not one log-probability per sampled id.
    """
    if mode not in MODES:
        raise unknown("row layout", mode, MODES)
    rows = []
    for index, trajectory in enumerate(trajectories):
        if not trajectory.failed:
            rows += _rows(index, trajectory, mode == "merged", version)
    return rows


def _rows(index: int, trajectory: Trajectory, merge: bool, version: int) -> list[Row]:
    if is_tree(trajectory):
        following = followers(trajectory)
        lineages = _lineages(trajectory, merge)
        return [_row(index, trajectory, part, version, last=following[part[-1]] < 0) for part in lineages]
    parts = list(_parts(trajectory.steps, merge))
    return [_row(index, trajectory, part, version, last=number == len(parts) - 1) for number, part in enumerate(parts)]


def _parts(steps: Sequence[Step], merge: bool) -> Iterator[list[int]]:
    part = [0] if steps else []
    for number, step in enumerate(steps[1:], start=1):
        if merge and continued(steps[part[-1]], step.prompt_ids):
            part.append(number)
        else:
            yield part
            part = [number]
    if part:
        yield part


def _lineages(trajectory: Trajectory, merge: bool) -> list[list[int]]:
    """Return the indices of each row's steps in a tree of calls; a row's steps need not be adjacent in the list."""
    steps, parts = trajectory.steps, list[list[int]]()
    row_of: dict[int, list[int]] = {}
    for number, (parent, counts) in enumerate(zip(parents(trajectory), credited(trajectory), strict=True)):
        if not counts:
            continue
        if merge and parent in row_of and continued(steps[parent], steps[number].prompt_ids):
            row_of[parent].append(number)
            row_of[number] = row_of[parent]
        else:
            row_of[number] = [number]
            parts.append(row_of[number])
    return parts


def _row(index: int, trajectory: Trajectory, numbers: Sequence[int], version: int, last: bool) -> Row:
    end = trajectory.steps[numbers[-1]]
    length = len(end.prompt_ids) + len(end.response_ids)
    ids = np.array(end.prompt_ids + end.response_ids, dtype=np.int32)
    mask, logprobs, rewards = (np.zeros(length, dtype=np.float32) for _ in range(3))
    segments = np.full(length, -1, dtype=np.int32)
    for number in numbers:
        step = trajectory.steps[number]
        if not step.response_ids or len(step.logprobs) != len(step.response_ids):
            raise ValueError(
                f"step {number} of task {trajectory.task_id} has {len(step.response_ids)} sampled ids "
                f"and {len(step.logprobs)} log-probabilities"
            )
        start = len(step.prompt_ids)
        stop = start + len(step.response_ids)
        mask[start:stop], logprobs[start:stop], segments[start:stop] = 1.0, step.logprobs, number
        rewards[stop - 1] = step.reward
    return Row(
        trajectory=index,
        group_id=trajectory.group_id,
        input_ids=ids,
        mask=mask,
        logprobs=logprobs,
        segments=segments,
        rewards=rewards,
        terminated=last and trajectory.terminated,
        last=last,
        fresh=all(trajectory.steps[number].policy_version == version for number in numbers),
        hints={n: (first, ids) for n, first, ids in trajectory.facts.get(HINTS, ()) if n in numbers},
    )
