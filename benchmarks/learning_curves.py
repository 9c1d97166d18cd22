"""Learning curves over seeds: does it learn, how surely, and what does it cost?

    python -m benchmarks.learning_curves --algos grpo ppo --seeds 3                           # the README's main job
    python -m benchmarks.learning_curves --name family --local --jobs 2 --set iterations=40   # every algorithm

Runs ``run.py`` once per algorithm and seed, as a user would, and writes benchmarks/results/NAME.json and NAME.png:
success on the frozen test tasks (sampling temperature 1) before, during and after training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rl_agents.algorithms import ALGORITHMS
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.reporting.statistics import student_interval

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Run, print the table and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rollout_algorithms = [name for name, recipe in ALGORITHMS.items() if recipe.source == "rollouts"]
    parser.add_argument("--algos", nargs="+", default=rollout_algorithms)
    parser.add_argument("--env", default="guess_numbers")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--local", action="store_true", help="no actors, torch engine")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--name", default="default_job")
    args = parser.parse_args()
    keys = [*(part for key in args.set for part in ("--set", key)), *(["--local"] if args.local else [])]
    grid = [(algo, seed) for algo in args.algos for seed in range(args.seeds)]
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = list(pool.map(lambda cell: run_once(cell[0], args.env, cell[1], keys), grid))
    curves = {algo: [run for cell, run in zip(grid, runs, strict=True) if cell[0] == algo] for algo in args.algos}
    table = {algo: summarise(runs) for algo, runs in curves.items()}
    for algo, row in table.items():
        print(f"{algo:20} start {text(row['start'])}  end {text(row['end'])}  gain {text(row['gain'])}  "
              f"tokens {row['sampled_tokens']:.0f}  CPU {row['cpu_seconds']:.0f} s  wall {row['seconds']:.0f} s a run  "
              f"zero advantage {row['zero_advantage_share']:.2f}")  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.json").write_text(json.dumps({"table": table, "curves": curves}, indent=1) + "\n")
    plot(curves, RESULTS / f"{args.name}.png", args.env)


def run_once(algo: str, env: str, seed: int, keys: list[str]) -> dict[str, Any]:
    """One run of the command line; its evaluations by iteration, and what it cost."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [sys.executable, "run.py", "--algo", algo, "--env", env, "--seed", str(seed), "--output", str(output)]
        subprocess.run([*command, *keys], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        folder = RunFolder(output)
        summary, records = folder.read_summary(), folder.read_metrics()
    evaluations = {r["iteration"]: r["eval/success_rate"] for r in records if "eval/success_rate" in r}
    silent = [r["rollout/zero_advantage_share"] for r in records if "rollout/zero_advantage_share" in r]
    gaps = [r["actor/engine_logprob_gap_max"] for r in records if "actor/engine_logprob_gap_max" in r]
    print(f"{algo} seed {seed}: {evaluations}", flush=True)
    return {
        "seed": seed,
        "success": evaluations,
        "engine_logprob_gap_max": max(gaps),
        "zero_advantage_share": sum(silent) / len(silent),
        **{key: summary[key] for key in ("engine", "seconds", "cpu_seconds", "sampled_tokens", "episodes")},
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and 95 % Student interval over the seeds."""
    curves = [list(run["success"].values()) for run in runs]
    rows = {
        "start": [curve[0] for curve in curves],
        "end": [curve[-1] for curve in curves],
        "gain": [curve[-1] - curve[0] for curve in curves],
    }
    names = ("seconds", "cpu_seconds", "sampled_tokens", "zero_advantage_share")
    costs = {key: sum(run[key] for run in runs) / len(runs) for key in names}
    gap = max(run["engine_logprob_gap_max"] for run in runs)
    return {**{k: student_interval(v).to_dict() for k, v in rows.items()}, **costs, "engine_logprob_gap_max": gap}


def text(interval: dict[str, float]) -> str:
    """``mean [low, high]``."""
    return f"{interval['mean']:.2f} [{interval['low']:.2f}, {interval['high']:.2f}]"


def plot(curves: dict[str, list[dict[str, Any]]], path: Path, env: str) -> None:
    """Mean success over the seeds, one line an algorithm, thin lines for the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for number, (algo, runs) in enumerate(curves.items()):
        steps = [int(step) for step in runs[0]["success"]]
        values = [list(run["success"].values()) for run in runs]
        for line in values:
            axes.plot(steps, line, color=f"C{number}", alpha=0.15, linewidth=1)
        style = "-" if number < 10 else "--"
        mean = [sum(v) / len(v) for v in zip(*values, strict=True)]
        axes.plot(steps, mean, style, color=f"C{number}", label=algo)
    axes.set(xlabel="iteration", ylabel="success on the test tasks", ylim=(0, 1), title=f"{env}, {len(values)} seeds")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
