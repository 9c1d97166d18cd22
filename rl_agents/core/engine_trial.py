"""What the rollouts of a run cost with one engine or another, here: played for real, round by round in turns."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from safetensors.torch import load_file

from rl_agents.algorithms import Settings
from rl_agents.core.algorithm import AgentConfig
from rl_agents.core.engine_choice import ONLY_VLLM
from rl_agents.core.rollout_workers import RolloutWorkers
from rl_agents.core.runners import runners_of
from rl_agents.core.session import ensure_ray, join_session
from rl_agents.data.tasks import training_specs
from rl_agents.engines.weights import pack
from rl_agents.envs.base import task_ids

#: Rounds that do not count: vLLM compiles nothing here, but the torch engine records its passes in the second.
WARM_UP = 2
#: Of an arm, at most.
PROCESSES = 2


@dataclass(frozen=True)
class Arm:
    """An engine and its place; see the keys ``engine`` and ``placement``."""

    kind: str
    placement: str

    def __str__(self) -> str:
        return f"{self.kind} {self.placement}"


@dataclass(frozen=True)
class Cost:
    """One round, in us per sampled token.

    Attributes:
        cpu_us: of all processes and threads on the way.
        busiest_us: of the process that works most: what the clock cannot go below, with a free core for each process.
        wall_us: on the clock, with whatever else the machine did.
    """

    cpu_us: float
    busiest_us: float
    wall_us: float
    tokens: int
    steps: int


class Rollouts:
    """The rollout half of a run, without its learner."""

    def __init__(self, settings: Settings, arm: Arm) -> None:
        """Start engines and env runners.

        Args:
            settings: of the run, not resolved yet.
            arm: what of it is tried.
        """
        settings = copy.deepcopy(settings)
        settings.update({"engine": arm.kind, "placement": arm.placement})
        if arm.kind == "torch":  # what only the other arm has
            settings.explicit -= ONLY_VLLM.keys()
        config = AgentConfig.from_settings(settings).completed()
        self.settings, self.tasks = config.agent, task_ids(config.agent.env, "train", config.agent.env_options)
        join_session(config.agent)
        self.workers = RolloutWorkers(config, arm.kind)
        self.workers.await_start()
        self._runners, group = runners_of(self.workers.env_runners), self.workers.engine_group
        self._engines = group.handles() if group else []
        files = sorted(Path(config.model_dir).glob("*.safetensors"))
        self._weights = ray.put(pack({name: tensor for file in files for name, tensor in load_file(file).items()}))

    def play(self, number: int) -> Cost:
        """Play round ``number``: its tasks are new, and so are the weights, as far as caches know."""
        groups, size = self.settings.tasks_per_iteration, self.settings.group_size
        specs = training_specs(self.tasks, number, groups, size, seed=0)
        before, started = self._clocks(), time.monotonic()
        self.workers.push(self._weights, number + 1)
        episodes = self.workers.collector.collect(specs).answers
        wall_s = time.monotonic() - started
        spent = [now - then for now, then in zip(self._clocks(), before, strict=True)]
        tokens = sum(episode.response_tokens for episode in episodes)
        cpu_us, busiest_us, wall_us = (seconds / tokens * 1e6 for seconds in (sum(spent), max(spent), wall_s))
        return Cost(cpu_us, busiest_us, wall_us, tokens, sum(len(episode.steps) for episode in episodes))

    def _clocks(self) -> list[float]:
        """CPU seconds so far of the driver, of each env runner and of each engine in a process of its own."""
        runners = [self._runners.answer(self._runners.send(runner, _cpu_of)) for runner in self._runners.ids()]
        engines = ray.get([engine.apply.remote(_cpu_of) for engine in self._engines])
        return [time.process_time(), *runners, *engines]

    def close(self) -> None:
        """Stop engines and env runners."""
        self.workers.env_runners.stop()
        self.workers.stop_engines()


def _cpu_of(actor: Any) -> float:
    """CPU seconds of an actor's process so far, all threads; called in the actor."""
    return time.process_time()


@contextlib.contextmanager
def started(settings: Settings, arms: Sequence[Arm]) -> Iterator[list[Rollouts]]:
    """Start what each arm needs, and stop all of it at the end."""
    ensure_ray(PROCESSES * len(arms))
    with contextlib.ExitStack() as stack:
        rollouts: list[Rollouts] = []
        for arm in arms:
            rollouts.append(Rollouts(settings, arm))
            stack.callback(rollouts[-1].close)
        yield rollouts


def measure(settings: Settings, arms: Sequence[Arm], rounds: int) -> dict[Arm, list[Cost]]:
    """Play ``rounds`` with every arm, which take turns, so that whatever else the machine does hits all alike.

    Args:
        settings: of the run, not resolved yet.
        arms: what is tried.
        rounds: that count; `WARM_UP` come before.

    Raises:
        InputError: the run cannot be.
        EngineError: an engine does not start.
    """
    with started(settings, arms) as rollouts:
        found = [[arm.play(number) for arm in rollouts] for number in range(WARM_UP + rounds)][WARM_UP:]
    return {arm: [costs[index] for costs in found] for index, arm in enumerate(arms)}
