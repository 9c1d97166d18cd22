"""Runs of versions in which chain-search was a setting of 3spo go on, or say in one line why they cannot."""

from __future__ import annotations

from typing import Any

import pytest
from search.drawn import World, explorer_of

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.search.saved import explorer_to_json, load_explorer

#: What their config.yaml says of searches, at the defaults.
DEFAULTS: dict[str, Any] = {
    "branching": "auto", "search_steps": 512, "search_batch_groups": 0, "search_update": "step",
    "search_weights": "equal", "search_max_finished": 32, "search_max_steps": 0, "search_rollouts": "adaptive",
    "search_backtrack": True, "search_order": "ranked", "search_skip": "search", "search_closed": "dropped",
    "score_preset": "paper", "score_alpha": 0.0, "score_xi": 10.0, "score_zeta": 0.1, "score_clock": "depth",
    "score_difference": "gated", "search_baseline": "siblings", "novelty": "changed", "novelty_decay": 0.1,
    "novelty_fixed": 0.0, "success_weight": 0.5, "state_name": "anchor", "state_scope": "global", "state_depth": False,
    "state_normaliser": "none", "state_value": "counts", "state_count": "trajectory", "state_terminal": "counted",
    "state_decay": 1.0, "max_states": 100_000, "critic_warmup": 0, "gamma": 1.0,
}  # fmt: skip
#: alfworld_3spo_small.yaml as it was.
CHAIN: dict[str, Any] = {
    "algo": "3spo", "search_max_finished": 1, "search_skip": "siblings", "score_preset": "graded", "score_xi": 1e6,
    "score_difference": "value", "state_value": "chain", "critic_warmup": 1, "gamma": 0.95, "success_weight": 0.0,
    "novelty": "none", "step_norm": "mean",
}  # fmt: skip


def restored(**keys: Any) -> Settings:
    return Settings.restored({**DEFAULTS, **keys})


def test_3spo_with_values_from_the_chain_goes_on_as_chain_search() -> None:
    settings = restored(**CHAIN)
    assert (settings.algo, settings.score_alpha, settings.score_difference) == ("chain-search", 1.0, "progress")
    assert (settings.search_warmup, settings.critic_warmup, settings.gamma) == (1, 0, 0.95)
    assert (settings.novelty, settings.success_weight, settings.search_max_finished) == ("none", 0.0, 1)


def test_the_papers_method_goes_on_as_it_is() -> None:
    plain = restored(algo="3spo")
    assert (plain.algo, plain.score_alpha, plain.score_difference, plain.score_xi) == ("3spo", 50.0, "progress", 10.0)
    chosen = restored(algo="3spo", score_alpha=35.0, score_difference="none", state_terminal="ignored")
    assert (chosen.score_alpha, chosen.score_difference, chosen.state_terminal) == (35.0, "none", "ignored")
    assert restored(algo="3spo", score_preset="graded").score_alpha == 1.0


def test_runs_from_before_the_gate_could_be_moved_keep_it_in_the_score() -> None:
    assert restored(algo="3spo").score_gate == "score"
    assert Settings.restored({"algo": "3spo"}).score_gate == "score"
    assert Settings.restored({"algo": "3spo", "score_gate": "count"}).score_gate == "count"
    assert Settings.from_dict({"algo": "3spo"}).score_gate == "count", "what a new run takes"


def test_other_algorithms_keep_their_warm_up() -> None:
    settings = restored(algo="ppo", critic_warmup=2)
    assert (settings.algo, settings.critic_warmup, settings.search_warmup) == ("ppo", 2, 0)


def test_what_was_never_there_needs_no_translation() -> None:
    assert Settings.restored({"algo": "3spo", "score_alpha": 0.0}).score_alpha == 0.0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"search_order": "sampled"}, "search_order=sampled was removed, so this run cannot go on; only search_order="),
        ({"search_baseline": "score"}, "search_baseline=score was removed"),
        ({"score_difference": "open"}, "score_difference=open was removed, .* only score_difference=gated or none can"),
        ({"state_decay": 0.9}, "state_decay=0.9 was removed"),
        ({**CHAIN, "score_xi": 10.0}, r"score_xi=10.0 was removed, .* only score_xi=1e\+06 and more can"),
        ({**CHAIN, "search_skip": "none"}, "search_skip=none was removed"),
    ],
)
def test_what_nothing_stands_for_any_more_is_one_clear_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        restored(**{"algo": "3spo", **keys})


@pytest.mark.parametrize("algo", ["3spo", "chain-search"])
def test_searches_saved_by_earlier_versions_are_read(algo: str) -> None:
    explorer = explorer_of(algo=algo)
    for _ in range(3):
        World().tick(explorer)
    saved = explorer_to_json(explorer)
    older = {**saved, "statistics": {"total": [], "successes": [], "keys": [], "last": [], **saved["statistics"]}}
    gone = {"share": 1.0, "finished": 0.0, "solved": 0.0, "twin": None}
    older["searches"] = [
        {**search, "waiting": [], "nodes": [{**node, **gone} for node in search["nodes"]]}
        for search in saved["searches"]
    ]
    again = explorer_of(algo=algo)
    load_explorer(again, older)
    assert explorer_to_json(again) == saved
