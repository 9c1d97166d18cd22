"""Bundles of a run, and whether a cluster can hold them."""

from __future__ import annotations

import pytest

from rl_agents.settings import Settings
from rl_agents.tuning.resources import (
    first_engine_bundle,
    most,
    named_bundles,
    needs,
    obstacle,
    run_bundles,
    set_engine_gpus,
)


def settings(**keys: object) -> Settings:
    return Settings.from_dict(keys)


def test_a_local_run_is_one_bundle() -> None:
    assert run_bundles(settings(num_env_runners=0, num_learners=0)) == [{"CPU": 1.0}]
    assert run_bundles(settings(num_env_runners=0, gpus_per_learner=0.25)) == [{"CPU": 1.0, "GPU": 0.25}]


def test_every_child_has_a_bundle_where_it_is_pinned() -> None:
    chosen = settings(num_env_runners=2, num_learners=2, num_engines=3, gpus_per_engine=1, gpus_per_learner=0.5)
    owners = [whose for whose, _ in named_bundles(chosen)]
    assert owners == ["driver", *["env runner"] * 2, *["learner"] * 2, *["engine"] * 3]
    first = first_engine_bundle(chosen)
    assert owners[first] == "engine" and owners[first - 1] == "learner"
    assert run_bundles(chosen)[3] == {"GPU": 0.5}
    assert run_bundles(chosen)[first] == {"CPU": 1.0, "GPU": 1.0}


def test_engines_get_gpus_when_the_cluster_has_some() -> None:
    chosen = settings(tensor_parallel=2, engine_mode="async")
    set_engine_gpus(chosen, 0)
    assert chosen.gpus_per_engine == 0
    set_engine_gpus(chosen, 8)
    assert chosen.gpus_per_engine == 2


def test_what_fits_has_no_obstacle() -> None:
    chosen = settings(num_env_runners=2, num_engines=1)
    assert obstacle(chosen, [{"CPU": 3.0}]) == ""
    assert obstacle(chosen, [{"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0}]) == "", "bundles may be on several nodes"


@pytest.mark.parametrize("nodes", [[{"CPU": 2.0}], [{"CPU": 0.9}] * 10, []])
def test_what_can_never_fit_says_what_is_needed_and_what_there_is(nodes: list[dict[str, float]]) -> None:
    message = obstacle(settings(num_env_runners=2, num_engines=1), nodes)
    assert "a trial needs 3 CPU (driver 1 CPU, 2 x env runner 0.5 CPU, engine 1 CPU)" in message
    assert {1: "1 node with 2 CPU", 10: "10 nodes with 0.9 CPU", 0: "no node"}[len(nodes)] in message


def test_a_gpu_that_is_missing_is_named() -> None:
    message = obstacle(settings(gpus_per_engine=2), [{"CPU": 64.0, "GPU": 1.0}])
    assert "engine 1 CPU and 2 GPU" in message and "no room for its engine" in message


def test_the_most_actors_of_a_kind_fill_the_cluster_and_one_more_does_not_fit() -> None:
    nodes = [{"CPU": 4.0, "GPU": 2.0}, {"CPU": 4.0}]
    chosen = settings(num_env_runners=2, num_engines=1, gpus_per_engine=1)
    assert needs(chosen) == "3 CPU and 1 GPU (driver 1 CPU, 2 x env runner 0.5 CPU, engine 1 CPU and 1 GPU)"
    assert {key: most(chosen, nodes, key) for key in ("num_env_runners", "num_engines", "num_learners")} == {
        "num_env_runners": 12,
        "num_engines": 2,
        "num_learners": 10,
    }
    assert most(chosen, [{"CPU": 1.0}], "num_engines") == 0
    assert chosen.num_engines == 1
