"""What the driver does to rows around credit, on hand-made numbers (sections 1.5 and 1.7)."""

from typing import Any

import numpy as np
import pytest
from algorithms.handmade import episode, settings_of

from rl_agents.algorithms import ALGORITHMS
from rl_agents.data.samples import Row, build_samples
from rl_agents.trainer.advantage_pipeline import (
    assign_credit,
    correct_mismatch,
    credit_metrics,
    filter_overlong,
    overlong_penalty,
    shape_rewards,
)

GAPS = [[0.2, 1.0, -0.3], [0.01, -0.02]]


def rows_with(name: str, gaps: list[list[float]], rewards: list[float]) -> list[Row]:
    """Rows of one step each; lp_old - lp_roll or lp_roll - lp_ref as in ``gaps``."""
    episodes = [episode(i, [r], lengths=[len(g)]) for i, (r, g) in enumerate(zip(rewards, gaps, strict=True))]
    rows = build_samples(episodes, "merged")
    sign = 1 if name == "old_logprobs" else -1
    for row, gap in zip(rows, gaps, strict=True):
        other = row.logprobs.copy()
        other[row.mask > 0] += sign * np.array(gap, np.float32)
        setattr(row, name, other)
    return rows


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (15, 0.0), (16, 0.0), (18, -0.5), (20, -1.0), (25, -1.0)])
def test_overlong_penalty_of_the_reference_example_and_its_clamp(length: int, expected: float) -> None:
    assert overlong_penalty(length, 20, 4) == expected


def test_overlong_penalty_just_inside_the_cache_and_with_a_factor() -> None:
    assert overlong_penalty(4097, 8192, 4096) == pytest.approx(-1 / 4096)
    assert overlong_penalty(18, 20, 4, factor=0.2) == pytest.approx(-0.1)


def test_kl_in_the_reward() -> None:
    rows = rows_with("reference_logprobs", [[0.3, -0.1, 0.2]], [1.0])
    metrics = shape_rewards(rows, [], settings_of("reinforce++"), 0.1)
    assert rows[0].rewards[rows[0].mask > 0] == pytest.approx([-0.03, 0.01, 0.98], abs=1e-6)
    assert not rows[0].rewards[rows[0].mask == 0].any()
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.4 / 3, abs=1e-6)
    assert metrics["actor/reward_kl_penalty_coeff"] == 0.1


def test_kl_in_the_reward_is_that_of_the_learners_own_probabilities_where_they_were_recomputed() -> None:
    rows = rows_with("reference_logprobs", [[0.3]], [1.0])
    rows[0].old_logprobs = rows[0].logprobs + np.float32(0.5) * rows[0].mask
    metrics = shape_rewards(rows, [], settings_of("reinforce++"), 0.1)
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.8, abs=1e-6)
    assert rows[0].rewards[rows[0].mask > 0] == pytest.approx([0.92], abs=1e-6)


@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_the_length_penalty_falls_on_the_last_token_of_each_response(layout: str) -> None:
    episodes = [episode(0, [0.0, 1.0], lengths=[2, 4]), episode(0, [0.0], lengths=[3])]
    rows = build_samples(episodes, layout)
    settings = settings_of("grpo", overlong_factor=1.0, max_response_tokens=4, overlong_cache=2)
    metrics = shape_rewards(rows, episodes, settings, 0.0)
    found = np.concatenate([row.rewards[row.mask > 0] for row in rows])
    assert found.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.5]  # 1 - 1 for the longest
    assert metrics == {"rollout/overlong_penalty": -0.5}
    assert shape_rewards([], [], settings, 0.0) == {"rollout/overlong_penalty": 0.0}


def advantaged(steps: list[list[float]]) -> list[Row]:
    """A trajectory per list, a row and two sampled tokens per step with this advantage."""
    rows = build_samples([episode(0, [0.0] * len(s), lengths=[2] * len(s)) for s in steps], "per_step")
    flat = [value for trajectory in steps for value in trajectory]
    for row, value in zip(rows, flat, strict=True):
        row.advantages = np.where(row.mask > 0, value, 0.0).astype(np.float32)
    return rows


