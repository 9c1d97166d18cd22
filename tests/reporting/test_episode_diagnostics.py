from dataclasses import replace

import pytest

from rl_agents.config import Settings
from rl_agents.data.failures import FailedEpisodes
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import EpisodesFail
from rl_agents.reporting.episode_diagnostics import EpisodeWatch


def episode(cause: str = "terminated", *, failed: bool = False, finish: str = "stop", valid: bool = True) -> Trajectory:
    step = Step([1], [2], [-0.1], 0, finish, "o", "o", "a", valid=valid)
    return Trajectory("t", 0, 0, 0, [step], end_cause=cause, failed=failed)


def broken(cause: str = "env_error: boom") -> Trajectory:
    return episode(cause, failed=True)


def told(watch: EpisodeWatch, episodes: list[Trajectory]) -> list[str]:
    """Return what an evaluation outside of training warns of, except that these are few tasks."""
    return [line for line in watch.of_policy(episodes) if "few tasks" not in line]


def test_causes_that_differ_in_numbers_are_one() -> None:
    failed = FailedEpisodes.of([broken("env_error: port 80"), broken("env_error: port 81"), broken("b"), episode()])
    assert failed.share == 0.75
    assert failed.sentence() == "3 of 4 episodes failed; most often (2): env_error: port 80"
    assert FailedEpisodes.of([episode()]).sentence() == "0 of 1 episodes failed"


def test_failures_are_counted_over_three_iterations() -> None:
    watch = EpisodeWatch(Settings())
    for episodes in ([episode()] * 4, [episode()] * 4, [broken()] * 4):
        watch.after_training(episodes, {})
        watch.check_training()  # 4 of 12
    watch.after_training([broken()] * 4, {})
    with pytest.raises(EpisodesFail, match=r"^8 of 12 episodes failed; most often \(8\): env_error: boom \(max_failed"):
        watch.check_training()


def test_all_failed_ends_a_run_whatever_the_share() -> None:
    watch = EpisodeWatch(Settings.from_dict({"max_failed_share": 1.0}))
    watch.after_training([broken()] * 3 + [episode()], {})
    watch.check_training()
    with pytest.raises(EpisodesFail):
        watch.check_evaluation([broken()])


def test_agents_that_raise_end_a_run_only_where_nothing_else_is_left() -> None:
    watch = EpisodeWatch(Settings())
    (line,) = watch.after_training([broken("agent_error: ParseError: no answer")] * 9 + [episode()], {})
    assert line.startswith("9 of 10 episodes failed") and "env.error_reward=NUMBER" in line
    watch.check_training()
    watch.after_training([broken()] * 20 + [episode()] * 9, {})
    with pytest.raises(EpisodesFail):
        watch.check_training()
    with pytest.raises(EpisodesFail, match="error_reward=NUMBER"):
        watch.check_evaluation([broken("agent_error: ParseError: no answer")])


@pytest.mark.parametrize(
    ("episodes", "record", "words"),
    [
        ([episode("context_length")] * 3 + [episode()], {}, "75% of the episodes are cut by the context (max_model_le"),
        ([episode(finish="length")] * 3 + [episode()], {}, "75% of the episodes have a response cut at max_response_t"),
        ([episode(valid=False)] * 3 + [episode()], {}, "75% of the episodes never contain a valid"),
        ([episode()], {"rollout/zero_advantage_share": 0.9}, "90% of the episodes have no advantage"),
    ],
)
def test_what_most_episodes_share_is_said_once_and_again_when_it_changes(episodes, record, words) -> None:
    watch = EpisodeWatch(Settings())
    (line,) = watch.after_training(episodes, record)
    assert line.startswith(words)
    assert watch.after_training(episodes, record) == []
    assert watch.after_training([episode()], {}) == []
    (again,) = watch.after_training(episodes, record)  # it was gone
    assert again == line


@pytest.mark.parametrize(
    ("solved", "words"),
    [
        (9, "most tasks are solved: harder tasks, or stop"),
        (5, "too easy or too hard"),
        (1, "ever solved: choose easier"),
    ],
)
def test_advice_without_advantages_depends_on_success(solved: int, words: str) -> None:
    episodes = [replace(episode(), success=n < solved) for n in range(10)]
    (line,) = EpisodeWatch(Settings()).after_training(episodes, {"rollout/zero_advantage_share": 0.69})
    assert line.startswith("69% of the episodes have no advantage") and words in line


