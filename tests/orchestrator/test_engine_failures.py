"""Real engine actors that die while env runners sample: other engines answer, and no episode is repeated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from rl_agents.data.tasks import evaluation_specs
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

EPISODES = 48


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("striking") / "pid"


@pytest.fixture(scope="module")
def algo(ray_session: None, beginner_model_dir: Path, target: Path) -> Iterator[AgentAlgorithm]:
    keys: dict[str, Any] = {
        "env": "gymnasium:tests.orchestrator.process_envs:Striking", "env.train_tasks": 7, "env.test_tasks": 4,
        "env.kwargs": {"target": str(target), "at": 12 + EPISODES + 4 * EPISODES // 10}, "engine": "torch",
        "num_engines": 2, "num_env_runners": 1, "tasks_per_iteration": 3, "group_size": 4, "iterations": 2,
        "eval_episodes": 0, "max_turns": 6, "max_response_tokens": 6, "max_model_len": 128, "engine_timeout_s": 60.0,
    }  # fmt: skip
    algo = AgentConfig().training(model=str(beginner_model_dir), **keys).build_algo()
    yield algo
    algo.stop()


def test_an_engine_killed_at_forty_percent_repeats_no_episode_and_is_back_before_new_weights(
    algo: AgentAlgorithm, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    algo.train()  # 12 episodes
    workers = algo.started_workers()
    group = workers.engine_group
    assert group is not None
    algo.sync_engines()
    specs = evaluation_specs([f"seed-{i}" for i in range(4)], EPISODES, 0)
    quiet = workers.collector.collect(specs, 1.0)
    place, _ = ray.get(group.handles()[1].place.remote())
    target.write_text(place.split()[1].rstrip(","))
    struck = workers.collector.collect(specs, 1.0)
    assert (struck.resampled, struck.events, len(struck.answers)) == (0, [], EPISODES)
    assert [[step.response_ids for step in t.steps] for t in struck.answers] == [
        [step.response_ids for step in t.steps] for t in quiet.answers
    ]
    assert {step.policy_version for t in struck.answers for step in t.steps} == {algo.policy_version}

    health, sync = list[Any](), group.push_weights

    def observed(*args: Any) -> None:
        health.extend(ray.get([handle.health.remote() for handle in group.handles()]))
        sync(*args)

    monkeypatch.setattr(group, "push_weights", observed)
    workers.push(algo.learner_group.export_weights(), algo.policy_version + 1)
    assert health == [(True, algo.policy_version)] * 2
    assert capsys.readouterr().out.count("; restoring it\n") == 1, "one line says so"
