"""Searches with a lag of 1: a tick is learned from while the next one is expanded; one thread has the same results."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rollout.tree_search.drawn import World, build_lagging, explorer_of, searched, train
from trained import equal
from trained import policy_weights as weights

from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.tree_search.iteration import Order, run_iteration
from rl_agents.rollout.tree_search.saved import explorer_to_json
from rl_agents.rollout.tree_search.states import PATH
from rl_agents.trainer import training_step
from rl_agents.trainer.algorithm import AgentAlgorithm


def followed(order: Order) -> tuple[list[str], dict[str, float]]:
    """What happens in an iteration, in order; with two threads as it is bound to."""
    explorer, world, events = explorer_of(search_steps=9), World(), []
    expanding, learning = threading.Event(), threading.Event()

    def expand(specs: Sequence[BranchSpec]) -> Sequence[Expansion]:
        if any(spec.seeds for spec in specs):
            events.append("expand")
            if order == "beside" and len(events) > 3:  # the first tick has nothing to learn from beside it
                expanding.set()
                assert learning.wait(60), "expanded, and nobody learns meanwhile"
                learning.clear()
        return world.expand(specs)

    def learn(samples: Sequence[Trajectory], number: int) -> Mapping[str, float]:
        if order == "beside" and explorer.has_budget():
            assert expanding.wait(60), "learns, and nothing is expanded meanwhile"
            expanding.clear()
            learning.set()
        events.append(f"learn {number} from {len(samples)}")
        return {}

    _, metrics = run_iteration(explorer, lambda: bool(events.append("sync")), expand, learn, order)
    return events, metrics


def test_a_tick_is_learned_from_while_the_next_one_is_expanded() -> None:
    before, _ = followed("before")
    assert before[:5] == ["sync", "expand", "learn 0 from 3", "sync", "expand"] and before[-1].startswith("learn")
    after, _ = followed("after")
    assert after[:6] == ["sync", "expand", "sync", "expand", "learn 0 from 3", "sync"]
    assert after[-1].startswith("learn"), "the last tick is learned from within its iteration"
    assert sorted(before) == sorted(after)
    beside, metrics = followed("beside")
    assert sorted(beside) == sorted(after) and metrics["timing_s/wait_rollout"] >= 0


@pytest.mark.parametrize("fails", ["expand", "learn"])
def test_errors_of_either_side_come_through_when_both_are_done(fails: str) -> None:
    explorer, world, busy = explorer_of(search_steps=9), World(), threading.Lock()

    def expand(specs: Sequence[BranchSpec]) -> Sequence[Expansion]:
        with busy:
            if fails == "expand" and explorer.counts.steps:
                raise ValueError("expand")
            threading.Event().wait(0.05)
            return world.expand(specs)

    def learn(samples: Sequence[Trajectory], number: int) -> Mapping[str, float]:
        if fails == "learn":
            raise ValueError("learn")
        return {}

    with pytest.raises(ValueError, match=fails):
        run_iteration(explorer, lambda: True, expand, learn, "beside")
    assert not busy.locked(), "nobody asks env runners any more"


def test_samples_are_one_update_old_also_when_resumed(
    beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_lagging(beginner_model_dir, algo="3spo")
    learned: list[tuple[int, set[int]]] = []
    learn = training_step.learn

    def noted(run: Any, samples: Sequence[Trajectory], *rest: Any) -> dict[str, float]:
        siblings = [t for t in samples if t.end_cause != PATH]  # paths are as old as their first step
        learned.append((run.policy_version, {step.policy_version for t in siblings for step in t.steps}))
        return learn(run, samples, *rest)

    monkeypatch.setattr(training_step, "learn", noted)
    before = train(whole, 2)
    assert all(versions <= {now, now - 1} for now, versions in learned)
    assert any(versions == {now - 1} for now, versions in learned), "nothing was learned from beside"
    whole.save_run_checkpoint(tmp_path / "000002")
    straight = train(whole, 2)
    aged = [m for m in (*before, *straight) if "search/score_staleness" in m]
    ages = [(m["search/score_staleness_oldest"], m["search/score_staleness"]) for m in aged]
    assert all(oldest >= newest >= 0 for oldest, newest in ages) and sum(oldest for oldest, _ in ages) > 0
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000002")
    assert train(second, 2) == straight
    assert explorer_to_json(searched(second)) == explorer_to_json(searched(whole))
    assert equal(weights(whole), weights(second))
