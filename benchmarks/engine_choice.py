"""Which engine is cheaper for which size: ``python -m benchmarks.engine_choice``.

Plays the rollouts of a run (driver, env runner, engine) with the torch engine and with vLLM, each in an actor of its
own (``placement=separate``) and in the env runner's process (``colocate``). All four take turns, round by round, with
weights and tasks that are new for every round, and answer: CPU of all processes and threads on the way, per sampled
token.

Models are of the starters' kind with untrained weights: every episode is ``max_turns=4`` long and every response as
long as the environment allows: 24 tokens with guess_numbers (mostly sampling), 4 with alfworld (mostly reading).
The starters themselves, which were taught, end their responses and episodes when they like. The sizes between which the
two engines change places are the rule of ``engine=auto`` (`rl_agents.trainer.engine_choice`).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from safetensors.torch import load_file

from benchmarks.report import RESULTS, summarize, write_figures
from rl_agents.algorithms import Settings
from rl_agents.data.tasks import training_specs
from rl_agents.envs.base import starter_spec, task_ids
from rl_agents.envs.small_model import small_qwen3
from rl_agents.inference.weights import pack
from rl_agents.orchestrator.env_runner_handles import runners_of
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.engine_choice import ONLY_VLLM
from rl_agents.trainer.ray_init import ensure_ray, join_session
from rl_agents.trainer.resolve import MODEL_NOTE

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


KINDS, PLACES = ("torch", "vllm"), ("separate", "colocate")
ARMS = [Arm(kind, placement) for kind in KINDS for placement in PLACES]
ENVS = ("guess_numbers", "alfworld")
#: Width and layers by name; heads are 32 wide.
SIZES = {"0.1 M": (64, 2), "0.5 M": (128, 3), "2 M": (224, 4), "6 M": (352, 5), "20 M": (512, 8)}
#: Groups of eight episodes that are played at once: fewer where a token costs milliseconds.
GROUPS = {"20 M": 8}


@dataclass(frozen=True)
class Case:
    """A model and what it plays; ``size`` starter: the environment's own, taught."""

    env: str
    size: str

    def __str__(self) -> str:
        return f"{self.env}, {self.size}"

    def settings(self, folder: Path) -> Settings:
        """Write the model and return the settings of a run with it."""
        keys: dict[str, Any] = {"algo": "grpo", "env": self.env, "tasks_per_iteration": GROUPS.get(self.size, 16)}
        if self.size != "starter":
            keys |= {"model": untrained_model(folder, self.env, *SIZES[self.size]), "max_turns": 4}
        return Settings.from_dict(keys)


CASES = [Case(env, size) for size in ("starter", *SIZES) for env in ENVS]


def untrained_model(folder: Path, env: str, hidden: int, layers: int) -> str:
    """Write a model of the starter's kind with untrained weights, with its tokenizer and its settings."""
    spec = starter_spec(env)
    tokenizer = spec.build_tokenizer()
    small_qwen3(tokenizer, 0, hidden_size=hidden, layers=layers, heads=hidden // 32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    note = {"env": env, "settings": {name: v for name, v in spec.defaults.items() if name != "max_turns"}}
    (folder / MODEL_NOTE).write_text(json.dumps(note), encoding="utf-8")
    return str(folder)


def figures(costs: Mapping[Arm, Cost]) -> dict[str, float]:
    """Return what one round says: microseconds by arm, and ratios: above 1 the torch engine is better, or together."""
    apart, together = ({kind: costs[Arm(kind, place)] for kind in KINDS} for place in PLACES)
    best = {kind: min(apart[kind].cpu_us, together[kind].cpu_us) for kind in KINDS}
    return {
        **{f"{arm} us per token": cost.cpu_us for arm, cost in costs.items()},
        **{f"{arm} busiest process, us per token": cost.busiest_us for arm, cost in costs.items()},
        **{f"{arm} wall us per token": cost.wall_us for arm, cost in costs.items()},
        "vllm over torch": best["vllm"] / best["torch"],
        "vllm over torch, apart": apart["vllm"].cpu_us / apart["torch"].cpu_us,
        "vllm over torch, together": together["vllm"].cpu_us / together["torch"].cpu_us,
        **{f"apart over together, {kind}": apart[kind].cpu_us / together[kind].cpu_us for kind in KINDS},
        **{
            f"apart over together, {kind}, busiest process": apart[kind].busiest_us / together[kind].busiest_us
            for kind in KINDS
        },
        **{f"apart over together, {kind}, wall": apart[kind].wall_us / together[kind].wall_us for kind in KINDS},
        **{f"{kind} tokens": apart[kind].tokens for kind in KINDS},
    }


def parameters(model_dir: str) -> int:
    """Count weights as the engines' rule counts them."""
    from rl_agents.inference.model_shape import model_shape, read_config

    shape = model_shape(read_config(model_dir))
    assert shape is not None
    return shape.parameters


def main() -> None:
    """Print the table and write the figures; cases that are not played stay on file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds")
    parser.add_argument("--only", nargs="+", help="cases by name, such as 'alfworld, 2 M'")
    args = parser.parse_args()
    file = RESULTS / "engine_choice.json"
    found: dict[str, Any] = json.loads(file.read_text())["cases"] if args.only and file.is_file() else {}
    for case in CASES:
        if args.only and str(case) not in args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            settings = case.settings(Path(folder))
            costs = measure(settings, ARMS, args.rounds)
            size = parameters(folder) if case.size != "starter" else None
        ray.shutdown()
        rounds = [figures({arm: costs[arm][number] for arm in ARMS}) for number in range(args.rounds)]
        found[str(case)] = {"parameters": size, **summarize(rounds)}
        ratio = statistics.median(r["vllm over torch"] for r in rounds)
        cells = "  ".join(f"{arm} {statistics.median(c.cpu_us for c in costs[arm]):,.0f}" for arm in ARMS)
        print(f"{case}: {cells} us per token; vLLM costs {ratio:.2f} times what torch costs", flush=True)
        write_figures("engine_choice", f"python -m benchmarks.engine_choice --rounds {args.rounds}", {"cases": found})


if __name__ == "__main__":
    main()