def test_failed_episodes_count_as_not_solved() -> None:
    episodes = [replace(episode(), success=True)] * 6 + [broken()] * 4
    lines = EpisodeWatch(Settings()).after_training(episodes, {"rollout/zero_advantage_share": 0.69})
    assert any("too easy or too hard" in line for line in lines)


@pytest.mark.parametrize(
    ("returns", "advice"),
    [
        ([[0, 1e-5], [0, 2e-5], [0, 0]], "most returns differ, but by at most 0.0001, which counts as equal: multiply"),
        ([[0], [1e-5], [3e-5], [0]], "most returns differ, but by at most 0.0001, which counts as equal: multiply"),
        ([[0, 0.01], [0, 0.01], [0, 200]], "by at most 0.02, which counts as equal: bound its extreme values, as all"),
        ([[0.3, 0.1 + 0.2], [0, 0], [0, 1e-5]], "ever solved: choose easier"),  # rounding is no difference
        ([[0, 0], [0, 0], [0, 1]], "ever solved: choose easier"),
    ],
)
def test_returns_that_count_as_equal_are_told_from_equal_ones(returns: list[list[float]], advice: str) -> None:
    played = [
        replace(episode(), group_id=group, steps=[replace(episode().steps[0], reward=value)])
        for group, values in enumerate(returns)
        for value in values
    ]
    (line,) = EpisodeWatch(Settings()).after_training(played, {"rollout/zero_advantage_share": 0.9})
    assert advice in line


@pytest.mark.parametrize(
    ("episodes", "record"),
    [
        ([episode()], {"rollout/zero_advantage_share": 0.9, "search/sampled_steps": 160.0}),  # paths give gradients
        ([episode()], {"rollout/zero_advantage_share": 0.9, "actor/ref_kl": 160.0}),  # so does a teacher
        ([episode("context_length"), episode()], {}),  # a half is not most
    ],
)
def test_nothing_is_advised(episodes: list[Trajectory], record: dict[str, float]) -> None:
    assert EpisodeWatch(Settings()).after_training(episodes, record) == []


def test_a_policy_that_is_only_evaluated_is_told_of_as_well() -> None:
    episodes = [broken()] + [episode("context_length", finish="length", valid=False)] * 3
    failed, *rest = told(EpisodeWatch(Settings.from_dict({"max_model_len": 64})), episodes)
    assert failed == "1 of 4 evaluation episodes failed; most often (1): env_error: boom"
    assert [line.split()[4:6] for line in rest] == [["are", "cut"], ["have", "a"], ["never", "contain"]]
    assert "max_model_len=64" in rest[0] and told(EpisodeWatch(Settings()), [episode()] * 4) == []


def test_a_policy_far_from_the_one_that_sampled_is_named_whenever_it_gets_there() -> None:
    watch = EpisodeWatch(Settings())

    def lines(share: float) -> list[str]:
        return watch.after_training([episode()], {"rollout_corr/ess": share})

    assert lines(0.6) == [] == lines(0.3)
    (line,) = lines(0.12)
    assert line.startswith("the effective sample size is 12% of the samples")
    assert lines(0.1) == [] == lines(0.29), "it is printed once"
    assert lines(0.31) == []
    assert len(lines(0.29)) == 1, "and again when it was better meanwhile"


def test_a_short_limit_that_was_chosen_counts_where_it_makes_answers_unreadable() -> None:
    chosen, open_limit = EpisodeWatch(Settings.from_dict({"max_response_tokens": 8})), EpisodeWatch(Settings())
    readable = [episode(finish="length")] * 4
    assert not told(chosen, readable) and "response cut" in told(open_limit, readable)[0]
    assert "response cut" in told(chosen, [episode(finish="length", valid=False)] * 4)[0]


def test_a_pretrained_model_that_cannot_be_read_is_shown_the_command_that_imitates() -> None:
    (line,) = told(EpisodeWatch(Settings.from_dict({"model": "DIR/M"})), [episode(valid=False)] * 4)
    assert "sft --env guess_numbers --model DIR/M --output DIR)" in line
