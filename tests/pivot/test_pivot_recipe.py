"""PivotRL's recipe: advantages over the rollouts of one turn, and what it reports about pivots and verifier."""

import numpy as np
import pytest
import torch

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.base import LossInputs
from rl_agents.algorithms.pivotrl import policy_loss, select
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.trainer.resolve import resolve

RECIPE = ALGORITHMS["pivotrl"]


def turns(scores: list[list[float]], exact: list[list[float]] | None = None) -> list[Trajectory]:
    """One-turn episodes: ``scores[group][member]``."""
    episodes = []
    for group, members in enumerate(scores):
        for member, score in enumerate(members):
            step = Step([1, 2], [3, 4, 5], [-1.0] * 3, 0, "stop", "", "", "go", score)
            episode = Trajectory(f"t{group}", group, member, 0, [step], terminated=True, success=score >= 1)
            episode.metrics = {"exact": exact[group][member]} if exact else {}
            episodes.append(episode)
    return episodes


def advantages(scores: list[list[float]], **keys) -> list[float]:
    settings = Settings.from_dict({"algo": "pivotrl", **keys})
    settings.set_defaults(RECIPE.defaults)
    episodes = turns(scores)
    rows = build_samples(episodes, "merged")
    RECIPE.credit(rows, episodes, settings)
    for row in rows:
        trained = row.advantages[row.mask > 0]
        assert len(trained) == 3 and (trained == trained[0]).all(), "all tokens of an action share its advantage"
    return [float(row.advantages[row.mask > 0][0]) for row in rows]


def test_advantages_against_numbers_worked_by_hand() -> None:
    assert advantages([[1, 0, 0, 0]]) == pytest.approx([1.499997, *[-0.499999] * 3], abs=1e-5)
    # The others of the first have no deviation; those of the second have mean 1/3 and sample deviation 0.57735.
    assert advantages([[1, 0, 0, 0]], leave_one_out=True) == pytest.approx([1.0, *[-0.577349] * 3], abs=1e-5)
    assert advantages([[1, 1, 0, 0]], advantage_std="none") == [0.5, 0.5, -0.5, -0.5]


def test_uniform_turns_teach_nothing_and_misses_of_exact_matches_are_counted() -> None:
    assert advantages([[1, 1, 1], [0, 0, 0]]) == [0.0] * 6
    assert advantages([[1, 1, 1], [0, 0, 0]], leave_one_out=True) == [0.0] * 6
    selected = select(turns([[1, 1, 1], [1, 0, 0], [0, 0, 0]]), Settings(), np.random.default_rng(0))
    assert selected.keep.all() and selected.keep.size == 9 and not selected.missing and not selected.weights
    assert selected.metrics["select/uniform_share"] == pytest.approx(2 / 3)
    episodes = turns([[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 0]])
    metrics = select(episodes, Settings(), np.random.default_rng(0)).metrics
    assert metrics["select/exact_miss_rate"] == pytest.approx(2 / 3)
    nothing = select(turns([[0, 0]], [[0, 0]]), Settings(), np.random.default_rng(0)).metrics
    assert "select/exact_miss_rate" not in nothing
    assert "select/exact_miss_rate" not in select(turns([[1, 0]]), Settings(), np.random.default_rng(0)).metrics


def test_defaults_are_those_of_the_public_recipes() -> None:
    settings = resolve(Settings.from_dict({"algo": "pivotrl", "env": "pivot"}))
    assert (settings.clip_low, settings.clip_high, settings.kl_coef) == (0.2, 0.28, 0.0)
    assert (settings.ratio_level, settings.loss_agg_mode, settings.minibatches) == ("token", "token-mean", 1)
    assert settings.max_turns == 1


def test_a_ratio_per_turn_clips_the_turn_as_one() -> None:
    old, mask = torch.zeros(1, 2), torch.ones(1, 2)
    logprobs = torch.tensor([[0.5, -0.1]], requires_grad=True)
    inputs = LossInputs(logprobs, old, torch.ones(1, 2), mask, torch.zeros(1, 2, dtype=torch.int64))
    for level, gradients in (("token", [False, True]), ("step", [True, True])):
        settings = Settings.from_dict({"algo": "pivotrl", "ratio_level": level})
        settings.set_defaults(RECIPE.defaults)
        loss, _ = policy_loss(inputs, settings)
        (gradient,) = torch.autograd.grad(loss.sum(), logprobs, retain_graph=True)
        assert [bool(value != 0) for value in gradient[0]] == gradients  # exp(0.5) > 1.28 > exp(0.2)
