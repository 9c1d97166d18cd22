"""What both sides of the comparison share: the job, and how they take turns."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

SEED = 0
BETAS, GRAD_CLIP = (0.9, 0.95), 1.0
MARK = "vs_trl "


@dataclass(frozen=True)
class Job:
    """What both sides train.

    Attributes:
        env, options: the environment's name, as run.py reads it, and its options.
        groups, group_size: tasks of an iteration, and episodes of a task.
        dtype: ``bfloat16`` computes under autocast with float32 weights.
        max_response_tokens, max_model_len: limits of a turn and of an episode.
        micro_episodes: episodes in a micro-batch of TRL; ours has ``tokens_per_microbatch``.
    """

    env: str
    options: dict[str, Any]
    groups: int
    group_size: int
    lr: float
    dtype: str
    max_response_tokens: int
    max_model_len: int
    micro_episodes: int
    tokens_per_microbatch: int
    prefix_sharing: bool = False

    @property
    def episodes(self) -> int:
        return self.groups * self.group_size


JOBS = {
    # The warm-start model of 0.1 M parameters: what Python costs.
    "small": Job("guess_numbers", {"prompt": "compact"}, 16, 8, 5e-4, "float32", 24, 256, 128, 16384),
    # SmolLM2-135M-Instruct after imitation (benchmarks.real_model): what the model costs.
    "treasure": Job("gymnasium:benchmarks.treasure:Treasure", {}, 10, 8, 2e-5, "bfloat16", 8, 320, 16, 2048, True),
}


@dataclass(frozen=True)
class Iteration:
    """One iteration of episodes and one optimizer step; CPU seconds of all threads of all processes."""

    tokens: int
    episodes: int
    reward: float
    cpu_s: float
    rollout_cpu_s: float
    learner_cpu_s: float

    def figures(self) -> dict[str, float]:
        return {
            "us_per_token": self.cpu_s / self.tokens * 1e6,
            "rollout_us_per_token": self.rollout_cpu_s / self.tokens * 1e6,
            "learner_us_per_token": self.learner_cpu_s / self.tokens * 1e6,
            "cpu_s": self.cpu_s,
            "sampled_tokens": self.tokens,
            "mean_return": self.reward,
        }


def await_turn() -> float:
    """Wait for a line on standard input; return the process's CPU seconds. The end of the input ends the process."""
    if not sys.stdin.readline():
        sys.exit(0)
    return time.process_time()


def hand_over(iteration: Iteration | None = None) -> None:
    """Report an iteration, or that the first may begin."""
    print(MARK + json.dumps(asdict(iteration) if iteration else {}), flush=True)
