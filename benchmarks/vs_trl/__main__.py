"""CPU seconds per sampled token, ours against TRL's GRPOTrainer: ``python -m benchmarks.vs_trl``.

Runs of the same job (see common.py, trl_side.py, our_side.py) live side by side and take turns, one iteration each, so
that whatever else the machine does hits all alike. ``--job treasure`` trains SmolLM2-135M-Instruct in one process per
side, with ``--actors`` ours in actors and with vLLM. Needs ``sh benchmarks/vs_trl/setup.sh`` once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.real_model import start_of
from benchmarks.report import command_line, load, markdown, median_table, summarize, write_result
from benchmarks.vs_trl.common import JOBS, MARK, Iteration
from rl_agents.algorithms import Settings
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import ensure_model

ROOT = Path(__file__).resolve().parents[2]
TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
WARM_UP = {"small": 3, "treasure": 1}
TRL = {"TRL": "generate", "TRL vllm": "vllm"}
OURS = ("local", "auto", "vllm")
#: Of ``--job treasure``: all do not fit into the memory of a small machine at once.
LOCAL, ACTORS = ("TRL", "rl_agents local"), ("TRL", "rl_agents vllm")
#: What the appendix of docs/research/speed.md calls them.
SIDES = {
    "TRL": "TRL, `model.generate`", "TRL vllm": "TRL, vLLM colocated, with our model class",
    "rl_agents local": "rl_agents, torch engine, local", "rl_agents auto": "rl_agents, actors, `engine=auto` (torch)",
    "rl_agents vllm": "rl_agents, actors, vLLM",
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
        last = self.results[-1]
        print(f"{self.name}, iteration {len(self.results)}: {last.tokens} tokens, {last.cpu_s:.1f} CPU-s", flush=True)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run(job: str, names: Sequence[str], warm_up: int, iterations: int) -> list[Side]:
    small = job == "small"
    model_dir = str(ensure_model(Settings(), AgentAlgorithm.from_settings) if small else start_of(job))
    sides: list[Side] = []
    try:
        for name in names:
            ours = name not in TRL
            python, module = (sys.executable, "our_side") if ours else (TRL_PYTHON, "trl_side")
            path = name.removeprefix("rl_agents ") if ours else TRL[name]
            sides.append(Side(name, python, module, model_dir, str(warm_up + iterations), path, job))
        for side in sides:
            side.answer()
        for _ in range(warm_up + iterations):
            for side in sides:
                side.iterate()
    finally:
        for side in sides:
            side.stop()
    return sides


def table() -> str:
    """Return the table of sides, of the figures on file: medians."""
    sides = load("vs_trl")["sides"]
    digits = {column: 2 if column == "mean_return" else 0 for column in COLUMNS}
    rows = [
        (words, *(f"{sides[name][column]['median']:.{count}f}" for column, count in digits.items()))
        for name, words in SIDES.items()
    ]
    return markdown(("", *COLUMNS.values()), rows).replace("|  |", "| |", 1)


def main() -> None:
    parser = command_line(__doc__, {"iterations": 12, "actors": False})
    parser.add_argument("--job", default="small", choices=list(JOBS))
    options = parser.parse_args()
    job, iterations = options.job, options.iterations
    if not TRL_PYTHON.exists():
        raise SystemExit("no .venv-trl here; make it with: sh benchmarks/vs_trl/setup.sh")
    names = [*TRL, *(f"rl_agents {path}" for path in OURS)] if job == "small" else ACTORS if options.actors else LOCAL
    warm_up = WARM_UP[job]
    sides = {side.name: [i.figures() for i in side.results[warm_up:]] for side in run(job, names, warm_up, iterations)}
    for name, figures in sides.items():
        print(f"\n{name}\n{median_table(figures)}")
    ratios = [over_ours({name: figures[turn] for name, figures in sides.items()}) for turn in range(iterations)]
    print("\nCPU per sampled token, TRL over ours")
    details = {name: summarize(figures) for name, figures in sides.items()}
    flags = f"--job {job} --iterations {iterations}{' --actors' if options.actors else ''}"
    name = "vs_trl" if job == "small" else f"vs_trl_{job}{'_actors' if options.actors else ''}"
    write_result(name, f"python -m benchmarks.vs_trl {flags}", ratios, sides=details)


def over_ours(turn: Mapping[str, dict[str, float]]) -> dict[str, float]:
    """Return TRL's CPU per token over ours, in the same turn, for every pair of sides."""
    return {
        f"{trl.lower().replace(' ', '_')}_over_{ours.removeprefix('rl_agents ')}": turn[trl]["us_per_token"]
        / turn[ours]["us_per_token"]
        for trl in turn
        for ours in turn
        if trl in TRL and ours not in TRL
    }


if __name__ == "__main__":
    main()
