"""Golden numbers of the methods through their recipes, in both row layouts."""

import numpy as np
import pytest
from algorithms.handmade import credited, episode, per_step, selected, settings_of, with_values

from rl_agents.algorithms import ALGORITHMS
from rl_agents.data.samples import build_samples
from rl_agents.data.selection import first_groups
from rl_agents.data.step_table import StepTable, penalized_return
from rl_agents.data.trajectory import ABANDONED, Trajectory
from rl_agents.trainer.advantage_pipeline import assign_credit, shape_rewards

LAYOUTS = pytest.mark.parametrize("layout", ["merged", "per_step"])


def of_groups(returns: list[list[float]]) -> list[Trajectory]:
    """Episodes of one step: a group of each row."""
    return [episode(group, [value]) for group, values in enumerate(returns) for value in values]


WINNER = episode(0, [0, 0, 10], anchors="012")
LOSER = episode(0, [0, 0, 0, 0], anchors="0113")
THIRD = episode(0, [0, 0, 0], anchors="012")


@LAYOUTS
@pytest.mark.parametrize(
    ("statistics", "norm", "expected"),
    [
        ("step_rows", "mean_std", [1.776151, 2.223745, 1.069045, -1.508890, -1.379134, -1.379134, -0.801784]),
        ("trajectories", "mean_std", [1.414213, 1.861807, 0.707107, -1.414213, -1.284457, -1.284457, -0.707107]),
        ("trajectories", "mean", [9.5125, 11.333333, 5, -9.5125, -8.166667, -8.166667, -5]),
    ],
)
def test_gigpo(layout: str, statistics: str, norm: str, expected: list[float]) -> None:
    rows = credited("gigpo", [WINNER, LOSER], layout, group_statistics=statistics, step_norm=norm)
    assert per_step(rows) == pytest.approx(expected, abs=1e-5)


@LAYOUTS
def test_hgpo(layout: str) -> None:
    expected = [1.414213, 1.520159, 1.0, -0.707107, -0.663854, -0.577350, 0, -0.707107, -0.663854, -1.0]
    rows = credited("hgpo", [WINNER, LOSER, THIRD], layout, hgpo_history=1)
    assert per_step(rows) == pytest.approx(expected, abs=1e-5)


def test_hgpo_with_the_episode_advantage() -> None:
    plain = per_step(credited("hgpo", [WINNER, LOSER, THIRD]))
    based = per_step(credited("hgpo", [WINNER, LOSER, THIRD], hgpo_base=True))
    assert plain[6] == 0 and based[6] < 0


STEPPO = [episode(0, [0, 0, 1]), episode(1, [0, 0])]
VALUES = [[0.2, 0.5, 0.4], [0.3, 0.1]]


def steppo_rows(layout: str, **keys: object) -> list:
    settings, rows = settings_of("steppo", **keys), build_samples(STEPPO, layout)
    with_values(rows, VALUES)
    assert ALGORITHMS["steppo"].credit is not None
    ALGORITHMS["steppo"].credit(rows, STEPPO, settings)
    return rows


@LAYOUTS
def test_steppo(layout: str) -> None:
    rows = steppo_rows(layout, whiten=False)
    assert per_step(rows) == pytest.approx([0.7801, 0.49, 0.6, -0.3, -0.1], abs=1e-5)
    targets = [float(value) for row in rows for value in row.returns[row.returns != 0]]
    assert targets == pytest.approx([0.9801, 0.99, 1.0], abs=1e-5)
    whitened = per_step(steppo_rows(layout))
    assert whitened == pytest.approx([1.038442, 0.418684, 0.653684, -1.269041, -0.841769], abs=1e-5)
    assert per_step(steppo_rows(layout, whiten=False, gae_lambda=0.95))[:3] == pytest.approx(
        [0.727912, 0.4603, 0.6], abs=1e-5
    )


@LAYOUTS
def test_steppo_reads_the_critic_where_actions_begin(layout: str) -> None:
    mask = ALGORITHMS["steppo"].value_mask
    assert mask is not None
    for row in build_samples(STEPPO, layout):
        found = np.flatnonzero(mask(row, settings_of("steppo")))
        assert all(row.segments[j] >= 0 and row.segments[j - 1] == -1 for j in found)
        assert len(found) == np.unique(row.segments[row.mask > 0]).size
        everywhere = mask(row, settings_of("steppo", steppo_credit="token_gae"))
        assert (everywhere == row.mask).all()


