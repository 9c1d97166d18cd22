"""The loop, the runner and the lowering with a real model: what the engine read and sampled is what rows replay."""

import asyncio
from typing import Any, ClassVar

import pytest
from chat_tokenizers import qwen
from episodes import play_episodes
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from rollout.scripted import Broken, Countdown
from tiny_models import tiny_qwen

from rl_agents.algorithms import Settings
from rl_agents.chat.template import Dialogue, make_context
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs import base as envs
from rl_agents.errors import InputError
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.rollout.agent_loop import Limits
from rl_agents.rollout.branching import BranchPoint, BranchSpec
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_runner import TextEnvRunner
from rl_agents.rollout.request_queue import JobBatch

LIMITS = Limits(max_turns=5, max_response_tokens=6, max_model_len=400)


def tiny_model():
    return tiny_qwen(len(qwen()))


class Recording(TorchEngine):
    """Writes down what passes through."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []

    async def generate(self, prompt_ids, sampling):
        completion = await super().generate(prompt_ids, sampling)
        self.seen.append((tuple(prompt_ids), tuple(completion.token_ids)))
        return completion


def specs(count):
    return [EpisodeSpec(f"task-{n}", n, 0, seed=n) for n in range(count)]


def rollouts(context="append", count=6, engine=None):
    engine = engine or TorchEngine(tiny_model(), max_model_len=400)
    return asyncio.run(play_episodes(specs(count), Countdown, engine, make_context(context, qwen()), LIMITS))


@pytest.mark.parametrize(("context", "rows_of_an_episode"), [("append", 1), ("window(1)", 3)])
def test_rows_replay_what_the_engine_saw(context, rows_of_an_episode):
    engine = Recording(tiny_model(), max_model_len=400)
    trajectories = rollouts(context, engine=engine).trajectories
    assert sum(len(t.steps) for t in trajectories) == len(engine.seen) == 18
    per_step = build_samples(trajectories, "per_step")
    assert sorted(tuple(row.input_ids) for row in per_step) == sorted(p + r for p, r in engine.seen)
    merged = build_samples(trajectories, "merged")
    assert len(merged) == 6 * rows_of_an_episode
    longest = {tuple(row.input_ids) for row in merged}
    assert all(any(row[: len(p + r)] == p + r for row in longest) for p, r in engine.seen)


def test_the_same_specs_give_the_same_trajectories_in_any_company():
    everything = rollouts().trajectories
    assert rollouts().trajectories == everything
    alone = asyncio.run(
        play_episodes(specs(6)[3:4], Countdown, TorchEngine(tiny_model()), make_context("append", qwen()), LIMITS)
    )
    assert [s.response_ids for s in alone.trajectories[0].steps] == [s.response_ids for s in everything[3].steps]


@pytest.fixture
def runner(tmp_path, monkeypatch):
    qwen().save_pretrained(tmp_path)
    monkeypatch.setattr("rl_agents.rollout.env_pool.env_factory", lambda settings: Broken)
    spec = envs.EnvSpec("countdown", "", "", object, 5, gym_id="test/Countdown-v0", blocking="inline")
    monkeypatch.setitem(envs.ENVIRONMENTS, "countdown", spec)
    config = AlgorithmConfig()
    config.agent = Settings.from_dict(
        {"env": "countdown", "max_response_tokens": 6, "max_model_len": 400, "env_timeout_s": 0.5}
    )
    config.model_dir = str(tmp_path)
    runner = TextEnvRunner(config=config, worker_index=1)
    yield runner
    runner.stop()


def test_the_runner_keeps_rllibs_contract(runner):
    runner.assert_healthy()
    assert runner.ping() == "pong" and runner.setup.limits.max_turns == 5
    with pytest.raises(RuntimeError, match="no engine"):
        runner.sample(specs(1))
    runner.engine = TorchEngine(tiny_model(), max_model_len=400)
    numbers = [2, 19, 3, 20]
    result = runner.sample([EpisodeSpec(f"task-{n}", n, 0, seed=n) for n in numbers])
    assert [t.failed for t in result.trajectories] == [False, True, False, True]
    again = runner.sample([EpisodeSpec("task-2", 2, 0, seed=2)], temperature=0.0)
    assert runner.setup.pool.created == 4 and len(again.trajectories) == 1


def test_the_runner_reports_what_a_person_has_to_mend(runner, monkeypatch):
    runner.engine = TorchEngine(tiny_model(), max_model_len=400)
    runner.setup.limits = Limits(max_turns=5, max_response_tokens=6, max_model_len=8)
    assert "does not fit max_model_len=8" in runner.sample(specs(2)).input_error

    def unconfigured():
        raise InputError("data folder is missing")

    asyncio.run(runner.setup.pool.close())
    runner.setup.pool._make_env = unconfigured
    result = runner.sample(specs(2))
    assert result.input_error == "data folder is missing" and result.unfinished == specs(2)


class Alive(Countdown):
    """Those that were made and not closed."""

    all: ClassVar[set[Any]] = set()

    def __init__(self):
        Alive.all.add(self)

    def close(self):
        Alive.all.remove(self)


class Silent:
    """An engine that never answers."""

    async def generate(self, prompt_ids, sampling):
        await asyncio.sleep(600)


@pytest.mark.parametrize("blocking", ["inline", "thread"])
def test_a_runner_that_is_stopped_ends_its_episodes_before_it_closes_environments(runner, blocking, monkeypatch):
    """A search gives its environment back when it is cancelled, however far it has come."""
    runner.setup.pool = EnvPool(Alive, blocking)
    runner.engine = Silent()
    start = BranchPoint("task-2", 7, dialogue=Dialogue.start("task 2 begins"), anchor="start")
    jobs = [BranchSpec(number, start, (1, 2)) for number in range(3)]
    played = JobBatch(0, "expand", jobs), JobBatch(1, "sample", [EpisodeSpec(f"task-{n}", n, 0, n) for n in range(3)])
    assert runner.exchange(played, wait_s=0.1) == {}
    while len(Alive.all) < 6:
        assert runner.exchange(wait_s=0.1) == {}
    runner.stop()
    assert not Alive.all and not runner.in_progress
    monkeypatch.setattr(runner, "stop", lambda: None)  # the fixture would do it once more
