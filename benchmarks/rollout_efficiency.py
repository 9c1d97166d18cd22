"""What the rollout path costs on top of vLLM: ``python -m benchmarks.rollout_efficiency``.

Plays guess_numbers with its starter model, 128 episodes at once, through the whole path of a training run: driver
(`Collector.collect`), env runner actor, engine actor. Then raw vLLM gets the same work in a process of its own. Both
answer: how many sampled tokens per CPU second, all threads of all processes on the path counted?

Raw vLLM gets the recorded prompts with the same seeds and samples exactly as many tokens as the episode did, in two
ways that bracket what a program around vLLM can do:

- ``turn by turn``: ``LLM.generate`` of all first prompts, then of all second prompts, and so on: vLLM's own offline
  interface. A wave waits for its longest response.
- ``continuous``: ``LLMEngine.add_request`` and ``step`` in a loop that does nothing else; an episode's next prompt is
  there in the step after its last answer, at no cost. Batches have the shape of the path's. No program that asks an
  environment in between can be as quick: this is the bound.

Prefix caching is on everywhere, every round begins with an empty cache, as after new weights, and plays other tasks.
The three alternate. The starter has 0.1 million parameters, so vLLM's own work per token is as small as it gets and
the share of everything around it as large. ``--hidden 256 --layers 4`` plays with untrained weights of that shape
(2.6 million parameters) instead, four turns per episode, every response 24 tokens long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from benchmarks.report import median_table, write_result
from rl_agents.algorithms import Settings
from rl_agents.core.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.core.starter import ensure_model
from rl_agents.data.tasks import step_seed, training_specs
from rl_agents.data.trajectory import Trajectory
from rl_agents.engines.base import EngineSettings

GROUPS, GROUP_SIZE = 16, 8
WARM_UP = 2

#: A recorded step: prompt, number of sampled tokens, seed.
Request = tuple[list[int], int, int]


@dataclass(frozen=True)
class Round:
    """One round: what was sampled, and CPU seconds by process."""

    tokens: int
    steps: int
    env_runner_s: float
    engine_s: float
    driver_s: float
    waves_s: float
    continuous_s: float

    def figures(self) -> dict[str, float]:
        """Return what is reported."""
        path_s = self.env_runner_s + self.engine_s + self.driver_s
        return {
            "ratio_to_turn_by_turn": self.waves_s / path_s,
            "ratio_to_continuous": self.continuous_s / path_s,
            "tokens_per_cpu_s": self.tokens / path_s,
            "tokens_per_cpu_s_turn_by_turn": self.tokens / self.waves_s,
            "tokens_per_cpu_s_continuous": self.tokens / self.continuous_s,
            "env_runner_us_per_step": self.env_runner_s / self.steps * 1e6,
            "engine_us_per_step": self.engine_s / self.steps * 1e6,
            "driver_us_per_step": self.driver_s / self.steps * 1e6,
            "turn_by_turn_us_per_step": self.waves_s / self.steps * 1e6,
            "continuous_us_per_step": self.continuous_s / self.steps * 1e6,
            "sampled_tokens": self.tokens,
            "steps": self.steps,
        }


class RawVLLM:
    """vLLM without anything of ours around it (a Ray actor only so that it has a process of its own)."""

    def __init__(self, settings: EngineSettings) -> None:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        from rl_agents.engines.vllm_inprocess import quick_start_args

        args = quick_start_args(settings)
        from vllm import LLM

        self.llm = LLM(**args)

    def turn_by_turn(self, episodes: Sequence[Sequence[Request]]) -> tuple[float, int]:
        """Answer all requests in waves; return CPU seconds and sampled tokens."""
        self.llm.reset_prefix_cache()
        tokens, started = 0, time.process_time()
        for turn in range(max(map(len, episodes))):
            wave = [episode[turn] for episode in episodes if turn < len(episode)]
            prompts = [{"prompt_token_ids": prompt} for prompt, _, _ in wave]
            params = [_params(length, seed) for _, length, seed in wave]
            outputs = self.llm.generate(prompts, params, use_tqdm=False)
            tokens += sum(len(output.outputs[0].token_ids) for output in outputs)
        return time.process_time() - started, tokens

    def continuous(self, episodes: Sequence[Sequence[Request]]) -> tuple[float, int]:
        """Answer all requests, each as soon as the one before it; return CPU seconds and sampled tokens."""
        self.llm.reset_prefix_cache()
        engine, todo = self.llm.llm_engine, [iter(episode) for episode in episodes]
        tokens, turn, started = 0, 0, time.process_time()

        def ask(episode: int) -> None:
            for prompt, length, seed in todo[episode]:
                engine.add_request(f"{episode}/{turn}", {"prompt_token_ids": prompt}, _params(length, seed))
                return

        for episode in range(len(episodes)):
            ask(episode)
        while engine.has_unfinished_requests():
            turn += 1
            for output in engine.step():
                tokens += len(output.outputs[0].token_ids)
                ask(int(output.request_id.partition("/")[0]))
        return time.process_time() - started, tokens


def _params(length: int, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=length, ignore_eos=True, seed=seed, logprobs=0, flat_logprobs=True, detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )  # fmt: skip


def recorded(trajectories: Sequence[Trajectory]) -> list[list[Request]]:
    """Return what each episode asked the engine for, and how much it got."""
    return [
        [(step.prompt_ids, len(step.response_ids), step_seed(t.seed, turn)) for turn, step in enumerate(t.steps)]
        for t in trajectories
    ]


def cpu_of(actor: Any) -> float:
    """Return the CPU seconds of an actor's process so far, all threads; called in the actor."""
    return time.process_time()


