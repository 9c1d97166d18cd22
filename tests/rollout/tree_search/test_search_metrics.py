"""What an iteration of searching reports, on hand-made counts, and the loop that makes it."""

import time
from collections.abc import Mapping, Sequence

import pytest
from rollout.tree_search.drawn import World, explorer_of

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.tree_search.iteration import run_iteration
from rl_agents.rollout.tree_search.metrics import SearchCounts, merge_updates


def step(length: int, finish: str = "stop", valid: bool = True) -> Step:
    return Step([1], [2] * length, [-1.0] * length, 0, finish, "", "", "", 0.0, valid)


def test_the_numbers_of_an_iteration() -> None:
    counts = SearchCounts(
        scores=[0.0, 0.25, 0.5, 1.0, 0.4], rollouts=[0, 0, 1, 8, 2], states={"a", "b", "c"},
        steps=[step(2), step(4, "length"), step(6), step(8, valid=False)], env_steps=3, replayed_steps=5, backtracks=6,
        skipped=7, paths=2, tasks_ended=9,
    )  # fmt: skip
    assert counts.response_tokens == 20
    found = counts.metrics(states_known=11, frontier=12)
    assert found["search/score_mean"] == pytest.approx(0.43) and found["search/high_score_share"] == 0.4
    shares = [found[f"search/rollouts_{kind}"] for kind in ("0", "1", "more")]
    assert shares == [0.4, 0.2, 0.4] and found["search/unique_states_per_rollout"] == 0.75
    kept = ("backtracks", "skipped_actions", "trained_paths", "tasks_ended", "sampled_steps", "env_steps")
    assert [found[f"search/{name}"] for name in kept] == [6.0, 7.0, 2.0, 9.0, 4.0, 3.0]
    assert (found["rollout/response_length_mean"], found["rollout/length_limited_share"]) == (5.0, 0.25)
    assert found["rollout/invalid_action_share"] == 0.25
    assert set(SearchCounts().metrics(0, 0).values()) == {0.0} and len(SearchCounts().metrics(0, 0)) == 9


def test_costs_of_updates_add_up_and_alarms_keep_the_largest() -> None:
    first = {"timing_s/update": 1.0, "rows/tokens": 10.0, "actor/gap_max": 0.5, "actor/skipped_steps": 1.0}
    second = {"timing_s/update": 2.0, "rows/tokens": 20.0, "actor/gap_max": 0.25, "actor/skipped_steps": 0.0}
    merged = merge_updates([{**first, "actor/pg_loss": 1.0}, {**second, "actor/pg_loss": 4.0, "critic/lr": 3.0}])
    assert merged == {
        "timing_s/update": 3.0, "rows/tokens": 30.0, "actor/gap_max": 0.5, "actor/skipped_steps": 1.0,
        "actor/pg_loss": 2.5, "critic/lr": 3.0,
    }  # fmt: skip
    assert merge_updates([]) == {}


def test_an_iteration_learns_after_every_tick_that_has_samples_and_stops_at_its_budget() -> None:
    explorer, world = explorer_of(search_steps=7), World()
    learned: list[tuple[int, int]] = []

    def learn(samples: Sequence[Trajectory], number: int) -> Mapping[str, float]:
        learned.append((number, len(samples)))
        made: dict[str, float] = {"actor/skipped_iterations": 1.0} if number else {"search/optimizer_steps": 3.0}
        return {"actor/pg_loss": float(number), **made}

    def sync() -> bool:
        time.sleep(0.0 if learned else 0.05)
        return bool(learned)

    began = time.perf_counter()
    finished, metrics = run_iteration(explorer, sync, world.expand, learn)
    assert learned == [(0, 3), (1, 3), (2, 2)], "the third tick took one action more than there were"
    assert (explorer.iteration, explorer.overdraft) == (1, 1)
    assert [t.success for t in finished] == [True, False, True, False]
    assert metrics["search/syncs"] == 2.0 and metrics["actor/pg_loss"] == 1.0
    assert metrics["search/optimizer_steps"] == 3.0 and "actor/skipped_iterations" not in metrics
    assert 0.05 <= metrics["timing_s/sync"] < metrics["timing_s/rollout"] < time.perf_counter() - began


def test_an_iteration_without_an_update_says_so() -> None:
    explorer, world = explorer_of(score_alpha=50.0, search_steps=2), World(says={"hall": ["left"], "attic": ["door"]})
    explorer.most = 1
    finished, metrics = run_iteration(explorer, lambda: False, world.expand, lambda samples, number: {"never": 1.0})
    assert (metrics["actor/skipped_iterations"], metrics["search/optimizer_steps"]) == (1.0, 0.0)
    assert metrics["search/syncs"] == 0.0 and "never" not in metrics
    assert len(finished) == 1
