"""What the driver does to rows around credit, on hand-made numbers (sections 1.5 and 1.7)."""

from __future__ import annotations

import numpy as np
import pytest
from algorithms.handmade import episode, settings_of

from rl_agents.core.shaping import correct_mismatch, shape_rewards
from rl_agents.data.rows import Row, lower

GAPS = [[0.2, 1.0, -0.3], [0.01, -0.02]]


def rows_with(name: str, gaps: list[list[float]], rewards: list[float]) -> list[Row]:
    """Rows of one step each; lp_old - lp_roll or lp_roll - lp_ref as in ``gaps``."""
    episodes = [episode(i, [r], lengths=[len(g)]) for i, (r, g) in enumerate(zip(rewards, gaps, strict=True))]
    rows = lower(episodes, "merged")
    sign = 1 if name == "old_logprobs" else -1
    for row, gap in zip(rows, gaps, strict=True):
        other = row.logprobs.copy()
        other[row.mask > 0] += sign * np.array(gap, np.float32)
        setattr(row, name, other)
    return rows


def test_kl_in_the_reward() -> None:
    rows = rows_with("reference_logprobs", [[0.3, -0.1, 0.2]], [1.0])
    metrics = shape_rewards(rows, [], settings_of("reinforce++"), 0.1)
    assert rows[0].rewards[rows[0].mask > 0] == pytest.approx([-0.03, 0.01, 0.98], abs=1e-6)
    assert not rows[0].rewards[rows[0].mask == 0].any()
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.4 / 3, abs=1e-6)


def test_correction_weights_scaled_to_mean_one() -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    settings = settings_of("grpo", old_logprobs="learner", mismatch="token_tis", mismatch_normalise=True)
    correct_mismatch(rows, settings)
    corrections = np.concatenate([row.correction[row.mask > 0] for row in rows])  # type: ignore[index]
    raw = np.array([1.221403, 2.0, 0.740818, 1.010050, 0.980199])
    assert corrections.sum() == pytest.approx(5.0, abs=1e-5)
    assert corrections == pytest.approx(raw / raw.mean(), abs=1e-5)


@pytest.mark.parametrize("mismatch", ["sequence_tis", "seq_mis"])
def test_one_weight_per_row_is_scaled_over_rows(mismatch: str) -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    keys = {"mismatch_bounds": [0.1, 10.0]} if mismatch == "seq_mis" else {}
    settings = settings_of("grpo", old_logprobs="learner", mismatch=mismatch, mismatch_normalise=True, **keys)
    metrics = correct_mismatch(rows, settings)
    corrections = [row.correction[row.mask > 0] for row in rows]  # type: ignore[index]
    # Three and two tokens with the products 2.459603, cut to 2, and 0.990050.
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx((2.0 + 0.990050) / 2, abs=1e-5)
    assert np.mean([weights[0] for weights in corrections]) == pytest.approx(1.0, abs=1e-6)
    assert corrections[0] == pytest.approx([2.0 / 1.495025] * 3, abs=1e-5)


def test_where_all_is_rejected_nothing_is_divided() -> None:
    rows = rows_with("old_logprobs", GAPS, [1.0, 0.0])
    settings = settings_of("grpo", old_logprobs="learner", mismatch="geo_rs", mismatch_normalise=True)
    metrics = correct_mismatch(rows, settings)
    assert not any(row.mask.any() or row.correction.any() for row in rows)  # type: ignore[union-attr]
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == 1.0
