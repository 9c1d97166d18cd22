"""Cost of the rollout path compared with raw vLLM: ``python -m benchmarks.rollout_efficiency``.

Runs guess_numbers with its warm-start model, 128 concurrent episodes, through the path of a training run: driver
(`Collector.collect`), env runner actor, engine actor. Then raw vLLM samples the recorded number of tokens with the
recorded prompts and seeds in its own process, turn by turn: ``LLM.generate`` of all first prompts, then of all second
prompts, and so on. The result is sampled tokens per CPU second, over all threads of all processes.

Every round has an empty prefix cache, as after new weights, and other tasks. Both alternate. The warm-start
model has 0.1 million parameters, so vLLM's work per token is small and the share of everything else large.
``--hidden 256 --layers 4`` uses untrained weights of that shape (2.6 million parameters), four turns per episode and
responses of 24 tokens; ``--hidden 512 --layers 8 --groups 8 --rounds 2`` has 21 million and 64 concurrent episodes.
``--pretrained append --groups 8 --rounds 3`` plays webshop with the imitated SmolLM2-135M-Instruct of
`benchmarks.real_model` and this ``context``.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from benchmarks.engine_choice import Round, started, untrained_model
from benchmarks.real_model import WORLDS, start_of
from benchmarks.report import command_line, write_result
from rl_agents.algorithms import Settings
from rl_agents.config.loading import parse_assignments
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.inference.base import EngineSettings

GROUP_SIZE = 8
WARM_UP = 1

#: A recorded step: prompt, number of sampled tokens, seed.
Request = tuple[list[int], int, int]


def figures(played: Round, waves_s: float) -> dict[str, float]:
    tokens, steps = played.tokens, sum(len(episode.steps) for episode in played.episodes)
    driver_s, env_runner_s, engine_s = played.cpu_s
    per_step = {"env_runner": env_runner_s, "engine": engine_s, "driver": driver_s, "turn_by_turn": waves_s}
    return {
        "ratio_to_turn_by_turn": waves_s / sum(played.cpu_s),
        **{f"{name}_us_per_step": seconds / steps * 1e6 for name, seconds in per_step.items()},
        "sampled_tokens": tokens,
        "steps": steps,
    }


class RawVLLM:
    """Raw vLLM, in a Ray actor so that it has its own process."""

    def __init__(self, settings: EngineSettings) -> None:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        from rl_agents.inference.vllm_engine import quick_start_args

        args = quick_start_args(settings)
        from vllm import LLM

        self.llm = LLM(**args)

    def turn_by_turn(self, episodes: Sequence[Sequence[Request]]) -> tuple[float, int]:
        """Run all requests in waves; return CPU seconds and sampled tokens."""
        self.llm.reset_prefix_cache()
        tokens, started = 0, time.process_time()
        for turn in range(max(map(len, episodes))):
            wave = [episode[turn] for episode in episodes if turn < len(episode)]
            prompts = [{"prompt_token_ids": prompt} for prompt, _, _ in wave]
            params = [_params(length, seed) for _, length, seed in wave]
            outputs = self.llm.generate(prompts, params, use_tqdm=False)
            tokens += sum(len(output.outputs[0].token_ids) for output in outputs)
        return time.process_time() - started, tokens


def _params(length: int, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=length, ignore_eos=True, seed=seed, logprobs=0, flat_logprobs=True, detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )  # fmt: skip


def recorded(trajectories: Sequence[Trajectory]) -> list[list[Request]]:
    return [
        [(step.prompt_ids, len(step.response_ids), step_seed(t.seed, turn)) for turn, step in enumerate(t.steps)]
        for t in trajectories
    ]


def measure(keys: dict[str, Any], rounds: int) -> list[dict[str, float]]:
    found = []
    with started(Settings.from_dict(keys), ["vllm"]) as (ours,):
        assert ours.workers.engine_group is not None
        raw: Any = ray.remote(RawVLLM).options(num_cpus=0).remote(ours.workers.engine_group._settings)
        for number in range(WARM_UP + rounds):
            played = ours.play(number)
            waves_s, waves = ray.get(raw.turn_by_turn.remote(recorded(played.episodes)))
            assert waves == played.tokens, (waves, played.tokens)
            found.append(figures(played, waves_s))
    return found[WARM_UP:]


def pretrained(context: str) -> dict[str, Any]:
    """Keys of webshop with the imitated model; float32, as bfloat16 samples other tokens in other batches."""
    world = WORLDS["webshop"]
    own = {"env": world.env, "model": str(start_of("webshop")), "context": context, "dtype": "float32"}
    return parse_assignments(world.keys) | own


def main() -> None:
    options = {"rounds": 12, "hidden": 0, "layers": 4, "groups": 16, "pretrained": ""}
    args = command_line(__doc__, options).parse_args()
    name, command = "rollout_efficiency", "python -m benchmarks.rollout_efficiency"
    keys: dict[str, Any] = {"tasks_per_iteration": args.groups, "group_size": GROUP_SIZE, "num_env_runners": 1}
    with tempfile.TemporaryDirectory() as folder:
        if args.hidden:
            name += f"_{args.hidden}x{args.layers}"
            command += f" --hidden {args.hidden} --layers {args.layers}"
            keys |= {"model": untrained_model(Path(folder), "guess_numbers", args.hidden, args.layers), "max_turns": 4}
        if args.pretrained:
            name += "_135M_" + re.sub(r"\W", "", args.pretrained)
            command += f" --pretrained '{args.pretrained}'"
            keys |= pretrained(args.pretrained)
        results = measure(keys, args.rounds)
    command += f" --groups {args.groups}" if args.groups != 16 else ""
    write_result(name, f"{command} --rounds {args.rounds}", results)


if __name__ == "__main__":
    main()
