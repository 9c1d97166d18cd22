"""Which engine is cheaper at which model size: ``python -m benchmarks.engine_choice``.

Runs rollouts (driver, env runner, engine) with the torch engine and with vLLM, which alternate, with new
weights and tasks in every round. The result is the CPU time of all processes and threads per sampled token.

The models have the shape of warm-start models and untrained weights. Every episode has ``max_turns=4`` turns, and
every response the largest length: 24 tokens in guess_numbers, 4 in alfworld. The warm-start models themselves end
responses and episodes as they learned. The rule of ``engine=auto`` (`rl_agents.trainer.engine_choice`) follows from
these sizes.
"""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from safetensors.torch import load_file

from benchmarks.report import command_line, load, summarize, write_figures
from benchmarks.timing import cpu_of
from rl_agents.algorithms import Settings
from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.base import starter_spec, task_ids
from rl_agents.envs.starters import small_qwen3
from rl_agents.inference.engine_group import stored
from rl_agents.inference.weights import pack
from rl_agents.orchestrator.env_runner_handles import runners_of
from rl_agents.orchestrator.rollout_workers import RolloutWorkers
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.engine_choice import ONLY_VLLM
from rl_agents.trainer.model_note import MODEL_NOTE
from rl_agents.trainer.ray_init import ensure_ray, join_session

#: Rounds that do not count: the torch engine records its passes in the second one.
WARM_UP = 2
KINDS, ENVS = ("torch", "vllm"), ("guess_numbers", "alfworld")
#: Width and layers by name; heads are 32 wide.
SIZES = {"0.1 M": (64, 2), "0.5 M": (128, 3), "2 M": (224, 4), "6 M": (352, 5), "20 M": (512, 8)}
#: Concurrent groups of eight episodes; fewer if a token takes milliseconds.
GROUPS = {"20 M": 8}
#: Name -> environment and size; ``starter`` is the trained warm-start model.
CASES = {f"{env}, {size}": (env, size) for size in ("starter", *SIZES) for env in ENVS}


@dataclass(frozen=True)
class Round:
    """Sampled episodes, and CPU seconds of driver, env runners and engines (those with their own process)."""

    episodes: list[Trajectory]
    cpu_s: list[float]

    @property
    def tokens(self) -> int:
        return sum(episode.response_tokens for episode in self.episodes)


class Rollouts:
    """The rollout half of a run, without its learner."""

    def __init__(self, settings: Settings, engine: str) -> None:
        settings = copy.deepcopy(settings)
        settings.update({"engine": engine})
        if engine == "torch":
            settings.explicit -= ONLY_VLLM.keys()
        config = AgentConfig.from_settings(settings).completed()
        self.settings, self.tasks = config.agent, task_ids(config.agent.env, "train", config.agent.env_options)
        join_session(config.agent)
        self.workers = RolloutWorkers(config, engine)
        self.workers.await_start()
        self._runners, group = runners_of(self.workers.env_runners), self.workers.engine_group
        assert group is not None
        self._engines = group.handles()
        files = sorted(Path(config.model_dir).glob("*.safetensors"))
        self._weights = stored(pack({name: tensor for file in files for name, tensor in load_file(file).items()}))

    def play(self, number: int) -> Round:
        """Run round ``number`` with new tasks, and with weights that caches take for new."""
        groups, size = self.settings.tasks_per_iteration, self.settings.group_size
        specs = training_specs(self.tasks, number, groups, size, seed=0)
        before = self._clocks()
        self.workers.push(self._weights, number + 1)
        episodes = self.workers.collector.collect(specs).answers
        return Round(episodes, [now - then for now, then in zip(self._clocks(), before, strict=True)])

    def _clocks(self) -> list[float]:
        runners = [self._runners.answer(self._runners.send(runner, cpu_of)) for runner in self._runners.ids()]
        return [time.process_time(), *runners, *ray.get([engine.apply.remote(cpu_of) for engine in self._engines])]

    def close(self) -> None:
        self.workers.env_runners.stop()
        self.workers.stop_engines()


@contextlib.contextmanager
def started(settings: Settings, engines: Sequence[str]) -> Iterator[list[Rollouts]]:
    """Start the two processes of each engine, and stop all at the end."""
    ensure_ray(2 * len(engines))
    with contextlib.ExitStack() as stack:
        rollouts: list[Rollouts] = []
        for engine in engines:
            rollouts.append(Rollouts(settings, engine))
            stack.callback(rollouts[-1].close)
        yield rollouts
    ray.shutdown()


def untrained_model(folder: Path, env: str, hidden: int, layers: int) -> str:
    """Write an untrained model with the shape, tokenizer and settings of a warm-start model."""
    spec = starter_spec(env)
    tokenizer = spec.build_tokenizer()
    small_qwen3(tokenizer, 0, hidden_size=hidden, layers=layers, heads=hidden // 32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    note = {"env": env, "settings": {name: v for name, v in spec.defaults.items() if name != "max_turns"}}
    (folder / MODEL_NOTE).write_text(json.dumps(note), encoding="utf-8")
    return str(folder)


def figures(rounds: Mapping[str, Round]) -> dict[str, float]:
    """Return microseconds per token by engine, and their ratio; above 1, the torch engine is better.

    busiest process: lower bound of the wall time, with a free core for each process.
    """
    us = {kind: {"": sum(own.cpu_s), ", busiest process": max(own.cpu_s)} for kind, own in rounds.items()}
    us = {kind: {what: s / rounds[kind].tokens * 1e6 for what, s in own.items()} for kind, own in us.items()}
    return {
        **{f"{kind}{what}, us per token": s for kind, own in us.items() for what, s in own.items()},
        "vllm over torch": us["vllm"][""] / us["torch"][""],
    }


def parameters(model_dir: str) -> int:
    from rl_agents.inference.model_shape import model_shape, read_config

    shape = model_shape(read_config(model_dir))
    assert shape is not None
    return shape.parameters


def main() -> None:
    parser = command_line(__doc__, {"rounds": 4})
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="CASE", help="such as 'alfworld, 2 M'")
    args = parser.parse_args()
    found: dict[str, Any] = load("engine_choice")["cases"] if args.only else {}
    for case in args.only or CASES:
        env, size = CASES[case]
        keys: dict[str, Any] = {"algo": "grpo", "env": env, "tasks_per_iteration": GROUPS.get(size, 16)}
        with tempfile.TemporaryDirectory() as folder:
            if size != "starter":
                keys |= {"model": untrained_model(Path(folder), env, *SIZES[size]), "max_turns": 4}
            weights = parameters(folder) if size != "starter" else None
            with started(Settings.from_dict(keys), KINDS) as arms:
                played = [[arm.play(number) for arm in arms] for number in range(WARM_UP + args.rounds)][WARM_UP:]
        found[case] = {
            "parameters": weights,
            **summarize([figures(dict(zip(KINDS, own, strict=True))) for own in played]),
        }
        print(case, {name: own["median"] for name, own in found[case].items() if name != "parameters"}, flush=True)
        write_figures("engine_choice", f"python -m benchmarks.engine_choice --rounds {args.rounds}", {"cases": found})


if __name__ == "__main__":
    main()
