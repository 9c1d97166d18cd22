"""Searches with actors: a killed one costs time only."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

from orchestrator.killing import runner_pids
from rollout.tree_search.drawn import build, searched, train
from trained import equal
from trained import policy_weights as weights


def test_actors_of_which_one_is_killed_learn_what_one_process_does(ray_session: None, beginner_model_dir: Path) -> None:
    local = build(beginner_model_dir, algo="3spo")
    actors = build(beginner_model_dir, algo="3spo", num_env_runners=2)
    try:
        assert actors.rollout_workers is not None
        collector, calls, resampled, finished = actors.rollout_workers.collector, [], 0.0, 0.0
        pids, expand = runner_pids(actors), collector.expand

        def expand_while_a_runner_dies(specs: Any) -> Any:
            calls.append(len(specs))
            if len(calls) == 2:  # the start states are known, their children are being sampled
                threading.Timer(0.02, os.kill, (pids[0], signal.SIGKILL)).start()
            return expand(specs)

        collector.expand = expand_while_a_runner_dies  # type: ignore[method-assign]
        for _ in range(2):
            expected, metrics = train(local, 1)[0], train(actors, 1)[0]
            assert metrics["search/score_mean"] == expected["search/score_mean"]
            resampled += metrics["rollout/resampled_episodes"]
            finished += metrics["rollout/episodes"]
        assert expected["actor/grad_norm"] > 0 and resampled > 0
        assert searched(actors).states.finished == finished, "none lost, none counted twice"
        assert equal(weights(local), weights(actors))
    finally:
        actors.stop()
        local.stop()
