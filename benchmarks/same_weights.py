"""Weights do not depend on timing: ``python -m benchmarks.same_weights`` (torch engine).

Each lag is trained by 1, 2 and 4 env runners, every step of the environment a tool call that takes a time which nobody
can foresee (benchmarks/slow_tools.py), and once in one process without any wait. Writes results/same_weights.json:
the SHA-256 of the last weights of every run, and whether those of a lag are equal bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.grid import RESULTS, run_command
from benchmarks.pool_kills import last_checkpoint
from benchmarks.slow_tools import start_session
from rl_agents.config import Settings
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import ensure_model

LAGS, RUNNERS = (0, 1, 2), (1, 2, 4)
#: Seconds of a tool call, the median.
MEDIAN_S = 0.02
KEYS = (
    "engine=torch", "old_logprobs=learner", "mismatch=none", "tasks_per_iteration=8", "group_size=8",
    "eval_interval=0", "eval_episodes=8",
)  # fmt: skip


def main() -> None:
    """Run, print and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=6)
    args = parser.parse_args()
    ensure_model(Settings.from_dict({"env": "guess_numbers"}), AgentAlgorithm.from_settings)  # while tools are quick
    result = {}
    for lag in LAGS:
        digests = {str(runners): _alone(lag, runners, args.iterations) for runners in (0, *RUNNERS)}
        result[f"lag {lag}"] = {"equal": len(set(digests.values())) == 1, "weights by env runners": digests}
        print(json.dumps({f"lag {lag}": result[f"lag {lag}"]}), flush=True)
    (RESULTS / "same_weights.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _alone(lag: int, runners: int, iterations: int) -> str:
    """`train` in a process of its own: slow tools stay slow."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(train, lag, runners, iterations).result()


def train(lag: int, runners: int, iterations: int) -> str:
    """Train with so many env runners, 0: in this process and without waits; return the SHA-256 of the weights."""
    if runners:
        start_session(actors=runners + 2, median_s=MEDIAN_S, foreseen=False)
    place = ("--set", f"num_env_runners={runners}") if runners else ("--local",)
    keys = [part for key in (*KEYS, f"lag={lag}") for part in ("--set", key)]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        run_command(["--algo", "grpo", "--iterations", str(iterations), "--output", str(output), *keys, *place])
        return hashlib.sha256((last_checkpoint(output) / "hf" / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
