"""What the rollout path costs on top of vLLM: ``python -m benchmarks.rollout_efficiency``.

Plays guess_numbers with its starter model, 128 episodes at once, through the whole path of a training run: driver
(`Collector.collect`), env runner actor, engine actor (``placement=separate``); and the same episodes through a second
run whose env runner has the engine in its own process (``placement=colocate``). Then raw vLLM gets the same work in a
process of its own. All answer: how many sampled tokens per CPU second, all threads of all processes on the path
counted? Both paths must have sampled the same tokens, with the same log-probabilities and rewards.

Raw vLLM gets the recorded prompts with the same seeds and samples exactly as many tokens as the episode did, in two
ways that bracket what a program around vLLM can do:

- ``turn by turn``: ``LLM.generate`` of all first prompts, then of all second prompts, and so on: vLLM's own offline
  interface. A wave waits for its longest response.
- ``continuous``: ``LLMEngine.add_request`` and ``step`` in a loop that does nothing else; an episode's next prompt is
  there in the step after its last answer, at no cost. Batches have the shape of the path's. No program that asks an
  environment in between can be as quick: this is the bound.

Prefix caching is on everywhere, every round begins with an empty cache, as after new weights, and plays other tasks.
All four alternate. The starter has 0.1 million parameters, so vLLM's own work per token is as small as it gets and
the share of everything around it as large. ``--hidden 256 --layers 4`` plays with untrained weights of that shape
(2.6 million parameters) instead, four turns per episode, every response 24 tokens long; ``--hidden 512 --layers 8
--groups 8 --rounds 2`` with 21 million, 64 episodes at once.
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
from rl_agents.data.tasks import step_seed, training_specs
from rl_agents.data.trajectory import Trajectory
from rl_agents.inference.base import EngineSettings
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.warm_start import ensure_model

GROUP_SIZE = 8
WARM_UP = 1
#: Largest difference between log-probabilities of the two placements.
ROUNDING = 1e-4

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
    together_runner_s: float
    together_driver_s: float
    waves_s: float
    continuous_s: float

    def figures(self) -> dict[str, float]:
        """Return what is reported."""
        path_s = self.env_runner_s + self.engine_s + self.driver_s
        together_s = self.together_runner_s + self.together_driver_s
        return {
            "together_ratio_to_turn_by_turn": self.waves_s / together_s,
            "together_ratio_to_continuous": self.continuous_s / together_s,
            "together_tokens_per_cpu_s": self.tokens / together_s,
            "together_env_runner_us_per_step": self.together_runner_s / self.steps * 1e6,
            "together_driver_us_per_step": self.together_driver_s / self.steps * 1e6,
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
        from rl_agents.inference.vllm_engine import quick_start_args

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


class Run:
    """The rollout half of a training run."""

    def __init__(self, **keys: Any) -> None:
        config: Any = AgentConfig().environment("guess_numbers")
        keys |= {"group_size": GROUP_SIZE, "engine": "vllm", "num_env_runners": 1}
        self.algo = config.training(**keys).build_algo()
        self.workers = self.algo.rollout_workers
        runner = next(iter(self.algo.env_runner_group._worker_manager.actors().values()))
        self.actors = [runner, *(self.workers.engine_group.handles() if self.workers.engine_group else ())]
        self.weights = ray.put(self.algo.learner_group.export_weights())

    def clocks(self) -> list[float]:
        """CPU seconds of env runner, engine (if it has a process) and driver so far."""
        return [*ray.get([actor.apply.remote(cpu_of) for actor in self.actors]), time.process_time()]

    def play(self, number: int) -> tuple[list[Trajectory], list[float]]:
        """Play round ``number``; return its episodes, and CPU seconds by process."""
        self.workers.push(self.weights, number + 1)  # the same weights: it empties the prefix cache
        groups = self.algo.settings.tasks_per_iteration
        specs = training_specs(self.algo.train_tasks, number, groups, GROUP_SIZE, seed=0)
        before = self.clocks()
        trajectories = self.workers.collector.collect(specs).answers
        return trajectories, [after - start for start, after in zip(before, self.clocks(), strict=True)]


class Bench:
    """Both placements, and raw vLLM beside them."""

    def __init__(self, **keys: Any) -> None:
        self.apart, self.together = Run(placement="separate", **keys), Run(placement="colocate", **keys)
        self.raw = ray.remote(RawVLLM).options(num_cpus=0).remote(self.apart.workers.engine_group._settings)

    def round(self, number: int) -> Round:
        """Play a round on both paths, then have raw vLLM do its work twice."""
        trajectories, seconds = self.apart.play(number)
        same, together = self.together.play(number)
        check_equal(trajectories, same)
        work, tokens = recorded(trajectories), sum(t.response_tokens for t in trajectories)
        waves_s, waves_tokens = ray.get(self.raw.turn_by_turn.remote(work))
        continuous_s, continuous_tokens = ray.get(self.raw.continuous.remote(work))
        assert waves_tokens == continuous_tokens == tokens, (waves_tokens, continuous_tokens, tokens)
        steps = sum(len(t.steps) for t in trajectories)
        return Round(tokens, steps, *seconds, *together, waves_s, continuous_s)


def check_equal(one: Sequence[Trajectory], other: Sequence[Trajectory]) -> None:
    """Prompts, tokens and rewards must be the same; log-probabilities as far as batches of other sizes round alike."""
    pairs = [(s, t) for a, b in zip(one, other, strict=True) for s, t in zip(a.steps, b.steps, strict=True)]
    for s, t in pairs:
        assert (s.prompt_ids, s.response_ids, s.reward) == (t.prompt_ids, t.response_ids, t.reward)
    assert max(abs(x - y) for s, t in pairs for x, y in zip(s.logprobs, t.logprobs, strict=True)) < ROUNDING


@contextlib.contextmanager
def started(**keys: Any) -> Iterator[Bench]:
    """Start all processes, and stop them at the end."""
    bench = Bench(**keys)
    try:
        yield bench
    finally:
        for run in (bench.apart, bench.together):
            run.algo.stop()
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
    parser.add_argument("--rounds", type=int, default=12, help="measured rounds")
    parser.add_argument("--hidden", type=int, default=0, help="width of an untrained model instead of the starter")
    parser.add_argument("--layers", type=int, default=4, help="its layers")
    parser.add_argument("--groups", type=int, default=16, help="groups of eight episodes that are played at once")
    args = parser.parse_args()
    name, command = "rollout_efficiency", "python -m benchmarks.rollout_efficiency"
    keys: dict[str, Any] = {"tasks_per_iteration": args.groups}
    with tempfile.TemporaryDirectory() as folder:
        if args.hidden:
            name, command = (
                f"{name}_{args.hidden}x{args.layers}",
                f"{command} --hidden {args.hidden} --layers {args.layers}",
            )
            keys |= {"model": untrained_model(Path(folder), args.hidden, args.layers), "max_turns": 4}
        with started(**keys) as bench:
            results = [bench.round(number).figures() for number in range(WARM_UP + args.rounds)][WARM_UP:]
    command += f" --groups {args.groups}" if args.groups != 16 else ""
    print(median_table(results))
    write_result(name, f"{command} --rounds {args.rounds}", results)


if __name__ == "__main__":
    main()
