"""Supervised fine-tuning (section 2); the shift by one: tests/learner/test_rl_modules.py."""

import numpy as np
import pytest
import torch

from rl_agents.losses.aggregation import aggregation_weights, weighted_sum
from rl_agents.losses.likelihood import negative_log_likelihood

PROBABILITIES = torch.tensor([[0.5, 0.25, 0.8], [0.9, 1.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("masks", "mode", "expected"),
    [
        ([[1, 1, 1], [0, 0, 0]], "token-mean", 0.767528),
        ([[1, 1, 1], [1, 0, 0]], "token-mean", 0.601986),
        ([[1, 1, 1], [1, 0, 0]], "seq-mean-token-mean", 0.436444),
    ],
)
def test_reference_examples(masks, mode, expected):
    rows = {"trajectories": [0, 1], "segments": masks, "constant_length": None}
    weights = torch.tensor(np.stack(aggregation_weights(masks, mode, **rows)))
    loss = negative_log_likelihood(PROBABILITIES.log(), torch.tensor(masks))
    assert weighted_sum(loss, weights).item() == pytest.approx(expected, abs=1e-6)


def test_tokens_of_tools_and_prompts_are_masked():
    lp = torch.tensor([[-1.0, float("-inf"), -2.0]]).requires_grad_()
    loss = negative_log_likelihood(lp, torch.tensor([[1, 0, 1]]))
    loss.sum().backward()
    assert loss.tolist() == [[1.0, 0.0, 2.0]]
    assert lp.grad.tolist() == [[-1.0, 0.0, -1.0]]