def test_a_trajectory_teaches_nothing_when_none_of_its_rows_does() -> None:
    metrics = credit_metrics(advantaged([[0.0, 3.0], [3.0, 0.0], [0.0, 0.0]]))
    assert metrics["rollout/zero_advantage_share"] == pytest.approx(1 / 3)
    assert metrics["actor/advantage_mean"] == pytest.approx(1.0)
    assert metrics["actor/advantage_std"] == pytest.approx(np.sqrt(2.0))
    assert "critic/explained_variance" not in metrics, "there is no critic"


@pytest.mark.parametrize("where", ["value_mask", "mask"])
def test_explained_variance_is_over_the_tokens_where_the_critic_is_read(where: str) -> None:
    rows = advantaged([[1.0, 1.0], [1.0]])
    for row, value, target in zip(rows, (0.25, 0.25, 1.0), (0.0, 0.0, 0.6), strict=True):
        read = row.mask
        if where == "value_mask":
            read = row.value_mask = np.eye(len(row), dtype=np.float32)[2]  # the first sampled token alone
        row.values, row.returns = (np.where(read > 0, x, 9.0).astype(np.float32) for x in (value, target))
    # Errors -0.25, -0.25 and -0.4 have the variance 0.005, targets 0, 0 and 0.6 that of 0.08.
    assert credit_metrics(rows)["critic/explained_variance"] == pytest.approx(1 - 0.005 / 0.08, abs=1e-6)
    for row in rows:
        row.returns = np.full(len(row), 0.6, np.float32)
    assert credit_metrics(rows)["critic/explained_variance"] == 0.0, "targets that are all alike explain nothing"


def test_when_every_response_was_cut_nothing_is_left_and_nothing_is_divided() -> None:
    episodes = [episode(0, [r], lengths=[2]) for r in (1.0, 0.0)]
    for cut in episodes:
        cut.steps[0].finish_reason = "length"
    rows = build_samples(episodes, "merged")
    for row in rows:
        row.old_logprobs = row.logprobs.copy()
    keys = {"overlong_filtering": True, "old_logprobs": "learner", "rollout_correction": "seq_mis"}
    metrics = assign_credit(ALGORITHMS["grpo"], rows, episodes, settings_of("grpo", **keys), {}, 0.0)
    assert metrics["rollout/overlong_filtered_share"] == 1.0
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == metrics["rollout_corr/rollout_is_mean"] == 0.0
    assert filter_overlong(rows, episodes) == {"rollout/overlong_filtered_share": 0.0}


#: The choices of the user, and the weights of GAPS that follow; 0 where a row is rejected.
CHOICES: list[tuple[str, dict[str, Any], list[float]]] = [
    ("token_tis", {"rollout_correction_cap": 1.5}, [1.221403, 1.5, 0.740818, 1.010050, 0.980199]),
    ("step_tis", {"rollout_correction_cap": 1.2}, [1.2, 1.2, 1.2, 0.990050, 0.990050]),
    ("sequence_tis", {"rollout_correction_cap": 1.2}, [1.2, 1.2, 1.2, 0.990050, 0.990050]),
    (
        "seq_mis",
        {"rollout_correction_cap": 1.2, "rollout_correction_bounds": [0.1, 10.0]},
        [1.2, 1.2, 1.2, 0.990050, 0.990050],
    ),
    ("seq_mis", {}, [0.0, 0.0, 0.0, 0.990050, 0.990050]),
    ("geo_rs", {"rollout_correction_bounds": [0.9, 1.1]}, [0.0, 0.0, 0.0, 1.0, 1.0]),
    ("icepop", {"rollout_correction_bounds": [0.9, 1.3]}, [1.221403, 0.0, 0.0, 1.010050, 0.980199]),
]


@pytest.mark.parametrize(("method", "keys", "expected"), CHOICES)
def test_cap_and_bounds_are_the_users(method: str, keys: dict[str, Any], expected: list[float]) -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    sampled = [row.mask > 0 for row in rows]
    correct_mismatch(rows, settings_of("grpo", old_logprobs="learner", rollout_correction=method, **keys))
    found = [row.correction[at] for row, at in zip(rows, sampled, strict=True)]  # type: ignore[index]
    assert np.concatenate(found) == pytest.approx(expected, abs=1e-5)


