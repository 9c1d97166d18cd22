"""Solved episodes that are learned from again: which, for how long, how many, and how they travel."""

import json

from algorithms.handmade import episode

from rl_agents.data.success_replay import SolvedEpisodes
from rl_agents.data.trajectory import Trajectory


def played(iteration: int, *solved: int) -> list[tuple[str, Trajectory]]:
    return [(f"i{iteration}.g{group}.m0", episode(group, [0.0, float(won)])) for group, won in enumerate(solved)]


def names(episodes: SolvedEpisodes, iteration: int) -> list[str]:
    return [kept.session for kept in episodes.again(iteration)]


def test_solved_episodes_come_again_for_some_iterations_from_the_next_one_on() -> None:
    episodes = SolvedEpisodes(2, 8)
    for iteration in range(4):
        if iteration != 2:  # which taught nothing
            episodes.keep(iteration, played(iteration, 1, 0))
        assert f"i{iteration}.g0.m0" not in names(episodes, iteration), "not by the one that played it"
    assert names(episodes, 4) == names(episodes, 5) == ["i3.g0.m0"] and names(episodes, 6) == []
    assert names(episodes, 3) == [], "iteration 1's were forgotten when 3's came"


def test_the_oldest_are_forgotten_first() -> None:
    episodes = SolvedEpisodes(4, 3)
    episodes.keep(0, played(0, 1, 0, 1))
    assert names(episodes, 1) == ["i0.g0.m0", "i0.g2.m0"]
    episodes.keep(1, played(1, 1, 1))
    assert names(episodes, 2) == ["i0.g2.m0", "i1.g0.m0", "i1.g1.m0"]


def test_failures_teach_nothing_and_none_means_none() -> None:
    failed, empty = episode(0, [1.0], failed=True), episode(1, [1.0], steps=[])
    episodes = SolvedEpisodes(4, 9)
    episodes.keep(0, [("a", failed), ("b", empty), ("c", episode(2, [1.0]))])
    assert names(episodes, 1) == ["c"]
    off = SolvedEpisodes(0, 9)
    off.keep(0, played(0, 1))
    assert off.again(1) == [] and off.to_json() == []


def test_tokens_logprobs_and_versions_travel_as_they_were() -> None:
    won = episode(0, [0.0, 1.0], facts={"long": "text"})
    won.steps[0].logprobs, won.steps[0].policy_version = [-0.1], 3
    won.steps[1].version_spans = ((3, 1), (4, 1))
    one, other = SolvedEpisodes(2, 8), SolvedEpisodes(2, 8)
    one.keep(0, [("i0.g0.m0", won)])
    other.load_json(json.loads(json.dumps(one.to_json())))
    assert other.again(1) == one.again(1)
    (kept,) = other.again(1)
    assert kept.trajectory.steps == won.steps and kept.trajectory.facts == {}, "which nobody learns from"
    assert won.facts, "and the run's own is as it was"


def test_another_runs_names_are_no_names_here() -> None:
    episodes = SolvedEpisodes(2, 8)
    episodes.keep(0, played(0, 1))
    episodes.disown()
    assert names(episodes, 1) == [""] and len(episodes.again(1)) == 1
