"""What one driver, one env runner and one pool writer can feed: ``python -m benchmarks.scale_simulation``.

Engines answer after the time that a GPU would need, and nothing else is simulated: env runner, driver, pool, Ray and
the lowering of episodes into training batches are those of a run. With ``E`` engines a run has ``100 E`` episodes in
flight on ``R`` env runners. One of them is measured here. It has its share of the episodes and talks to all engines
that it would talk to, which live in one process. The others would do the same work on other machines.

    cores of a component = sampled steps per second of all engines x its CPU seconds per step

CPU time and counts are measured; wall time is not. ``--speed`` shortens the engines' time and the engine actors' waits
by the same factor, so that Ray calls per step stay equal.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import pickle
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import psutil
import ray

from benchmarks.report import RESULTS, add_options, write_figures
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import build_samples
from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.small_model import small_qwen3, word_tokenizer
from rl_agents.inference import actor as engine_actor
from rl_agents.inference.base import Completion, EngineSettings, Sampling
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.weights import pack
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import RunnerActors
from rl_agents.orchestrator.rollout_workers import EnvRunners
from rl_agents.trainer.advantage_pipeline import assign_credit
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.ray_init import ensure_ray
from rl_agents.trainer.run_store import RunPool

#: A GPU's published throughput, the sequences that it decodes together, and an episode's shape, in tokens.
TOKENS_PER_S, CONCURRENT, TURNS, RESPONSE, OBSERVATION = 1500.0, 100, 10, 200, 50
STEPS_PER_S = TOKENS_PER_S / RESPONSE
WORDS, GROUP_SIZE = 32_000, 8
#: Sampled ids and log-probabilities are slices of these.
_DICE = random.Random(0)
IDS = [_DICE.randrange(300, WORDS) for _ in range(20_000)]
LOGPROBS = [-_DICE.random() for _ in IDS]
OPTIONS: dict[str, Any] = {"engines": [1, 10, 100, 1000], "per_runner": 1000, "speed": 2.0, "turns": TURNS}


class Talk(gymnasium.Env[str, str]):
    """An environment without cost, whose observations have `OBSERVATION` words."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)
    blocking = "inline"

    @staticmethod
    def task_ids(split: str) -> list[str]:
        return [str(number) for number in range(20_000)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return self._words(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return self._words(), float(len(action) % 2), False, False, {}

    def _words(self) -> str:
        return " ".join(f"w{word}" for word in self.np_random.integers(300, WORDS, OBSERVATION))


class SimulatedEngine:
    """Samples 100 to 299 tokens and answers after their time, with `CONCURRENT` sequences per GPU."""

    def __init__(self, speed: float) -> None:
        self.token_s, self.version = CONCURRENT / TOKENS_PER_S / speed, 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        dice = random.Random(sampling.seed)
        count, first = dice.randrange(RESPONSE // 2, 3 * RESPONSE // 2), dice.randrange(len(IDS) - 2 * RESPONSE)
        await asyncio.sleep(count * self.token_s)
        part = slice(first, first + count)
        return Completion(IDS[part], LOGPROBS[part], self.version, "length")

    async def sync(self, weights: Any, version: int) -> None:
        self.version = version


class EngineHost:
    """Many `EngineActor`s in one process, since this machine has no room for a process each."""

    def __init__(self, count: int, speed: float) -> None:
        engine_actor.MAX_WAIT_S /= speed
        engine_actor.LINGER_S /= speed
        self.calls = self.empty = 0
        with mock.patch("rl_agents.inference.select.build_engine", lambda settings: SimulatedEngine(speed)):
            settings = EngineSettings("")
            self.engines = [engine_actor.EngineActor(settings, f"engine {number}") for number in range(count)]

    async def call(self, engine: int, method: str, *args: Any) -> Any:
        answer = await getattr(self.engines[engine], method)(*args)
        if method == "exchange":
            self.calls, self.empty = self.calls + 1, self.empty + (not answer[0])
        return answer

    async def counts(self) -> tuple[int, int, int]:
        """Return process id, exchanges so far, and exchanges without an answer."""
        return os.getpid(), self.calls, self.empty


@dataclass(frozen=True)
class Handle:
    """One engine of a host; it takes the place of an actor's handle."""

    host: Any
    engine: int
    method: str = ""

    def __getattr__(self, method: str) -> Handle:
        if method.startswith("_"):
            raise AttributeError(method)
        return Handle(self.host, self.engine, method)

    def remote(self, *args: Any) -> Any:
        return self.host.call.remote(self.engine, self.method, *args)


class SimulatedGroup(InferenceGroup):
    """The engines of a run, with simulated ones in one host."""

    def __init__(self, host: Any, count: int) -> None:
        self.host = host
        super().__init__(EngineSettings(""), count)

    def _create(self, index: int) -> Any:
        return Handle(self.host, index)


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """Yield the private memory of a process, in bytes, sampled twice a second."""
    seen, over = [private(pid)], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.append(private(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield seen
    over.set()
    thread.join()


def private(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def be_one_of(count: int, runner: Any) -> int:
    """Make a runner the first of ``count``; called in its process."""
    runner.num_workers = count
    return os.getpid()


def model(folder: Path) -> str:
    """Write a tokenizer of realistic size, with a model whose weights are never used."""
    tokenizer = word_tokenizer([f"w{number}" for number in range(WORDS)], [], 1 << 15)
    small_qwen3(tokenizer, 0, hidden_size=32, layers=1, heads=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def job(folder: Path, turns: int) -> AgentConfig:
    keys = {"algo": "grpo", "env": "gymnasium:benchmarks.scale_simulation:Talk", "model": model(folder)}
    limits = {"max_turns": turns, "max_response_tokens": 2 * RESPONSE, "max_model_len": 2 * (TURNS + 1) * RESPONSE}
    fixed = {"num_env_runners": 1, "engine": "torch", "group_size": GROUP_SIZE, "context": "append"}
    return AgentConfig.from_settings(Settings.from_dict({**keys, **limits, **fixed})).completed()


def measure(config: AgentConfig, engines: int, per_runner: int, speed: float, scratch: Path) -> dict[str, float]:
    """Run one env runner's share of a run with ``engines`` engines; return counts and CPU seconds per step."""
    settings, in_flight = config.agent, engines * CONCURRENT
    runners_needed = max(1, math.ceil(in_flight / per_runner))
    host = ray.remote(EngineHost).options(num_cpus=0, max_concurrency=100_000).remote(engines, speed)
    group, env_runners = SimulatedGroup(host, engines), EnvRunners(config=config, local_env_runner=False)
    runners, pool = RunnerActors(env_runners), RunPool(scratch / f"{engines}.sqlite", settings)
    runner_pid = ray.get(runners.send(1, partial(be_one_of, runners_needed)))
    collector = Collector(runners, group, 3600.0)
    collector.record(pool.recording({}))
    host_pid, *_ = ray.get(host.counts.remote())
    pids = {"driver": os.getpid(), "env runner": runner_pid, "pool": ray.get(pool.actor.pid.remote()), "engines": host_pid}
    episodes = max(1, min(in_flight, per_runner) // GROUP_SIZE)
    specs = training_specs(Talk.task_ids("train"), 0, episodes, GROUP_SIZE, seed=0)
    before, memory, calls = {name: cpu_s(pid) for name, pid in pids.items()}, private(os.getpid()), collector.exchanges.count
    began = time.process_time()
    group.sync(pack({}), 1)
    synced = time.process_time() - began
    with watched(runner_pid) as seen:
        played = collector.collect(specs, record=True).answers
        collector.recorded()
    pool.flush()
    spent = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    spent["driver"] -= synced
    held = private(os.getpid()) - memory
    began, (_, exchanges, empty) = time.process_time(), ray.get(host.counts.remote())
    rows = feed(config, pool, played)
    spent["learner feed"] = time.process_time() - began
    pool.flush()
    spent["pool"] = cpu_s(pids["pool"]) - before["pool"]
    steps = sum(len(episode.steps) for episode in played)
    env_runners.stop()
    pool.close()
    ray.kill(host)
    return {
        "engines": engines, "in_flight": in_flight, "env_runners": runners_needed, "steps": steps, "rows": rows,
        **{f"{name}_us_per_step": 1e6 * seconds / steps for name, seconds in spent.items()},
        "weights_us_per_engine": 1e6 * synced / engines,
        "exchanges_per_step": exchanges / steps, "empty_exchanges_per_step": empty / steps,
        "driver_calls": collector.exchanges.count - calls,
        "bytes_per_episode": len(pickle.dumps(played, protocol=5)) / len(played),
        "runner_bytes_per_episode": (max(seen) - seen[0]) / len(played), "driver_bytes_per_episode": held / len(played),
    }  # fmt: skip


def feed(config: AgentConfig, pool: RunPool, played: Sequence[Trajectory]) -> int:
    """Do what a run does with an iteration's episodes before the optimizer; return the number of rows."""
    pool.add_sessions(0, played)
    rows = build_samples(played, config.agent.sample_layout)
    for row in rows:
        row.old_logprobs = row.logprobs
    assign_credit(ALGORITHMS[config.agent.algo], rows, played, config.agent, {}, 0.0)
    data = AgentTrainingData.build(rows, config.agent, np.random.default_rng(0))
    pool.add_batch(0, rows, pool.names(0, played))
    ray.put(data.shard(1)[0][0])
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, OPTIONS)
    parser.add_argument("--name", default="scale_simulation")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    ensure_ray(2)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        config = job(Path(scratch) / "model", args.turns)
        for engines in args.engines:
            found.append(measure(config, engines, args.per_runner, args.speed, Path(scratch)))
            print({name: round(value, 3) for name, value in found[-1].items()}, flush=True)
    write_figures(args.name, "python -m benchmarks.scale_simulation", {"cases": found})


if __name__ == "__main__":
    main()