@LAYOUTS
@pytest.mark.parametrize("algo", ["steppo", "ppo"])
def test_a_cut_episode_continues_from_the_value_of_the_next_state(algo: str, layout: str) -> None:
    cut = episode(0, [0, 0], terminated=False, truncated=True, lengths=[1, 1])
    for after, expected in ((0.9, [0.7, 0.4]), (0.0, [-0.2, -0.5])):  # 0.9 - 0.5, and 0.5 - 0.2 more
        rows = build_samples([cut], layout)
        with_values(rows, [[0.2, 0.5]])
        rows[-1].value_after = after
        credit = ALGORITHMS[algo].credit
        assert credit is not None
        credit(rows, [cut], settings_of(algo, whiten=False, bootstrap_on_truncation=True, gamma=1.0))
        assert per_step(rows) == pytest.approx(expected)


@LAYOUTS
def test_reinforce_pp_baseline(layout: str) -> None:
    returns, groups, lengths = [1, 0, 1, 1], [0, 0, 1, 1], [2, 1, 1, 2]
    episodes = [episode(g, [r], lengths=[n]) for g, r, n in zip(groups, returns, lengths, strict=True)]
    rows = credited("reinforce++-baseline", episodes, layout)
    assert per_step(rows) == pytest.approx([1.107019, -1.549826, -0.221404, -0.221404], abs=1e-5)


def test_reinforce_pp_with_kl_in_the_reward() -> None:
    episodes = [episode(0, [1], lengths=[3]), episode(1, [-1], lengths=[2])]
    settings, rows = settings_of("reinforce++"), build_samples(episodes, "merged")
    for row, kl in zip(rows, ([0.1, 0, 0.2], [0, 0.3]), strict=True):
        row.reference_logprobs = row.logprobs.copy()
        row.reference_logprobs[row.mask > 0] -= np.array(kl, np.float32)
    metrics = assign_credit(ALGORITHMS["reinforce++"], rows, episodes, settings, {}, 0.1)
    found = np.concatenate([row.advantages[row.mask > 0] for row in rows])  # type: ignore[index]
    assert found == pytest.approx([0.724226, 0.733324, 0.733324, -1.095438, -1.095438], abs=1e-5)
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.6 / 5)


@pytest.mark.parametrize("reward", [0, 1])
def test_reinforce_pp_has_no_gradient_where_only_the_rounding_of_the_reference_differs(reward: float) -> None:
    episodes = [episode(g, [reward], lengths=[3]) for g in range(4)]
    settings, rows = settings_of("reinforce++"), build_samples(episodes, "merged")
    for number, row in enumerate(rows):
        row.reference_logprobs = row.logprobs - np.float32(1e-6) * number
    metrics = assign_credit(ALGORITHMS["reinforce++"], rows, episodes, settings, {}, settings.kl_in_reward_coef)
    assert not any(row.advantages.any() for row in rows)  # type: ignore[union-attr]
    assert metrics["rollout/zero_advantage_share"] == 1.0, "EpisodeWatch prints a line"


def test_grpo_has_no_advantage_from_the_kl_of_failures() -> None:
    episodes = [episode(0, [0]) for _ in range(4)]
    settings, rows = settings_of("grpo"), build_samples(episodes, "merged")
    for row, kl in zip(rows, (0.0, 0.01, 0.005, 0.002), strict=True):  # returns of 0 to -1e-5
        row.reference_logprobs = row.logprobs - np.float32(kl)
    assign_credit(ALGORITHMS["grpo"], rows, episodes, settings, {}, 1e-3)
    assert per_step(rows) == [0.0] * 4


def test_group_estimators() -> None:
    episodes = [episode(0, [0, r]) for r in (1, 0, 0.5)]
    assert per_step(credited("rloo", episodes))[::2] == pytest.approx([0.75, -0.75, 0.0])
    assert per_step(credited("dr-grpo", episodes))[::2] == pytest.approx([0.5, -0.5, 0.0])
    assert per_step(credited("grpo", episodes))[::2] == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)
    four = [episode(0, [r]) for r in (1, 0, 0, 0)]
    loo = per_step(credited("grpo", four, leave_one_out=True))
    assert loo == pytest.approx([1.0, -0.577349, -0.577349, -0.577349], abs=1e-5)