class Bench:
    """The rollout half of a training run, and raw vLLM beside it."""

    def __init__(self, **keys: Any) -> None:
        config: Any = AgentConfig().environment("guess_numbers")
        keys |= {"tasks_per_iteration": GROUPS, "group_size": GROUP_SIZE, "engine": "vllm", "num_env_runners": 1}
        self.algo = config.training(**keys).build_algo()
        group = self.algo.rollout_workers.engine_group
        self.engine = group.handles()[0]
        self.runner = next(iter(self.algo.env_runner_group._worker_manager.actors().values()))
        self.raw = ray.remote(RawVLLM).options(num_cpus=0).remote(group._settings)
        self.weights = ray.put(self.algo.learner_group.export_weights())

    def clocks(self) -> tuple[float, float, float]:
        """CPU seconds of env runner, engine and driver so far."""
        remote = ray.get([actor.apply.remote(cpu_of) for actor in (self.runner, self.engine)])
        return remote[0], remote[1], time.process_time()

    def play(self, number: int) -> tuple[list[Trajectory], tuple[float, float, float]]:
        """Play round ``number``; return its episodes and the CPU seconds of env runner, engine and driver."""
        # The same weights: it empties the prefix cache.
        self.algo.rollout_workers.engine_group.sync(self.weights, number + 1)
        specs = training_specs(self.algo.train_tasks, number, GROUPS, GROUP_SIZE, seed=0)
        before = self.clocks()
        trajectories = self.algo.rollout_workers.collector.collect(specs).answers
        after = self.clocks()
        return trajectories, (after[0] - before[0], after[1] - before[1], after[2] - before[2])

    def round(self, number: int) -> Round:
        """Play a round, then have raw vLLM do its work twice."""
        trajectories, seconds = self.play(number)
        work, tokens = recorded(trajectories), sum(t.response_tokens for t in trajectories)
        waves_s, waves_tokens = ray.get(self.raw.turn_by_turn.remote(work))
        continuous_s, continuous_tokens = ray.get(self.raw.continuous.remote(work))
        assert waves_tokens == continuous_tokens == tokens, (waves_tokens, continuous_tokens, tokens)
        return Round(tokens, sum(len(t.steps) for t in trajectories), *seconds, waves_s, continuous_s)


@contextlib.contextmanager
def started(**keys: Any) -> Iterator[Bench]:
    """Start all processes, and stop them at the end."""
    bench = Bench(**keys)
    try:
        yield bench
    finally:
        bench.algo.stop()
        ray.shutdown()


def untrained_model(folder: Path, hidden: int, layers: int) -> str:
    """Write a model of the starter's kind, with its tokenizer and settings, and untrained weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    starter = ensure_model(Settings(), AgentAlgorithm.from_settings)
    shutil.copytree(starter, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    config = AutoConfig.from_pretrained(starter)
    config.update({"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers})
    config.update({"num_attention_heads": hidden // 32, "num_key_value_heads": hidden // 32, "layer_types": None})
    config = type(config).from_dict(config.to_dict())
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12, help="measured rounds of 128 episodes")
    parser.add_argument("--hidden", type=int, default=0, help="width of an untrained model instead of the starter")
    parser.add_argument("--layers", type=int, default=4, help="its layers")
    args = parser.parse_args()
    name, command = "rollout_efficiency", "python -m benchmarks.rollout_efficiency"
    keys: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if args.hidden:
            name, command = (
                f"{name}_{args.hidden}x{args.layers}",
                f"{command} --hidden {args.hidden} --layers {args.layers}",
            )
            keys = {"model": untrained_model(Path(folder), args.hidden, args.layers), "max_turns": 4}
        with started(**keys) as bench:
            results = [bench.round(number).figures() for number in range(WARM_UP + args.rounds)][WARM_UP:]
    print(median_table(results))
    write_result(name, f"{command} --rounds {args.rounds}", results)


if __name__ == "__main__":
    main()
