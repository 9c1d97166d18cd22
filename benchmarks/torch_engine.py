"""What a sampled step costs with the torch engine: ``python -m benchmarks.torch_engine [--against TREE]``.

Plays rounds of episodes in one process that nobody learns from, with weights new for every round, and answers: process
CPU (all threads) per interaction step. With ``--against``, the folder of another checkout, both take turns round by
round, so that whatever else the machine does hits both alike, and what they sampled is compared token by token.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import summarize, write_figures

ROOT = Path(__file__).resolve().parents[1]
MARK = "torch_engine "
#: The engine records its passes in the second.
WARM_UP = 2
GUESS = {"env": "guess_numbers", "algo": "grpo", "tasks_per_iteration": 16, "group_size": 8}
CASES: dict[str, dict[str, Any]] = {
    "grpo, guess_numbers, 0.1 M": GUESS,
    "grpo, alfworld, 0.2 M": {**GUESS, "env": "alfworld"},
    "chain-gae, alfworld (make demo), 0.2 M": {"recipe": "alfworld_chain_gae_weak"},
    "grpo, guess_numbers, 2 M untrained": {**GUESS, "hidden": 224, "max_turns": 4},
}


def play(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the figures of one round after the other."""
    import torch

    from benchmarks.rollout_efficiency import untrained_model
    from rl_agents.config.loading import load_recipe
    from rl_agents.data.tasks import training_specs
    from rl_agents.trainer.algorithm import AgentConfig

    torch.set_num_threads(1)
    keys = dict(case)
    if "recipe" in keys:
        keys = load_recipe(str(ROOT / "tune_configs" / "recipes" / f"{keys['recipe']}.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        if hidden := keys.pop("hidden", 0):
            torch.manual_seed(0)
            keys["model"] = untrained_model(Path(folder), hidden, 4)
        algo = AgentConfig().environment(keys.pop("env")).training(**keys | {"engine": "torch"}).local().build_algo()
    workers, groups, size = algo.rollout_workers, algo.settings.tasks_per_iteration, algo.settings.group_size
    weights = algo.learner_group.export_weights()
    for number in range(1 << 30):
        specs = training_specs(algo.train_tasks, number, groups, size, seed=0)
        passes = workers.engine.passes
        started = time.process_time()
        workers.push(weights, number + 1)
        episodes = workers.collector.collect(specs).answers
        cpu_s = time.process_time() - started
        sampled = [[list(step.response_ids) for step in episode.steps] for episode in episodes]
        steps = sum(map(len, sampled))
        yield {
            "us_per_step": cpu_s / steps * 1e6, "steps": steps, "tokens": sum(len(r) for e in sampled for r in e),
            "passes": workers.engine.passes - passes,
            "sampled": hashlib.sha256(json.dumps(sampled).encode()).hexdigest()[:16],
        }  # fmt: skip


@dataclass
class Side:
    """One tree, which plays one case in a process of its own, a round a line."""

    tree: Path
    case: str
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # -P: not the modules beside this file, but those of the tree.
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--case", self.case], cwd=self.tree, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.tree)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def play(self) -> None:
        """Let it play a round."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print("go", file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(MARK):
                self.rounds.append(json.loads(line.removeprefix(MARK)))
                return
        raise SystemExit(f"{self.tree} ended with status {self.process.wait()}")

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def compare(case: str, trees: Sequence[Path], rounds: int) -> list[list[dict[str, Any]]]:
    """Return the rounds of each tree; they take turns."""
    sides = [Side(tree, case) for tree in trees]
    try:
        for _ in range(WARM_UP + rounds):
            for side in sides:
                side.play()
        return [side.rounds[WARM_UP:] for side in sides]
    finally:
        for side in sides:
            side.stop()


def main() -> None:
    """Print the table and write the figures, or (``--case`` alone) play rounds as standard input asks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="folder of the other checkout, the one before")
    parser.add_argument("--rounds", type=int, default=6, help="measured rounds of each tree")
    parser.add_argument("--only", choices=CASES, help="one case; the others stay on file")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        for _, figures in zip(sys.stdin, play(CASES[args.case]), strict=False):
            print(MARK + json.dumps(figures), flush=True)
        return
    file = ROOT / "benchmarks" / "results" / "torch_engine.json"
    found: dict[str, Any] = json.loads(file.read_text())["cases"] if args.only and file.is_file() else {}
    for case in [args.only] if args.only else CASES:
        sides = compare(case, [*([args.against.resolve()] if args.against else []), ROOT], args.rounds)
        alike = len({tuple(r["sampled"] for r in rounds) for rounds in sides}) == 1
        costs = [statistics.median(r["us_per_step"] for r in rounds) for rounds in sides]
        words = "the same" if alike else "OTHER"
        print(f"{case}: {' -> '.join(f'{c:,.0f}' for c in costs)} us per step, {words} tokens", flush=True)
        figures = [summarize([{k: v for k, v in r.items() if k != "sampled"} for r in rounds]) for rounds in sides]
        found[case] = {"same_tokens": alike, **dict(zip(["before", "now"][-len(sides) :], figures, strict=True))}
    write_figures("torch_engine", "python -m benchmarks.torch_engine --against TREE", {"cases": found})


if __name__ == "__main__":
    main()