@LAYOUTS
@pytest.mark.parametrize("statistics", ["trajectories", "step_rows"])
def test_a_group_of_one_is_not_part_of_a_whitened_batch(layout: str, statistics: str) -> None:
    # Its return of 3.1 had the advantage 1.11. The others are those of the worked example, whose mean is not 0.
    groups, returns, lengths = [0, 0, 1, 1, 2], [1, 0, 1, 1, 3.1], [2, 1, 1, 2, 2]
    episodes = [episode(g, [r], lengths=[n]) for g, r, n in zip(groups, returns, lengths, strict=True)]
    rows = credited("reinforce++-baseline", episodes, layout, group_statistics=statistics)
    assert per_step(rows) == pytest.approx([1.107019, -1.549826, -0.221404, -0.221404, 0.0], abs=1e-5)
    long = [*episodes[:4], episode(2, [0, 3.1])]
    found = per_step(credited("reinforce++-baseline", long, layout, group_statistics=statistics))
    assert found[4:] == [0.0, 0.0]


def test_statistics_over_steps_weigh_long_episodes_more() -> None:
    episodes = [episode(0, [0, 0, 1]), episode(0, [0])]
    by_trajectory = per_step(credited("dr-grpo", episodes))
    by_step = per_step(credited("dr-grpo", episodes, group_statistics="step_rows"))
    assert by_trajectory == pytest.approx([0.5, 0.5, 0.5, -0.5])
    assert by_step == pytest.approx([0.25, 0.25, 0.25, -0.75])


def test_penalties_come_after_discounting() -> None:
    twin = episode(0, [0, 0, 10], anchors="012")
    twin.steps[1].valid = False
    advantages = per_step(credited("gigpo", [WINNER, twin], invalid_action_penalty=0.1))
    assert advantages == pytest.approx([0, 0.05, 0, 0, -0.05, 0])
    assert per_step(credited("grpo", [WINNER, twin], invalid_action_penalty=0.1))[3:] == pytest.approx(
        [-0.707107] * 3, abs=1e-3
    )


def test_vspo_gives_the_weight_of_silent_tasks_to_the_only_other_one() -> None:
    returns = [[0] * 5, [1] * 5, [1, 1, 0, 0, 0]]
    episodes, settings = of_groups(returns), settings_of("vspo")
    found = selected("vspo", episodes)
    assert found.keep.all() and found.missing == 0, "denominators are those of the original batch"
    assert dict(found.weights) == pytest.approx({0: 0.0, 1: 0.0, 2: 5 / 3})
    rows = build_samples(episodes, "merged")
    assign_credit(ALGORITHMS["vspo"], rows, episodes, settings, found.weights, 0.0)
    assert per_step(rows) == pytest.approx([0] * 10 + [1.825738] * 2 + [-1.217158] * 3, abs=1e-5)
    assert selected("vspo", episodes, vspo_clip=False).weights[2] == 3


@pytest.mark.parametrize("mode", ["value", "random", "none"])
def test_vspo_modes(mode: str) -> None:
    returns = [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0] * 5, [1] * 5, [1, 1, 0, 0, 0]]
    weights, again = (selected("vspo", of_groups(returns), vspo_mode=mode).weights for _ in range(2))
    assert weights == again
    if mode == "none":
        assert set(weights.values()) == {1.0}
    else:
        assert weights[2] == weights[3] == 0 and all(weights[g] >= 1 for g in (0, 1, 4))


def test_dapo_keeps_whole_groups_that_differ() -> None:
    episodes = of_groups([[1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 0, 1], [1, 1, 0]])
    enough = selected("dapo", episodes, tasks_per_iteration=2)
    assert enough.missing == 0 and np.flatnonzero(enough.keep).tolist() == [3, 4, 5, 9, 10, 11]
    assert selected("dapo", episodes, tasks_per_iteration=5).missing == 2
    assert selected("dapo", episodes, dynamic_sampling=False).keep.all()


def test_dapo_tells_returns_apart_as_advantages_do() -> None:
    found = selected("dapo", of_groups([[1e-5, 0], [1, 0.5], [1.0]]), tasks_per_iteration=3)
    assert (found.missing, np.flatnonzero(found.keep).tolist()) == (2, [2, 3]), "nor does a group of one teach"
    with pytest.raises(ValueError, match="1 informative groups, 2 wanted"):
        first_groups([0, 0, 1, 1], [True, True, False, False], 2)


