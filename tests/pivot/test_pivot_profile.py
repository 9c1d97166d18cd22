"""Profiling in parts that survive, the choice of pivots, the picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rl_agents import pivot
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.errors import InputError
from rl_agents.pivot import PivotRule, TurnOutcomes, choose_pivots, profile_turns
from rl_agents.traces.desk import desk_turns
from rl_agents.traces.store import write_turns

TURNS = desk_turns()[:10]


class Player:
    """Plays turn number n with n + 1 of 8 rollouts acceptable; breaks after so many calls."""

    def __init__(self, calls: int = 99) -> None:
        self.calls = calls
        self.specs: list[EpisodeSpec] = []

    def play(self, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        self.specs += specs
        return [self._episode(spec) for spec in specs]

    def _episode(self, spec: EpisodeSpec) -> Trajectory:
        number = next(i for i, turn in enumerate(TURNS) if turn.turn_id == spec.task_id)
        reward = float(spec.member <= number)
        step = Step([1], [2, 3], [0.0, 0.0], 0, "stop", "", "", "go", reward)
        trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, [step])
        trajectory.metrics = {"exact": float(spec.member == 0), "judge_failed": float(spec.member == 7)}
        trajectory.failed = number == 9
        return trajectory


def profiled(player: Player, folder: Path, seen: list[int] | None = None) -> list[TurnOutcomes]:
    return profile_turns(
        player, TURNS, folder, rollouts=8, chunk=4, seed=5,
        on_progress=lambda done: (seen if seen is not None else []).append(len(done)),
    )  # fmt: skip


def test_an_interrupted_profile_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, seen = Player(), list[int]()
    expected = profiled(whole, tmp_path / "whole", seen)
    assert seen == [4, 8, 10] and len(whole.specs) == 80
    first, second = Player(calls=2), Player()
    with pytest.raises(KeyboardInterrupt):
        profiled(first, tmp_path / "parts")
    assert profiled(second, tmp_path / "parts") == expected
    assert first.specs + second.specs == whole.specs, "nothing twice, and with the same seeds"
    assert len(second.specs) == 16
    third = Player()
    assert profiled(third, tmp_path / "parts") == expected and not third.specs
    one, other = Player(), Player()
    profiled(one, tmp_path / "a")
    profile_turns(other, TURNS, tmp_path / "b", rollouts=8, chunk=10, seed=5, on_progress=lambda *_: None)
    seeds = [{(spec.task_id, spec.member): spec.seed for spec in player.specs} for player in (one, other)]
    assert seeds[0] == seeds[1] and len(set(seeds[0].values())) == 80


def test_folders_of_profiles(tmp_path: Path) -> None:
    pivot.claim_folder(tmp_path / "p", {"rollouts": 8, "model": "abc"})
    pivot.claim_folder(tmp_path / "p", {"rollouts": 8, "model": "abc"})
    with pytest.raises(InputError, match="holds a profile with rollouts=8, not 16"):
        pivot.claim_folder(tmp_path / "p", {"rollouts": 16, "model": "abc"})
    write_turns(tmp_path / "turns.parquet", TURNS)
    with pytest.raises(InputError, match="turns without a profile"):
        pivot.read_profile(tmp_path / "turns.parquet")


def test_the_figures_of_a_profile(tmp_path: Path) -> None:
    outcomes = profiled(Player(), tmp_path)
    summary = pivot.profile_summary(outcomes)
    assert summary["turns"] == 9 and summary["turns_without_scores"] == 1
    assert summary["rollout_turns"] == 72 and summary["sampled_tokens"] == 144 and summary["judge_failures"] == 9
    assert summary["mean_score"] == pytest.approx((36 / 8 + 1) / 9)
    assert summary["uninformative_share"] == summary["solved_share"] == pytest.approx(2 / 9)
    assert summary["failed_share"] == 0
    # 36 + 8 acceptable rollouts, of which 9 are the demonstration.
    assert summary["exact_miss_rate"] == pytest.approx(1 - 9 / 44)
    table, mean, variance = pivot.read_profile(pivot.write_profile(tmp_path, TURNS, outcomes))
    assert table.num_rows == 9
    assert mean == pytest.approx([min(n + 1, 8) / 8 for n in range(9)])
    assert variance == pytest.approx(mean * (1 - mean))


def test_pivots_have_open_outcomes_and_are_hard_and_the_random_arm_does_not_look() -> None:
    # Golden cases of two, eight, no and six successes in eight rollouts.
    mean, variance = np.array([0.25, 1.0, 0.0, 0.75, 0.6, 0.5]), np.array([0.1875, 0.0, 0.0, 0.1875, 0.24, 0.25])
    names = list("abcdef")
    assert choose_pivots(mean, variance, names, PivotRule()).tolist() == [True, False, False, False, False, True]
    assert choose_pivots(mean, variance, names, PivotRule(max_mean=0.8)).sum() == 4
    assert choose_pivots(mean, variance, names, PivotRule(max_mean=0.8, at_most=2)).tolist() == [
        True, False, False, False, False, True,
    ]  # fmt: skip
    noise = np.full(6, 1e-12)
    assert not choose_pivots(mean, noise, names, PivotRule()).any(), "what floats make of equal scores is no variance"
    drawn = [pivot.choose_at_random(1000, 100, seed) for seed in (0, 0, 1)]
    assert all(keep.sum() == 100 for keep in drawn)
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any()
    assert pivot.choose_at_random(5, 100, 0).all()
