"""Policy losses: oracle tables of sections 1.4, 8, 9 and 12, and their gradients."""

import math
from functools import partial

import pytest
import torch

from rl_agents.losses import policy

# With the clip ranges of the recipes.
ppo_loss = partial(policy.ppo_loss, clip_low=0.2, clip_high=0.2)
gspo_loss = partial(policy.ppo_loss, level="sequence", clip_low=3e-4, clip_high=4e-4)
gspo_token_loss = partial(policy.gspo_token_loss, clip_low=3e-4, clip_high=4e-4)
cispo_loss = partial(policy.cispo_loss, clip_low=10.0, clip_high=0.2)


def reinforce_loss(logprobs, advantages, mask):
    """-A·lp (Williams 1992), written down."""
    return torch.where(mask > 0, -advantages * logprobs, 0.0)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def ones(x):
    return torch.ones_like(x)


@pytest.mark.parametrize(
    ("advantage", "ratio", "plain", "dual"),
    [
        (1, 1.1, -1.1, -1.1),
        (1, 1.5, -1.28, -1.28),
        (1, 0.5, -0.5, -0.5),
        (-1, 1.1, 1.1, 1.1),
        (-1, 1.5, 1.5, 1.5),
        (-1, 0.5, 0.8, 0.8),
        (-1, 5.0, 5.0, 3.0),
        (0, 5.0, 0.0, 0.0),
    ],
)
def test_table_of_the_clipped_surrogate(advantage, ratio, plain, dual):
    lp, a = tensor([[math.log(ratio)]]), tensor([[float(advantage)]])
    bounds = {"clip_low": 0.2, "clip_high": 0.28}
    loss, _ = ppo_loss(lp, 0 * lp, a, ones(lp), **bounds)
    assert loss.item() == pytest.approx(plain, abs=1e-9)
    loss, _ = ppo_loss(lp, 0 * lp, a, ones(lp), dual_clip=3.0, **bounds)
    assert loss.item() == pytest.approx(dual, abs=1e-9)


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


def test_dual_clip_stops_the_gradient_and_spares_positive_advantages():
    lp = tensor([[math.log(5.0), math.log(5.0)]]).requires_grad_()
    advantages = tensor([[-1.0, 1.0]])
    loss, metrics = ppo_loss(lp, tensor([[0.0, 0.0]]), advantages, ones(lp), clip_high=9.0, dual_clip=3.0)
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([3.0, -5.0])
    assert lp.grad[0].tolist() == pytest.approx([0.0, -5.0])
    assert metrics["dual_clip_fraction"].item() == 0.5


def test_metrics_count_sampled_tokens_only():
    lp = tensor([[0.5, 0.1, -0.5, 3.0]])
    advantages, mask = tensor([[1.0, 1.0, 1.0, 1.0]]), tensor([[1, 1, 1, 0]])
    _, metrics = ppo_loss(lp, 0 * lp, advantages, mask)
    assert metrics["clip_fraction"].item() == pytest.approx(1 / 3)
    assert metrics["ppo_kl"].item() == pytest.approx(-0.1 / 3)
    assert metrics["ratio_mean"].item() == pytest.approx((math.exp(0.5) + math.exp(0.1) + math.exp(-0.5)) / 3)


@pytest.mark.parametrize("loss_of", [ppo_loss, gspo_loss, gspo_token_loss, cispo_loss])
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


def test_gspo_decides_about_clipping_once_per_row():
    lp = tensor([[1.0, -1.0], [0.3, 0.3]])
    _, metrics = gspo_loss(lp, 0 * lp, tensor([[1.0, 1.0], [1.0, 1.0]]), ones(lp))
    assert metrics["clip_fraction"].item() == 0.5


def test_gspo_token_form_has_value_and_gradient_of_the_sequence_form():
    old = tensor([[-1.0, -2.0, -0.5], [-0.3, -0.2, 0.0]])
    mask = tensor([[1, 1, 1], [1, 1, 0]])
    advantages = tensor([[0.7] * 3, [-1.3] * 3])
    results = []
    for loss_of in (gspo_loss, gspo_token_loss):
        lp = (old + tensor([[0.1, -0.1, 2e-4], [0.2, -0.1, 5.0]])).requires_grad_()
        loss, _ = loss_of(lp, old, advantages, mask)
        value = (loss.sum(1) / mask.sum(1)).mean()
        value.backward()
        results.append((value.item(), lp.grad))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-12)


def test_gspo_token_form_keeps_advantages_of_tokens_apart():
    lp = tensor([[0.0, 0.0]]).requires_grad_()
    gspo_token_loss(lp, tensor([[0.0, 0.0]]), tensor([[1.0, -2.0]]), ones(lp))[0].sum().backward()
    assert lp.grad[0].tolist() == pytest.approx([-1.0, 2.0])


def test_step_level_equals_gspo_on_step_rows():
    differences, advantages = [0.3, 0.1, -0.2, 0.4, 0.1], [1.0, 1.0, -0.5, -0.5, -0.5]
    merged, _ = ppo_loss(
        tensor([differences]),
        tensor([[0.0] * 5]),
        tensor([advantages]),
        tensor([[1.0] * 5]),
        level="step",
        segments=torch.tensor([[0, 0, 1, 1, 1]]),
        clip_low=3e-4,
        clip_high=4e-4,
    )
    parts = [slice(0, 2), slice(2, 5)]
    rows = [
        gspo_loss(tensor([differences[p]]), 0 * tensor([differences[p]]), tensor([advantages[p]]), tensor([[1.0] * n]))
        for p, n in zip(parts, (2, 3), strict=True)
    ]
    assert torch.allclose(merged, torch.cat([row[0] for row in rows], dim=1))


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
    for loss_of in (ppo_loss, gspo_loss, gspo_token_loss, cispo_loss):
        loss_of(lp, tensor([[-1.0]]), advantage, ones(lp))[0].sum().backward()
    assert advantage.grad is None


LENGTH_WEIGHTED = {
    "ppo": (ppo_loss, {}, False),
    "ppo dual clip": (ppo_loss, {"dual_clip": 3.0}, False),
    "cispo": (cispo_loss, {}, False),
    "gspo": (gspo_loss, {}, True),
    "gspo-token": (gspo_token_loss, {}, False),
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


def test_float32_agrees_with_float64():
    generator = torch.Generator().manual_seed(0)
    lp = torch.randn(4, 9, generator=generator, dtype=torch.float64) * 0.1
    advantages, mask = torch.randn(4, 9, generator=generator, dtype=torch.float64), torch.ones(4, 9)
    for loss_of in (ppo_loss, gspo_loss, gspo_token_loss, cispo_loss):
        double, _ = loss_of(lp, 0 * lp, advantages, mask)
        single, _ = loss_of(lp.float(), 0 * lp.float(), advantages.float(), mask)
        assert single.dtype == torch.float32
        assert torch.allclose(double, single.double(), atol=1e-5)
