"""Importance ratios, policy losses and their gradients (sections 1.4, 8, 9 and 12 of the algorithm reference)."""

import math
from functools import partial

import pytest
import torch
from algorithms.handmade import settings_of

from rl_agents import losses
from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import LossInputs
from rl_agents.losses import icepop, log_ratio, segment_mean, token_tis

# With the clip ranges of the recipes.
ppo_loss = partial(losses.ppo_loss, clip_low=0.2, clip_high=0.2)
gspo_loss = partial(losses.ppo_loss, level="sequence", clip_low=3e-4, clip_high=4e-4)
cispo_loss = partial(losses.cispo_loss, clip_low=10.0, clip_high=0.2)


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def reinforce_loss(logprobs, advantages, mask):
    """-A·lp (Williams 1992), written down."""
    return torch.where(mask > 0, -advantages * logprobs, 0.0)


def ones(x):
    return torch.ones_like(x)


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected", "dual"),
    [
        (1, 1.1, -1.1, -1.1), (1, 1.5, -1.28, -1.28), (1, 0.5, -0.5, -0.5), (1, 5.0, -1.28, -1.28), (0, 5.0, 0, 0),
        (-1, 1.1, 1.1, 1.1), (-1, 1.5, 1.5, 1.5), (-1, 0.5, 0.8, 0.8), (-1, 5.0, 5.0, 3.0),
    ],
)  # fmt: skip
def test_table_of_the_clipped_surrogate_and_of_the_dual_clip(advantage, ratio, expected, dual):
    lp, a = tensor([[math.log(ratio)]]), tensor([[float(advantage)]])
    for options, value in (({}, expected), ({"dual_clip": 3.0}, dual)):
        loss, _ = ppo_loss(lp, 0 * lp, a, ones(lp), clip_low=0.2, clip_high=0.28, **options)
        assert loss.item() == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("advantage", "difference", "gradient"),
    [(1.0, 0.5, 0.0), (-1.0, -0.5, 0.0), (1.0, -0.5, -math.exp(-0.5)), (-1.0, 0.5, math.exp(0.5)), (0.0, 0.1, 0.0)],
)
def test_gradient_is_exactly_zero_in_the_clipped_branch_only(advantage, difference, gradient):
    lp = tensor([[difference]]).requires_grad_()
    ppo_loss(lp, tensor([[0.0]]), tensor([[advantage]]), ones(lp))[0].sum().backward()
    if gradient == 0.0:
        assert lp.grad.item() == 0.0
    else:
        assert lp.grad.item() == pytest.approx(gradient)


@pytest.mark.parametrize("level", ["token", "step", "sequence"])
def test_dual_clip_stops_the_gradient_of_a_ratio_that_exploded(level):
    gradients = {}
    for dual_clip in (0.0, 3.0):
        lp = tensor([[10.0]]).requires_grad_()
        segments = torch.zeros(1, 1, dtype=torch.int64)
        loss, _ = ppo_loss(lp, 0 * lp, -ones(lp), ones(lp), level=level, segments=segments, dual_clip=dual_clip)
        loss.sum().backward()
        gradients[dual_clip] = lp.grad.item()
    assert gradients == {0.0: pytest.approx(math.exp(10)), 3.0: 0.0}  # 22026


@pytest.mark.parametrize("algo", ["grpo", "gspo", "ppo", "steppo", "chain-gae", "vspo"])
def test_dual_clip_is_a_key_and_off_unless_it_is_set(algo):
    one = torch.ones(1, 1)
    inputs = LossInputs(10 * one, 0 * one, -one, one, torch.zeros(1, 1, dtype=torch.int64))
    for keys, expected in (({}, math.exp(10)), ({"dual_clip": 3.0}, 3.0)):
        loss, _ = ALGORITHMS[algo].policy_loss(inputs, settings_of(algo, **keys))
        assert loss.item() == pytest.approx(expected)


def test_metrics_count_sampled_tokens_only():
    lp = tensor([[0.5, 0.1, -0.5, 3.0]])
    advantages, mask = tensor([[1.0, 1.0, 1.0, 1.0]]), tensor([[1, 1, 1, 0]])
    _, metrics = ppo_loss(lp, 0 * lp, advantages, mask)
    assert metrics["clip_fraction"].item() == pytest.approx(1 / 3)
    assert metrics["ppo_kl"].item() == pytest.approx(-0.1 / 3)
    assert metrics["ratio_mean"].item() == pytest.approx((math.exp(0.5) + math.exp(0.1) + math.exp(-0.5)) / 3)


