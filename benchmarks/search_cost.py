"""What a step of the environment costs a search, and GRPO: ``python -m benchmarks.search_cost [--env guess_numbers]``.

Whole training iterations in one process (torch engine), method after method in turns: CPU of all threads per sampled
action, rollout, credit and update together. 3spo is measured as its preset has it, and without the episodes that its
guard runs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.report import median_table, write_result

WARM_UP = 2
GROUPS: dict[str, Any] = {"tasks_per_iteration": 16, "group_size": 8}
SEARCH: dict[str, Any] = {"algo": "3spo", "search_steps": 2200, "lr": 6e-4}
ARMS: dict[str, dict[str, Any]] = {
    "grpo": {"algo": "grpo", **GROUPS},
    "chain-gae (ours)": {"algo": "chain-gae", "tasks_per_iteration": 128, "group_size": 1},
    "3spo": SEARCH,
    "3spo, shared prefixes": {**SEARCH, "prefix_sharing": True},
    "3spo, no guard": {**SEARCH, "collapse_monitor": "off"},
    "3spo, published": {**SEARCH, "reading": "published"},
}
BASELINE = "grpo"


def build(env: str, keys: dict[str, Any]) -> Any:
    from rl_agents.trainer.algorithm import AgentConfig

    return AgentConfig().environment(env).training(**keys, eval_interval=0, seed=0).local().build_algo()


def iterate(algo: Any) -> float:
    started = time.process_time()
    metrics = algo.train()["agent"]
    cpu_s = time.process_time() - started
    steps = metrics.get("search/sampled_steps", metrics.get("rollout/turns"))
    return cpu_s / steps * 1e6


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--rounds", type=int, default=5, help="measured iterations of each arm")
    args = parser.parse_args()
    torch.set_num_threads(1)
    algos = {name: build(args.env, keys) for name, keys in ARMS.items()}
    rounds: list[dict[str, float]] = []
    for number in range(WARM_UP + args.rounds):
        costs = {name: iterate(algo) for name, algo in algos.items()}
        print({name: round(cost) for name, cost in costs.items()}, flush=True)
        if number >= WARM_UP:
            ratios = {f"{name} over {BASELINE}": cost / costs[BASELINE] for name, cost in costs.items()}
            rounds.append({**{f"{name}, us per step": cost for name, cost in costs.items()}, **ratios})
    print(median_table(rounds))
    command = f"python -m benchmarks.search_cost --env {args.env} --rounds {args.rounds}"
    write_result(f"search_cost_{args.env}", command, rounds)


if __name__ == "__main__":
    main()
