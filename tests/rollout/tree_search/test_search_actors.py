"""Searches through env runner actors: the same as in one process, and a killed runner costs time only."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

from rl_agents.rollout.tree_search.explorer import explorer_to_json
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

KEYS: dict[str, Any] = {
    "algo": "3spo", "engine": "torch", "tasks_per_iteration": 6, "group_size": 4, "search_steps": 20, "lr": 1e-3,
    "engine_timeout_s": 20.0,
}  # fmt: skip


def build(model_dir: Path, *, local: bool = False, **keys: Any) -> AgentAlgorithm:
    config = AgentConfig().training(model=str(model_dir), **{**KEYS, **keys})
    return (config.local() if local else config).build_algo()


def tree(algo: AgentAlgorithm) -> dict[str, Any]:
    """All that a search knows, but for the last bits of log-probabilities, which depend on what ran beside it."""
    assert algo.explorer is not None
    data = explorer_to_json(algo.explorer)
    for search in data["searches"]:
        for node in search["nodes"]:
            (node["step"] or {}).pop("logprobs", None)
    return data


def test_a_killed_runner_changes_nothing(ray_session: None, beginner_model_dir: Path) -> None:
    local = build(beginner_model_dir, local=True)
    local.train()
    algo = build(beginner_model_dir, num_env_runners=2)
    try:
        assert algo.rollout_workers is not None
        pids = algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
        expand, calls = algo.rollout_workers.collector.expand, []

        def expand_while_a_runner_dies(specs: Any) -> Any:
            calls.append(len(specs))
            if len(calls) == 2:  # the start states are known, their children are being sampled
                threading.Timer(0.02, os.kill, (pids[0], signal.SIGKILL)).start()
            return expand(specs)

        algo.rollout_workers.collector.expand = expand_while_a_runner_dies  # type: ignore[method-assign]
        metrics = algo.train()["agent"]
        assert metrics["search/sampled_steps"] == 24 and calls == [6, 6]
        assert tree(algo) == tree(local), "one tick, the same one"
        second = algo.train()["agent"]
        assert metrics["rollout/resampled_episodes"] + second["rollout/resampled_episodes"] > 0
        finished = algo.explorer.states.finished if algo.explorer else 0
        assert finished == sum(int(m["rollout/episodes"]) for m in (metrics, second)), "none lost, none counted twice"
    finally:
        algo.stop()
        local.stop()