@pytest.mark.parametrize("loss_of", [ppo_loss, gspo_loss, cispo_loss])
def test_masked_tokens_and_rows_have_no_loss_and_no_gradient(loss_of):
    lp = tensor([[-1.0, float("nan")], [-2.0, -3.0]]).requires_grad_()
    mask = tensor([[1, 0], [0, 0]])
    advantages = tensor([[2.0, float("nan")], [float("inf"), 1.0]])
    loss, metrics = loss_of(lp, tensor([[-1.1, 0.0], [-2.0, -3.0]]), advantages, mask)
    loss.sum().backward()
    assert loss[mask == 0].tolist() == [0.0, 0.0, 0.0]
    assert lp.grad[mask == 0].tolist() == [0.0, 0.0, 0.0]
    assert torch.isfinite(loss).all()
    assert torch.isfinite(lp.grad).all()
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("advantage", "value", "moves"), [(1.0, -1.0004, False), (-1.0, 1.105171, True)])
def test_gspo_example(advantage, value, moves):
    lp = tensor([[0.1, -0.05, 0.25]]).requires_grad_()
    loss, _ = gspo_loss(lp, tensor([[0.0] * 3]), tensor([[advantage] * 3]), ones(lp))
    (loss.mean()).backward()
    assert loss[0].tolist() == pytest.approx([value] * 3, abs=1e-6)
    expected = -advantage * math.exp(0.1) / 3 if moves else 0.0
    assert lp.grad[0].tolist() == pytest.approx([expected] * 3)


def test_cispo_example_and_gradient_of_a_clipped_token():
    lp = tensor([[-1.0]]).requires_grad_()
    loss, metrics = cispo_loss(lp, tensor([[-1.5]]), tensor([[2.0]]), ones(lp))
    loss.sum().backward()
    assert loss.item() == pytest.approx(2.4, abs=1e-9)
    assert lp.grad.item() == pytest.approx(-2.4, abs=1e-9)
    assert metrics["clip_fraction"].item() == 1.0
    ppo = tensor([[-1.0]]).requires_grad_()
    ppo_loss(ppo, tensor([[-1.5]]), tensor([[2.0]]), ones(ppo))[0].sum().backward()
    assert ppo.grad.item() == 0.0  # where PPO is silent, CISPO is not


def test_cispo_lower_bound_is_inactive_by_default():
    lp = tensor([[-3.0]]).requires_grad_()
    cispo_loss(lp, tensor([[-1.0]]), tensor([[1.0]]), ones(lp))[0].sum().backward()
    assert lp.grad.item() == pytest.approx(-math.exp(-2.0))


def test_advantages_and_old_logprobs_carry_no_gradient():
    lp = tensor([[-1.0]]).requires_grad_()
    advantage = tensor([[1.0]]).requires_grad_()
    for loss_of in (ppo_loss, gspo_loss, cispo_loss):
        loss_of(lp, tensor([[-1.0]]), advantage, ones(lp))[0].sum().backward()
    assert advantage.grad is None


LENGTH_WEIGHTED = {
    "ppo": (ppo_loss, {}, False),
    "cispo": (cispo_loss, {}, False),
    "gspo": (gspo_loss, {}, True),
    "steppo": (ppo_loss, {"level": "step", "segments": torch.tensor([[0, 0, 1], [0, 0, -1]])}, True),
}


@pytest.mark.parametrize("name", LENGTH_WEIGHTED)
def test_at_ratio_one_every_gradient_equals_reinforce(name):
    loss_of, options, shared = LENGTH_WEIGHTED[name]
    mask = tensor([[1, 1, 1], [1, 1, 0]])
    # Where the ratio is shared by a step or a row, the advantage must be constant within it.
    advantages = (
        tensor([[0.5, 0.5, 0.5], [-1.5, -1.5, 9.0]]) if shared else tensor([[0.5, -1.0, 2.0], [3.0, -1.5, 9.0]])
    )
    gradients = []
    for reinforce in (False, True):
        lp = tensor([[-1.0, -0.4, -2.0], [-0.1, -0.7, 0.0]]).requires_grad_()
        old = lp.detach().clone()
        if reinforce:
            loss = reinforce_loss(lp, advantages, mask)
        else:
            loss, _ = loss_of(lp, old, advantages, mask, **options)
        loss.sum().backward()
        gradients.append(lp.grad)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)
    assert gradients[1].abs().sum() > 1.0


# --- ratios at token, step and sequence level -----------------------------------------------------------------------


def importance_ratio(logprobs, old_logprobs, mask, **options):
    return log_ratio(logprobs, old_logprobs, mask, **options).exp()


def ratio_of(differences, mask=None, **options):
    lp = tensor(differences)
    mask = torch.ones_like(lp) if mask is None else tensor(mask)
    return importance_ratio(lp, torch.zeros_like(lp), mask, **options)


def test_step_ratio_of_the_reference_example():
    ratio = ratio_of([[0.02, -0.01, 0.03, 0.0]], level="step", segments=torch.zeros(1, 4, dtype=torch.int64))
    assert ratio[0, 3].item() == pytest.approx(1.010050, abs=1e-6)


