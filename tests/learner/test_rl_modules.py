"""What the policy's forward pass and the learner's loss make of logits, without a network (sections 1.6 and 2)."""

import contextlib
import math
from types import SimpleNamespace

import pytest
import torch

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.learner.learner import AgentLearner
from rl_agents.learner.metrics import LearnerMetrics
from rl_agents.learner.rl_modules import CausalLMModule
from rl_agents.losses import RL


def forward(logits: torch.Tensor, ids: list[list[int]], mask: list[list[float]], **options: object) -> dict:
    """`CausalLMModule._forward` on a model that answers ``logits`` [rows, tokens, vocabulary]."""

    def model(input_ids: torch.Tensor, use_cache: bool, logits_to_keep: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=logits[:, : input_ids.shape[1]][:, logits_to_keep])

    module = SimpleNamespace(lm=model, piece=None, model_config={}, precision=lambda device: contextlib.nullcontext())
    batch = {"input_ids": torch.tensor(ids), "mask": torch.tensor(mask), "temperature": 1.0, **options}
    return CausalLMModule._forward(module, batch)  # type: ignore[arg-type]


PROBABILITIES = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]])


def test_a_token_is_predicted_from_the_position_before_it() -> None:
    scores = forward(PROBABILITIES.log(), [[2, 0, 1]], [[0.0, 1.0, 1.0]])
    assert scores["logprobs"][0].tolist() == pytest.approx([0.0, math.log(0.5), math.log(0.8)])
    entropy = -(PROBABILITIES * PROBABILITIES.log()).sum(-1)[0]
    assert scores["entropy"][0].tolist() == pytest.approx([0.0, entropy[0].item(), entropy[1].item()])


def test_tokens_outside_the_mask_score_zero() -> None:
    scores = forward(PROBABILITIES.log(), [[2, 0, 1]], [[0.0, 0.0, 1.0]])
    assert scores["logprobs"][0].tolist() == pytest.approx([0.0, 0.0, math.log(0.8)])
    assert scores["entropy"][0, 1] == 0.0


def test_temperature_scales_logits() -> None:
    logits = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]])
    hot = forward(logits, [[0, 0]], [[0.0, 1.0]], temperature=2.0)
    assert hot["logprobs"][0, 1].item() == pytest.approx(math.log(math.e / (math.e + 1)))
    assert hot["entropy"][0, 1] > forward(logits, [[0, 0]], [[0.0, 1.0]])["entropy"][0, 1]


def bonus(logits: torch.Tensor, coefficient: float) -> tuple[torch.Tensor, float]:
    """The learner's loss with advantages of 0, and the entropy in it."""
    mask = [[0.0, 1.0, 1.0, 0.0]]
    scores = forward(logits, [[0, 1, 2, 0]], mask, entropy_gradient=coefficient > 0)
    settings = Settings.from_dict({"algo": "grpo", "entropy_coef": coefficient})
    learner = AgentLearner.__new__(AgentLearner)
    learner.settings, learner.recipe, learner.sums = settings, ALGORITHMS["grpo"], LearnerMetrics()
    learner._before_first_step, learner._tag, learner._by_token = False, "actor", False
    old = scores["logprobs"].detach()
    batch = {"mask": torch.tensor(mask), "logprobs": old, "advantages": torch.zeros(1, 4)}
    batch |= {"segments": torch.tensor([[-1, 0, 0, -1]]), "weights": {RL: torch.tensor(mask) / 2}}
    loss = learner._policy_loss(batch, scores)
    return loss, float(scores["entropy"].detach().sum()) / 2


def test_the_entropy_bonus_lowers_the_loss_and_a_descent_step_raises_entropy() -> None:
    logits = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]).requires_grad_()
    loss, entropy = bonus(logits, 0.1)
    loss.backward()
    assert loss.item() == pytest.approx(-0.1 * entropy)
    assert logits.grad is not None and not logits.grad[0, 2:].any(), "tokens outside the mask have no bonus"
    assert bonus(logits.detach() - logits.grad, 0.1)[1] > entropy
    assert bonus(logits, 0.0)[0].item() == 0.0
