"""What both sides of the comparison share: the job, and how they take turns."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

GROUPS, GROUP_SIZE = 16, 8
SEED = 0
LEARNING_RATE, BETAS, GRAD_CLIP = 5e-4, (0.9, 0.95), 1.0
MARK = "vs_trl "


@dataclass(frozen=True)
class Iteration:
    """One iteration of 128 episodes and one optimizer step; CPU seconds of all threads of all processes."""

    tokens: int
    episodes: int
    reward: float
    cpu_s: float
    rollout_cpu_s: float
    learner_cpu_s: float

    def figures(self) -> dict[str, float]:
        """Return what is reported: microseconds per sampled token, and what was sampled."""
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