def test_step_ratio_on_a_merged_row_equals_sequence_ratio_on_step_rows():
    merged = ratio_of(
        [[0.3, 0.1, 9.0, -0.2, 0.4, 0.1]],
        mask=[[1, 1, 0, 1, 1, 1]],
        level="step",
        segments=torch.tensor([[0, 0, -1, 1, 1, 1]]),
    )
    first = ratio_of([[0.3, 0.1]], level="sequence")
    second = ratio_of([[-0.2, 0.4, 0.1]], level="sequence")
    assert torch.allclose(merged, torch.cat([first, tensor([[1.0]]), second], dim=1))


def test_segments_of_different_rows_do_not_mix():
    x = tensor([[1.0, 2.0], [10.0, 20.0]])
    mean = segment_mean(x, torch.ones_like(x), torch.tensor([[0, 1], [0, 0]]))
    assert mean.tolist() == [[1.0, 2.0], [15.0, 15.0]]


def test_zero_length_row_has_ratio_one_and_no_gradient():
    lp = tensor([[3.0, 4.0]]).requires_grad_()
    ratio = importance_ratio(lp, torch.zeros(1, 2), torch.zeros(1, 2), level="sequence")
    ratio.sum().backward()
    assert ratio.tolist() == [[1.0, 1.0]]
    assert lp.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("level", ["token", "step", "sequence"])
def test_garbage_on_masked_tokens_reaches_neither_value_nor_gradient(level):
    lp = tensor([[0.1, float("nan"), float("inf")]]).requires_grad_()
    options = {"segments": torch.tensor([[0, -1, -1]])} if level == "step" else {}
    ratio = importance_ratio(lp, torch.zeros(1, 3), tensor([[1, 0, 0]]), level=level, **options)
    ratio.sum().backward()
    assert ratio[0].tolist() == pytest.approx([math.exp(0.1), 1.0, 1.0])
    assert lp.grad[0].tolist() == pytest.approx([math.exp(0.1), 0.0, 0.0])


def test_large_differences_do_not_overflow_in_float32():
    lp = tensor([[400.0, -400.0]], torch.float32)
    ratio = importance_ratio(lp, torch.zeros(1, 2), torch.ones(1, 2))
    assert ratio[0].tolist() == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-5)


def test_sampled_token_without_a_segment_is_an_error():
    with pytest.raises(ValueError, match="negative segment"):
        ratio_of([[0.1, 0.2]], level="step", segments=torch.tensor([[0, -1]]))


# --- decoupled PPO (AReaL, arXiv 2505.24298, eq. 5): ``old_logprobs=learner`` with a weight per token ---------------

GENERATOR = torch.Generator().manual_seed(3)
BEHAVIOR, PROXIMAL = (-3 * torch.rand(4, 6, generator=GENERATOR, dtype=torch.float64) for _ in range(2))
ADVANTAGES = torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
MASK = (torch.rand(4, 6, generator=GENERATOR) > 0.2).double()
CLIP = 0.2


def areal(logprobs, cap):
    """w·min(ρA, clip(ρ)A) with ρ = π/π_prox and w = π_prox/π_behav, 0 beyond the cap, token by token."""
    losses = torch.zeros_like(logprobs)
    for i, j in MASK.nonzero().tolist():
        ratio = (logprobs[i, j] - PROXIMAL[i, j]).exp()
        weight = (PROXIMAL[i, j] - BEHAVIOR[i, j]).exp()
        if cap is None or weight <= cap:
            advantage = ADVANTAGES[i, j]
            losses[i, j] = -weight * torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return losses


def ours(logprobs, weights):
    loss, _ = losses.ppo_loss(logprobs, PROXIMAL, ADVANTAGES, MASK, clip_low=CLIP, clip_high=CLIP)
    return loss * weights


@pytest.mark.parametrize("moved", [0.0, 0.5], ids=["first minibatch", "a later minibatch"])
def test_it_is_the_published_objective_in_value_and_gradient(moved):
    logprobs = PROXIMAL + moved * torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
    for cap, weights in (
        (None, token_tis(PROXIMAL, BEHAVIOR, MASK, cap=1e12).weights),
        (5.0, icepop(PROXIMAL, BEHAVIOR, MASK, bounds=(0.0, 5.0)).weights),  # the released code drops beyond its cap
    ):
        found = []
        for objective in (lambda lp, cap=cap: areal(lp, cap), lambda lp, weights=weights: ours(lp, weights)):
            leaf = logprobs.clone().requires_grad_()
            loss = objective(leaf)
            loss.sum().backward()
            found.append((loss.detach(), leaf.grad))
        assert torch.allclose(found[0][0], found[1][0]) and torch.allclose(found[0][1], found[1][1])