def test_dapo_keeps_failures_that_the_reward_tells_apart() -> None:
    # Three groups that all failed, with the stages of a PRS reward; and one whose only difference is a misread action.
    episodes = [episode(g, [r], success=False) for g in range(3) for r in (-1, 0.1, 1.1)]
    episodes += [episode(3, [0.0]), episode(3, [0.0])]
    episodes[-1].steps[0].valid = False
    found = selected("dapo", episodes, tasks_per_iteration=3)
    assert found.missing == 0 and np.flatnonzero(found.keep).tolist() == list(range(9))
    assert found.metrics["select/informative_share"] == 0.75
    penalized = selected("dapo", episodes, tasks_per_iteration=4, invalid_action_penalty=0.1)
    assert penalized.missing == 0 and penalized.keep.all()


def test_vspo_reads_the_return_with_penalties() -> None:
    # Returns 1 and 1 - 0.5: σ² = 0.0625, (R_max - μ)·σ² = 0.25·0.0625. Without the penalty the first task was uniform.
    episodes = [episode(0, [1.0]), episode(0, [1.0]), episode(1, [1.0]), episode(1, [1.0])]
    episodes[1].steps[0].valid = False
    for penalty, weights, dropped in ((0.5, {0: 1.5, 1: 0.0}, 0.5), (0.0, {0: 1.0, 1: 1.0}, 0.0)):
        found = selected("vspo", episodes, invalid_action_penalty=penalty)
        assert dict(found.weights) == weights and found.metrics["select/dropped_share"] == dropped


@pytest.mark.parametrize("layout", ["plain", "tree"])
def test_the_return_of_a_selection_is_the_one_that_is_credited(layout: str) -> None:
    trajectory = episode(0, [0.25, 0.0, 1.0])
    trajectory.steps[1].valid = trajectory.steps[2].valid = False
    if layout == "tree":  # the answer of the misread call was not used
        trajectory.steps[0].next_step, trajectory.steps[1].next_step, trajectory.steps[2].next_step = 2, ABANDONED, -1
    table = StepTable.build(build_samples([trajectory], "per_step"), [trajectory], 0.1)
    expected = 1.05 if layout == "plain" else 1.15
    assert table.returns("trajectories").values == pytest.approx([expected])
    assert penalized_return(trajectory, 0.1) == pytest.approx(expected)


def test_dapo_ignores_the_length_penalty() -> None:
    episodes = [episode(0, [1], lengths=[n]) for n in (4, 20)]
    keys = {"overlong_cache": 4, "tasks_per_iteration": 1, "max_response_tokens": 20}
    assert selected("dapo", episodes, **keys).missing == 1


@LAYOUTS
def test_overlong_penalty_and_filtering(layout: str) -> None:
    episodes = [episode(0, [0, 1], lengths=[18, 20]), episode(0, [0, 0], lengths=[15, 3])]
    episodes[0].steps[1].finish_reason = "length"
    keys = {"overlong_cache": 4, "max_response_tokens": 20, "overlong_filtering": True}
    settings, rows = settings_of("dapo", **keys), build_samples(episodes, layout)
    metrics = shape_rewards(rows, episodes, settings, 0.0)
    assert StepTable.build(rows, episodes).rewards.tolist() == [-0.5, 0.0, 0.0, 0.0]
    assert metrics["rollout/overlong_penalty"] == pytest.approx(-1.5 / 4)
    rows = build_samples(episodes, layout)
    metrics = assign_credit(ALGORITHMS["dapo"], rows, episodes, settings, {}, 0.0)
    assert sum(row.mask.sum() for row in rows) == 18 + 15 + 3
    assert metrics["rollout/overlong_filtered_share"] == pytest.approx(20 / 56)


def test_3spo_compares_samples_of_one_state() -> None:
    # The worked example: three children of one state, and another state whose children agree.
    rewards = [0.215546, 0.089122, 0.215546]
    siblings = [episode(7, [reward]) for reward in rewards] + [episode(8, [0.5]) for _ in range(2)]
    advantages = per_step(credited("3spo", siblings, sibling_norm="group"))
    assert advantages == pytest.approx([0.577342, -1.154685, 0.577342, 0.0, 0.0], abs=1e-4)
    mean_only = per_step(credited("3spo", siblings))
    assert mean_only == pytest.approx([0.084283, -0.168565, 0.084283, 0.0, 0.0], abs=1e-4), "twice R less its mean"


def test_3spo_takes_the_price_of_an_invalid_action_off_its_own_step() -> None:
    siblings = [episode(7, [0.5]), episode(7, [0.5])]
    siblings[1].steps[0].valid = False
    first, second = per_step(credited("3spo", siblings, invalid_action_penalty=0.1))
    assert (first, second) == (pytest.approx(0.1), pytest.approx(-0.1)), "in R, in which a success counts 1/2"
