"""The README's main job over several seeds: does it learn, how surely, and what does it cost?

    python -m benchmarks.default_job --algos grpo ppo --seeds 3

Runs ``run.py`` once per algorithm and seed, as a user would, and writes benchmarks/results/default_job.json and
default_job.png: success on the frozen test tasks (sampling temperature 1) before, during and after training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rl_agents.reporting.run_folder import RunFolder
from rl_agents.reporting.statistics import student_interval

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Run, print the table and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="+", default=["grpo", "ppo"])
    parser.add_argument("--env", default="guess_numbers")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--name", default="default_job")
    args = parser.parse_args()
    curves = {algo: [run_once(algo, args.env, seed, args.set) for seed in range(args.seeds)] for algo in args.algos}
    table = {algo: summarise(runs) for algo, runs in curves.items()}
    for algo, row in table.items():
        print(f"{algo:8} start {text(row['start'])}  end {text(row['end'])}  gain {text(row['gain'])}  "
              f"CPU {row['cpu_seconds']:.0f} s  wall {row['seconds']:.0f} s a run")  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.json").write_text(json.dumps({"table": table, "curves": curves}, indent=1) + "\n")
    plot(curves, RESULTS / f"{args.name}.png", args.env)


def run_once(algo: str, env: str, seed: int, keys: list[str]) -> dict[str, Any]:
    """One run of the command line; its evaluations by iteration, and what it cost."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [sys.executable, "run.py", "--algo", algo, "--env", env, "--seed", str(seed), "--output", str(output)]
        for key in keys:
            command += ["--set", key]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        folder = RunFolder(output)
        summary, records = folder.read_summary(), folder.read_metrics()
    evaluations = {r["iteration"]: r["eval/success_rate"] for r in records if "eval/success_rate" in r}
    gaps = [r["actor/engine_logprob_gap_max"] for r in records if "actor/engine_logprob_gap_max" in r]
    print(f"{algo} seed {seed}: {evaluations}", flush=True)
    return {
        "seed": seed,
        "success": evaluations,
        "engine_logprob_gap_max": max(gaps),
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
    costs = {key: sum(run[key] for run in runs) / len(runs) for key in ("seconds", "cpu_seconds", "sampled_tokens")}
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
            axes.plot(steps, line, color=f"C{number}", alpha=0.3, linewidth=1)
        axes.plot(steps, [sum(v) / len(v) for v in zip(*values, strict=True)], color=f"C{number}", label=algo)
    axes.set(xlabel="iteration", ylabel="success on the test tasks", ylim=(0, 1), title=f"{env}, {len(values)} seeds")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
