"""What T3 saves and what it costs on guess_numbers: ``python -m benchmarks.t3``.

Every arm trains in this process on the torch engine from the same starter and is then evaluated without truncation on
all 382 test tasks at temperature 1. Reported over the seeds: success at the end, tokens sampled in training, CPU
seconds of training, and the share of truncated episodes.

    OMP_NUM_THREADS=1 python -m benchmarks.t3 --algos grpo ppo --seeds 3 --iterations 40 --windows 1 2
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rl_agents.core.config import AgentConfig
from rl_agents.reporting.statistics import student_interval

RESULTS = Path(__file__).with_name("results")
TEST_TASKS = 382
Arm = dict[str, Any]


def arms(windows: Sequence[int], rules: Sequence[str], after: Sequence[str]) -> dict[str, Arm]:
    """Return the keys of every arm by name; ``none`` is the untruncated baseline."""
    result: dict[str, Arm] = {"none": {}}
    for rule, mode, window in itertools.product(rules, after, windows):
        result[f"{rule} {mode} k={window}"] = {
            "truncation": "t3", "truncation_window": window, "truncation_after": mode, "env.progress": rule,
        }  # fmt: skip
    return result


def play(algo: str, keys: Arm, seed: int, iterations: int, common: Arm) -> dict[str, float]:
    """Train one arm with one seed and evaluate it before and after."""
    config = AgentConfig().local()
    config.agent.update({"algo": algo, "seed": seed, "iterations": iterations, **common, **keys})
    agent = config.build_algo()
    try:
        start = success(agent)
        cpu, history = 0.0, []
        for _ in range(iterations):
            started = time.process_time()
            history.append(agent.train()["agent"])
            cpu += time.process_time() - started
        end = success(agent)
    finally:
        agent.stop()
    half = history[len(history) // 2 :]
    return {
        "success_start": start,
        "success_end": end,
        "sampled_tokens": sum(m["rollout/response_tokens"] for m in history),
        "cpu_seconds": cpu,
        "truncation_ratio_first": history[0].get("truncation/ratio", 0.0),
        "truncation_ratio_late": fmean(m.get("truncation/ratio", 0.0) for m in half),
        "turns_late": fmean(m["rollout/turns_mean"] for m in half),
    }


def success(agent: Any) -> float:
    """Share of the test tasks solved; evaluations never truncate."""
    episodes = agent.evaluate_policy("test", TEST_TASKS, temperature=1.0, seed=0)
    return fmean(t.success for t in episodes)


def summarise(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Mean of every number over the seeds; for the success also its 95 % Student interval."""
    result: dict[str, Any] = {name: fmean(run[name] for run in runs) for name in runs[0]}
    result["success_interval"] = student_interval([run["success_end"] for run in runs]).to_dict()
    return result


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Success against sampled tokens, one panel per algorithm, one point per arm."""
    figure, axes = plt.subplots(1, len(results), figsize=(6.5 * len(results), 5), squeeze=False)
    for axis, (algo, by_arm) in zip(axes[0], results.items(), strict=True):
        for arm, runs in by_arm.items():
            mean = summarise(runs["runs"])
            colour = "black" if arm == "none" else "C0" if arm.startswith("consistent") else "C1"
            marker = "*" if arm == "none" else "o" if "force_answer" in arm else "x"
            tokens = mean["sampled_tokens"] / 1000
            axis.scatter([r["sampled_tokens"] / 1000 for r in runs["runs"]], [r["success_end"] for r in runs["runs"]],
                         color=colour, marker=marker, alpha=0.3)  # fmt: skip
            axis.scatter([tokens], [mean["success_end"]], color=colour, marker=marker, s=90)
            axis.annotate(arm, (tokens, mean["success_end"]), fontsize=7, xytext=(4, 4), textcoords="offset points")
        axis.set(title=f"{algo} on guess_numbers", xlabel="sampled tokens in training (thousands)",
                 ylabel="success on the test tasks, untruncated")  # fmt: skip
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Render the means as a Markdown table."""
    lines = ["| algo | arm | success (per seed) | tokens | CPU s | truncated, first / late | turns late |"]
    lines.append("|---|---|---|---|---|---|---|")
    for algo, by_arm in results.items():
        for arm, runs in by_arm.items():
            mean = summarise(runs["runs"])
            seeds = ", ".join(f"{run['success_end']:.3f}" for run in runs["runs"])
            lines.append(
                f"| {algo} | {arm} | {mean['success_end']:.3f} ({seeds}) | {mean['sampled_tokens']:.0f} "
                f"| {mean['cpu_seconds']:.1f} | {mean['truncation_ratio_first']:.2f} / "
                f"{mean['truncation_ratio_late']:.2f} | {mean['turns_late']:.2f} |"
            )
    return "\n".join(lines)


def earlier_results(path: Path, iterations: int, common: Arm) -> dict[str, dict[str, Any]]:
    """Return what the file holds of other algorithms, so that they can be run one after the other."""
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    same = data["iterations"] == iterations and data["common"] == common
    return data["results"] if same else {}


def main(argv: Sequence[str] | None = None) -> None:
    """Run all arms; results are written after each run, so that nothing is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="+", default=["grpo", "ppo"])
    parser.add_argument("--windows", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rules", nargs="+", default=["consistent", "shrunk"])
    parser.add_argument("--after", nargs="+", default=["force_answer", "zero"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of every arm")
    parser.add_argument("--output", type=Path, default=RESULTS / "t3.json")
    args = parser.parse_args(argv)
    from rl_agents.settings import parse_assignments

    common = parse_assignments(args.set)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    chosen = arms(args.windows, args.rules, args.after)
    results = earlier_results(args.output, args.iterations, common)
    results |= {algo: {name: {"keys": keys, "runs": []} for name, keys in chosen.items()} for algo in args.algos}
    for seed, algo, (name, keys) in itertools.product(range(args.seeds), args.algos, chosen.items()):
        run = play(algo, keys, seed, args.iterations, common)
        results[algo][name]["runs"].append(run)
        print(f"{algo:6} {name:28} seed {seed}: success {run['success_end']:.3f}, "
              f"{run['sampled_tokens']:.0f} tokens, {run['cpu_seconds']:.1f} CPU s", flush=True)  # fmt: skip
        args.output.write_text(
            json.dumps({"iterations": args.iterations, "common": common, "results": results}, indent=1) + "\n",
            encoding="utf-8",
        )
    plot(results, args.output.with_suffix(".png"))
    print(table(results))


if __name__ == "__main__":
    main()
