"""What one driver, one env runner and one pool writer can feed: ``python -m benchmarks.scale_simulation``.

Engines answer after the time that a GPU would need; everything else is that of a run. With E engines a run has 100 E
episodes in flight on R env runners. One of them is measured, with its share of the episodes and with all engines
that it would use, which live in one process. The pool's writer is measured alone, at saturation.

    cores of a component = sampled steps per second of all engines x its CPU seconds per step

``--speed`` shortens the engines' time and the waits of their actors by one factor, so that Ray calls per step stay
equal; with many engines it is less, since this machine has to keep up. CPU time and counts are measured, no wall
time.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray

from benchmarks.report import command_line, load, markdown, write_figures
from benchmarks.simulated_engines import (
    CONCURRENT,
    IDS,
    OBSERVATION,
    RESPONSE,
    TOKENS_PER_S,
    WORDS,
    SimulatedEngine,
    SimulatedGroup,
    Talk,
)
from benchmarks.timing import Clocks, growth, in_new_process, private
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import build_samples
from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.envs.starters import small_qwen3, word_tokenizer
from rl_agents.inference.base import Sampling
from rl_agents.inference.weights import pack
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import RunnerActors
from rl_agents.orchestrator.rollout_workers import EnvRunners
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.recording import Recorder
from rl_agents.store.actor import RemotePool, start_pool_actor
from rl_agents.trainer.advantage_pipeline import assign_credit
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.ray_init import ensure_ray
from rl_agents.trainer.run_store import RunPool

STEPS_PER_S = TOKENS_PER_S / RESPONSE
GROUP_SIZE = 8
#: Env runners that write to the pool at saturation, their unconfirmed calls, and turns of their episodes.
SINKS, IN_TRANSIT, POOL_TURNS = 16, 1024, 5
#: Engines with which this machine keeps up at full ``--speed``.
KEEPS_UP = 250
OPTIONS: dict[str, Any] = {
    "engines": [1, 10, 100, 1000], "pools": [1000, 10_000, 20_000], "per_runner": 500, "turns": 10, "speed": 4.0,
    "name": "scale_simulation",
}  # fmt: skip
Figures = dict[str, float]


def received(message: bytes) -> int:
    """Return the growth of this process's own memory with the episodes of an answer, in bytes."""
    before = private(os.getpid())
    rollouts = pickle.loads(message)
    grown = private(os.getpid()) - before
    del rollouts  # it lived until here
    return grown


