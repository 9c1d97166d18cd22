"""Bundles of a run, and whether a cluster can hold them."""

import pytest

from rl_agents.algorithms import Settings
from rl_agents.resources import (
    actors,
    describe_placement,
    first_engine_bundle,
    named_bundles,
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
    assert obstacle(named_bundles(chosen), [{"CPU": 3.0}], "a trial") == ""
    spread = [{"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0}]
    assert obstacle(named_bundles(chosen), spread, "a trial") == "", "bundles may be on several nodes"


@pytest.mark.parametrize("nodes", [[{"CPU": 2.0}], [{"CPU": 0.9}] * 10, []])
def test_what_can_never_fit_says_what_is_needed_and_what_there_is(nodes: list[dict[str, float]]) -> None:
    message = obstacle(named_bundles(settings(num_env_runners=2, num_engines=1)), nodes, "a trial")
    assert "a trial needs 3 CPU (driver 1 CPU, 2 x env runner 0.5 CPU, engine 1 CPU)" in message
    assert {1: "1 node with 2 CPU", 10: "10 nodes with 0.9 CPU", 0: "no node"}[len(nodes)] in message


def test_a_gpu_that_is_missing_is_named() -> None:
    message = obstacle(named_bundles(settings(gpus_per_engine=2)), [{"CPU": 64.0, "GPU": 1.0}], "a trial")
    assert "engine 1 CPU and 2 GPU" in message and "no room for its engine" in message


def test_actors_go_to_the_nodes_that_are_named() -> None:
    chosen = settings(num_env_runners=1, num_learners=2, rollout_nodes="head", learner_nodes="worker")
    nodes = [{"CPU": 4.0, "worker": 1.0, "memory": 1e9, "node:10.0.0.2": 1.0}, {"CPU": 4.0, "head": 1.0}]
    assert describe_placement(actors(chosen), nodes) == [
        "node 0 (4 CPU and worker): 2 x learner", "node 1 (4 CPU and head): engine, env runner",
    ]  # fmt: skip
    assert "no room for its learner" in obstacle(actors(chosen), nodes[1:], "this run")