def test_how_far_engine_and_learner_disagree_is_reported_and_nothing_else_happens_unless_asked() -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    metrics = correct_mismatch(rows, settings_of("grpo", old_logprobs="learner"))
    assert metrics == {
        "rollout_corr/kl": pytest.approx(-0.178, abs=1e-6),
        "rollout_corr/k3_kl": pytest.approx(0.156150, abs=1e-6),
        "rollout_corr/old_logprob_diff_mean": pytest.approx(0.306, abs=1e-6),
        "rollout_corr/old_logprob_diff_max": pytest.approx(1.0),
        "rollout_corr/ess": pytest.approx(0.779952, abs=1e-5),
    }
    assert all(row.correction is None and row.mask.any() for row in rows)


def test_rejected_rows_are_left_out_of_the_mean_weight() -> None:
    keys = {"old_logprobs": "learner"}
    rows = rows_with("old_logprobs", [[-0.5]], [1.0])
    metrics = correct_mismatch(rows, settings_of("grpo", rollout_correction="token_tis", **keys))
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(np.exp(-0.5))
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    metrics = correct_mismatch(rows, settings_of("grpo", rollout_correction="seq_mis", **keys))
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(0.990050, abs=1e-6)
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(3 / 5)
    assert {row.correction.dtype for row in rows} == {np.dtype("float32")}  # type: ignore[union-attr]


def test_a_step_has_a_weight_of_its_own_whatever_the_layout() -> None:
    episodes = [episode(0, [0.0, 1.0], lengths=[2, 3]), episode(0, [0.0], lengths=[1])]
    gaps = [0.2, 1.0, -0.3, 0.01, -0.02, 0.5]
    found = {}
    for layout in ("merged", "per_step"):
        rows = build_samples(episodes, layout)
        sampled = [row.mask > 0 for row in rows]
        left = iter(gaps)
        for row in rows:
            row.old_logprobs = row.logprobs.copy()
            row.old_logprobs[row.mask > 0] += np.array([next(left) for _ in range(int(row.mask.sum()))], np.float32)
        settings = settings_of("grpo", old_logprobs="learner", rollout_correction="step_tis")
        metrics = correct_mismatch(rows, settings)
        weights = [row.correction[at] for row, at in zip(rows, sampled, strict=True)]  # type: ignore[index]
        found[layout] = np.concatenate(weights).tolist()
        # e^1.2 is cut to 2, e^-0.31 and e^0.5 are not: their mean counts steps, not tokens.
        assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx((2.0 + 0.733447 + 1.648721) / 3, abs=1e-5)
        ratios = np.exp([1.2, -0.31, 0.5])
        assert metrics["rollout_corr/ess"] == pytest.approx(ratios.sum() ** 2 / (3 * (ratios**2).sum()), abs=1e-5)
    assert found["merged"] == found["per_step"]
    assert found["merged"] == pytest.approx([2.0, 2.0, 0.733447, 0.733447, 0.733447, 1.648721], abs=1e-5)


@pytest.mark.parametrize("mismatch", ["sequence_tis", "seq_mis"])
def test_the_mean_of_one_weight_per_row_is_over_rows(mismatch: str) -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    keys = {"rollout_correction_bounds": [0.1, 10.0]} if mismatch == "seq_mis" else {}
    settings = settings_of("grpo", old_logprobs="learner", rollout_correction=mismatch, **keys)
    metrics = correct_mismatch(rows, settings)
    # Three and two tokens with the products 2.459603, cut to 2, and 0.990050.
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx((2.0 + 0.990050) / 2, abs=1e-5)


def test_where_all_is_rejected_nothing_is_divided() -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    settings = settings_of("grpo", old_logprobs="learner", rollout_correction="geo_rs")
    metrics = correct_mismatch(rows, settings)
    assert not any(row.mask.any() or row.correction.any() for row in rows)  # type: ignore[union-attr]
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == 1.0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_tis", [0.2, 1.0, -0.3, 0.01, -0.02]),
        ("none", [0.2, 1.0, -0.3, 0.01, -0.02]),
        ("seq_mis", [0.9, -0.01]),
        ("step_tis", [0.9, -0.01]),
    ],
)
def test_effective_sample_size_is_that_of_the_uncut_ratios(kind: str, expected: list[float]) -> None:
    """Over tokens, or over rows where a row has one weight; tokens of the prompt count nowhere."""
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    rows[0].old_logprobs[0] += 3.0  # type: ignore[index]
    ratios = np.exp(expected)
    found = correct_mismatch(rows, settings_of("grpo", old_logprobs="learner", rollout_correction=kind))[
        "rollout_corr/ess"
    ]
    assert found == pytest.approx(ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()), abs=1e-6)