def job(folder: Path, turns: int) -> AgentConfig:
    """Return a run's configuration, with a tokenizer of realistic size and a model whose weights are never used."""
    tokenizer = word_tokenizer([f"w{number}" for number in range(WORDS)], [], 1 << 15)
    small_qwen3(tokenizer, 0, hidden_size=32, layers=1, heads=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    keys = {"algo": "grpo", "env": f"gymnasium:{Talk.__module__}:Talk", "model": str(folder), "group_size": GROUP_SIZE}
    limits = {"max_turns": turns, "max_response_tokens": 2 * RESPONSE, "max_model_len": 2 * (turns + 1) * RESPONSE}
    settings = Settings.from_dict({**keys, **limits, "num_env_runners": 1, "engine": "torch", "context": "append"})
    return AgentConfig.from_settings(settings).completed()


def be_one_of(count: int, runner: Any) -> int:
    """Make a runner the first of ``count``, in its process; return its process id."""
    runner.num_workers = count
    return os.getpid()


def measure(config: AgentConfig, engines: int, per_runner: int, speed: float, file: Path) -> Figures:
    """Run one env runner's share of a run; return counts, bytes and microseconds of CPU per sampled step."""
    in_flight = engines * CONCURRENT
    others, episodes = math.ceil(in_flight / per_runner), min(in_flight, per_runner) // GROUP_SIZE * GROUP_SIZE
    group, env_runners = SimulatedGroup(engines, speed), EnvRunners(config=config, local_env_runner=False)
    runners, pool = RunnerActors(env_runners), RunPool(file, config.agent)
    runner = ray.get(runners.send(1, partial(be_one_of, others)))
    collector = Collector(runners, group, 3600.0)
    collector.record(pool.recording({}))
    writer: Any = pool.actor
    specs = training_specs(Talk.task_ids("train"), 0, episodes // GROUP_SIZE, GROUP_SIZE, seed=0)
    host, before = ray.get(group.host.counts.remote())
    clocks = Clocks(driver=os.getpid(), runner=runner, writer=ray.get(writer.pid.remote()), engines=host)
    group.push_weights(pack({}), 1)
    weights_s = clocks.read()["driver"]
    with growth(runner) as grown:
        played = collector.collect(specs, record=True).answers
    collector.recorded()
    collecting, exchanges = clocks.read(), ray.get(group.host.counts.remote())[1]
    feed(config, pool, played)
    feeding = clocks.read()
    env_runners.stop()
    pool.close()
    ray.kill(group.host)
    message = pickle.dumps(Rollouts(played), protocol=5)
    steps = sum(len(episode.steps) for episode in played)
    us = {"runner": collecting["runner"], "driver": collecting["driver"], "engine actors": collecting["engines"]}
    us |= {"learner feed": feeding["driver"], "pool, outcomes": feeding["writer"]}
    return {
        "engines": engines, "in flight": in_flight, "runners": others, "steps": steps,
        **{f"{name} us": 1e6 * seconds / steps for name, seconds in us.items()},
        "weights us": 1e6 * weights_s / engines, "exchanges": (exchanges - before) / steps,
        "message bytes": len(message) / episodes,
        "runner bytes": grown[0] / episodes, "driver bytes": in_new_process(received, message) / episodes,
    }  # fmt: skip


def feed(config: AgentConfig, pool: RunPool, played: Sequence[Trajectory]) -> None:
    """Do what a run does with an iteration's episodes before the optimizer."""
    pool.add_sessions(0, played)
    rows = build_samples(played, config.agent.sample_layout)
    for row in rows:
        row.old_logprobs = row.logprobs
    assign_credit(ALGORITHMS[config.agent.algo], rows, played, config.agent, {}, 0.0)
    data = AgentTrainingData.build(rows, config.agent, np.random.default_rng(0))
    pool.add_batch(0, rows, pool.names(0, played))
    ray.put(data.shard(1)[0][0])
    pool.flush()


def measure_pool(in_flight: int, file: Path) -> Figures:
    """Return the CPU time of the pool's writer for a call at saturation, with ``in_flight`` episodes."""
    actor = start_pool_actor(file)
    clocks = Clocks(writer=ray.get(actor.pid.remote()))
    calls = asyncio.run(record_all(actor, in_flight))
    spent = clocks.read()["writer"]
    ray.get(actor.close.remote())
    ray.kill(actor)
    return {"in flight": in_flight, "call us": 1e6 * spent / calls, "call bytes": file.stat().st_size / calls}


async def record_all(actor: Any, in_flight: int) -> int:
    """Record the calls of episodes turn by turn, as many env runners do; return their number."""
    recorders, engine = [Recorder(RemotePool(actor)) for _ in range(SINKS)], SimulatedEngine(math.inf)
    prompts = [IDS[at % 10_000 : at % 10_000 + OBSERVATION] for at in range(in_flight)]
    steps: list[Step | None] = [None] * in_flight
    for number in range(POOL_TURNS * in_flight):
        episode, seed = number % in_flight, number + 1
        recorder, prompt, before = recorders[episode % SINKS], prompts[episode], steps[episode]
        said = await engine.generate(prompt, Sampling(2 * RESPONSE, seed=seed))
        said = recorder.record(prompt, said, seed, before.call if before else 0, before)
        steps[episode] = Step(prompt, said.token_ids, said.logprobs, 0, "stop", "", "", "", call=said.call)
        prompts[episode] = prompt + said.token_ids + IDS[:OBSERVATION]
        if number % IN_TRANSIT == IN_TRANSIT - 1 or number == POOL_TURNS * in_flight - 1:
            for each in recorders:
                each.flush(600)
    return POOL_TURNS * in_flight


def cores(case: Mapping[str, float], pools: Sequence[Mapping[str, float]]) -> Figures:
    """Return the cores that each component needs; driver and pool have one each, because they are one process."""
    rate = case["engines"] * STEPS_PER_S / 1e6
    call = min(pools, key=lambda pool: abs(math.log(pool["in flight"] / case["in flight"])))["call us"]
    parts = {"driver": case["driver us"] + case["learner feed us"], "pool writer": call + case["pool, outcomes us"]}
    parts |= {"env runners": case["runner us"], "engine actors": case["engine actors us"]}
    return {name: rate * us for name, us in parts.items()}


def table(data: Mapping[str, Any]) -> str:
    lines = []
    for case in data["cases"]:
        part = cores(case, data["pools"])
        needed = [f"{part[name]:.3g}" for name in ("driver", "pool writer", "env runners", "engine actors")]
        memory = f"{case['driver bytes'] * case['in flight'] / 1e9:.3g}"
        sizes = [f"{case[name]:,}" for name in ("engines", "in flight", "runners")]
        lines.append([*sizes, f"{case['exchanges']:.2f}", *needed, memory])
    head = "engines, in flight, runners, exchanges per step, driver, pool, runners, engine actors, driver's GB"
    return markdown(head.split(", "), lines)


def table_on_file() -> str:
    return table(load("scale_simulation"))


def main() -> None:
    args = command_line(__doc__, OPTIONS).parse_args()
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    data: dict[str, Any] = {"cases": [], "pools": []}
    ensure_ray(2)
    with tempfile.TemporaryDirectory() as folder:
        config = job(Path(folder) / "model", args.turns)
        for engines in args.engines:
            speed, file = args.speed / max(1, engines / KEEPS_UP), Path(folder) / f"{engines}.sqlite"
            data["cases"].append(measure(config, engines, args.per_runner, speed, file))
            print(data["cases"][-1], flush=True)
        for in_flight in args.pools:
            data["pools"].append(measure_pool(in_flight, Path(folder) / f"pool{in_flight}.sqlite"))
            print(data["pools"][-1], flush=True)
    print(table(data))
    write_figures(args.name, "python -m benchmarks.scale_simulation", data)


if __name__ == "__main__":
    main()
