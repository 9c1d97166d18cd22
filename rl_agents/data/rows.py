"""Rows: the ragged token sequences that the learner reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]


@dataclass(slots=True)
class Row:
    """One token sequence with everything a loss needs, aligned position by position.

    Position j of every array speaks of token ``input_ids[j]``: ``mask[j]`` is 1 where the policy sampled
    it, ``logprobs[j]`` is the engine's log-probability of it (0 elsewhere). All arrays have length L.

    Attributes:
        trajectory: index of the trajectory in its batch; several rows may share one.
        group_id: the trajectory's group.
        segments: interaction step of a sampled token, -1 elsewhere.
        rewards: the step's reward at its last sampled token, 0 elsewhere.
        terminated: the row ends its trajectory by the task's own rules.
        last: the row ends its trajectory.
        advantages: credit per token (filled by the algorithm's credit function).
        values: critic's value of the prefix before the token (filled when there is a critic).
        value_mask: 1 where the critic is read and trained (filled with the values).
        returns: the critic's targets.
        old_logprobs: denominator of the importance ratio.
        reference_logprobs: log-probabilities under the reference (filled when there is a KL term).
        correction: factor on the policy loss for engine-learner mismatch (filled when it is corrected).
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
    advantages: FloatArray | None = None
    values: FloatArray | None = None
    value_mask: FloatArray | None = None
    returns: FloatArray | None = None
    old_logprobs: FloatArray | None = None
    reference_logprobs: FloatArray | None = None
    correction: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)
