"""A real env runner actor, and an environment that ends its process."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rl_agents.interrupts import Interrupts
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.train_loop import TrainLoop
from tests.orchestrator.process_envs import DEADLY

KEYS: dict[str, Any] = {
    "env": "gymnasium:tests.orchestrator.process_envs:Odd", "env.train_tasks": 6, "env.test_tasks": 4, "engine":
    "torch", "num_env_runners": 1, "tasks_per_iteration": 6, "group_size": 2, "iterations": 2, "eval_episodes": 4,
    "eval_interval": 0, "max_turns": 2, "max_response_tokens": 6, "max_model_len": 128, "engine_timeout_s": 20.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def algo(ray_session: None, beginner_model_dir: Path) -> Any:
    algo = AgentConfig().training(model=str(beginner_model_dir), **KEYS).build_algo()
    yield algo
    algo.stop()


def test_a_task_that_ends_its_process_twice_is_left_out_and_the_run_goes_on(algo, tmp_path, capsys, monkeypatch):
    # On a machine that others use, too, a runner may take longer to come back and say who is to blame.
    monkeypatch.setattr("rl_agents.orchestrator.fault_tolerance.COME_BACK_S", 100.0)
    folder, name = RunFolder.create(tmp_path / "run", algo.settings), f"seed-{DEADLY}"
    assert TrainLoop(algo, folder, Progress(io.StringIO()), Interrupts()).run()
    assert (
        f"1 tasks are excluded from sampling from now on (env_died: the environment ends its process (os._exit, a "
        f"crash in C) or hangs in C): {name}\n" in capsys.readouterr().out
    )
    before, first, second = folder.read_metrics()
    assert before["eval/success_rate"] is not None and second["eval/success_rate"] is not None
    assert (first["rollout/episodes"], first["rollout/failed_episodes"], first["end_cause/env_died"]) == (12, 2, 1 / 6)
    assert (second["rollout/episodes"], second["rollout/failed_episodes"], second["fault/left_out_tasks"]) == (12, 0, 1)
    assert first["rollout/resampled_episodes"] >= 2 + 2, "after each death"
    assert name not in {t.task_id for t in algo.last_trajectories}
    summary = folder.read_summary()
    assert (summary["status"], summary["iterations"], summary["failed_episodes"]) == ("done", 2, 2)

    checkpoint = folder.checkpoint(2)
    counters = json.loads((checkpoint / "state.json").read_text())["counters"]
    assert list(counters["left_out"]) == [name] and counters["deaths"] == {name: 2}
    assert algo.rollout_workers is not None
    algo.rollout_workers.collector.fault_tolerance.deaths = Counter({"seed-1": 1})
    algo.restore_run_checkpoint(checkpoint)
    assert algo.rollout_workers.collector.fault_tolerance.deaths == {name: 2, "seed-1": 1}, (
        "what is known of now is not forgotten"
    )
