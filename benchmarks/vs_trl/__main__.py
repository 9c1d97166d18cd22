"""CPU seconds per sampled token, ours against TRL's GRPOTrainer: ``python -m benchmarks.vs_trl``.

Six runs of the same job (see common.py, trl_side.py, our_side.py) live side by side and take turns, one iteration
each, so that whatever else the machine does hits all alike. Needs ``sh benchmarks/vs_trl/setup.sh`` once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import RESULTS, markdown, median_table, summarize, write_result
from benchmarks.vs_trl.common import MARK, Iteration
from rl_agents.algorithms import Settings
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import ensure_model

ROOT = Path(__file__).resolve().parents[2]
TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
WARM_UP = 3
TRL = {"TRL": "generate", "TRL vllm": "vllm"}
OURS = ("local", "auto", "vllm", "vllm-together")
#: What the appendix of docs/research/speed.md calls them.
SIDES = {
    "TRL": "TRL, `model.generate`", "TRL vllm": "TRL, vLLM colocated, with our model class",
    "rl_agents local": "rl_agents, torch engine, local", "rl_agents auto": "rl_agents, actors, `engine=auto` (torch)",
    "rl_agents vllm": "rl_agents, actors, vLLM",
    "rl_agents vllm-together": "rl_agents, actors, vLLM, `placement=colocate`",
}  # fmt: skip
COLUMNS = {
    "us_per_token": "all", "rollout_us_per_token": "rollout", "learner_us_per_token": "learner",
    "sampled_tokens": "tokens an iteration", "mean_return": "mean return",
}  # fmt: skip


class Side:
    def __init__(self, name: str, python: Path | str, module: str, *args: str) -> None:
        self.name = name
        self.results: list[Iteration] = []
        self.process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.vs_trl.{module}", *args],
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def answer(self) -> dict[str, float]:
        """Wait until the process has handed over, and return what it says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))  # type: ignore[no-any-return]
        raise SystemExit(f"{self.name} ended with status {self.process.wait()}")

    def iterate(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.results.append(Iteration(**self.answer()))  # type: ignore[arg-type]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run(iterations: int) -> list[Side]:
    """Start the sides, let them take turns, and stop them."""
    model_dir, count = str(ensure_model(Settings(), AgentAlgorithm.from_settings)), str(WARM_UP + iterations)
    sides: list[Side] = []
    try:
        for name, path in TRL.items():
            sides.append(Side(name, TRL_PYTHON, "trl_side", model_dir, count, path))
        for path in OURS:
            sides.append(Side(f"rl_agents {path}", sys.executable, "our_side", model_dir, count, path))
        for side in sides:
            side.answer()
        for _ in range(WARM_UP + iterations):
            for side in sides:
                side.iterate()
    finally:
        for side in sides:
            side.stop()
    return sides


def table() -> str:
    """Return the table of sides, of the figures on file: medians."""
    sides = json.loads((RESULTS / "vs_trl.json").read_text(encoding="utf-8"))["sides"]
    digits = {column: 2 if column == "mean_return" else 0 for column in COLUMNS}
    rows = [
        (words, *(f"{sides[name][column]['median']:.{count}f}" for column, count in digits.items()))
        for name, words in SIDES.items()
    ]
    return markdown(("", *COLUMNS.values()), rows).replace("|  |", "| |", 1)


def main() -> None:
    """Print the tables and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=12, help="measured iterations of each side")
    parser.add_argument("--table", action="store_true", help="only print the table of sides from the results on file")
    options = parser.parse_args()
    if options.table:
        return print(table())
    iterations = options.iterations
    if not TRL_PYTHON.exists():
        raise SystemExit("no .venv-trl here; make it with: sh benchmarks/vs_trl/setup.sh")
    sides = {side.name: [i.figures() for i in side.results[WARM_UP:]] for side in run(iterations)}
    for name, figures in sides.items():
        print(f"\n{name}\n{median_table(figures)}")
    ratios = [
        {
            f"{trl.lower().replace(' ', '_')}_over_{path}": theirs / sides[f"rl_agents {path}"][turn]["us_per_token"]
            for trl in TRL
            for path in OURS
            for theirs in [sides[trl][turn]["us_per_token"]]
        }
        for turn in range(iterations)
    ]
    print(f"\nCPU per sampled token, TRL over ours\n{median_table(ratios)}")
    details = {name: summarize(figures) for name, figures in sides.items()}
    write_result("vs_trl", f"python -m benchmarks.vs_trl --iterations {iterations}", ratios, sides=details)


if __name__ == "__main__":
    main()
