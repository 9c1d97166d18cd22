"""Cost of killed processes: ``python -m benchmarks.chaos`` (needs root for two hosts, see clusters/local_two_nodes.py).

A run on two hosts loses its env runner, engine, learner, and the learner's whole node, one after the other, each by
SIGKILL at a random time. It is compared with an undisturbed run: it must have every iteration and optimizer step once,
the same number of rollouts per task, and the same success.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import command_line, save
from clusters.local_two_nodes import TwoNodes, two_nodes

#: Process titles, set by Ray.
TITLES = {"env runner": "ray::TextEnvRunner", "engine": "ray::EngineActor", "learner": "ray::_WrappedExecutable"}
NODE = "node"
#: Seconds until a crashed node is restarted.
REPAIR_S = 5.0
#: Seconds for one iteration, including repairs, after which a run counts as hung.
HUNG_S = 400.0


def main() -> None:
    args = command_line(__doc__, {"kills": 20, "iterations": 60}).parse_args()
    victims = (*TITLES, *TITLES, NODE)
    schedule = [victims[i % len(victims)] for i in range(args.kills)]
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, kills in (("undisturbed", []), ("killed", schedule)):
            output = Path(scratch) / name
            results[name] = {"seconds": run(output, kills, args), **account(output), "kills": dict(Counter(kills))}
            print(name, json.dumps(results[name]), flush=True)
    save("chaos", results)


def run(output: Path, kills: list[str], args: argparse.Namespace) -> float:
    """Train on two hosts while ``kills`` happen, evenly spread over the iterations; return the duration in seconds."""
    started, rng = time.monotonic(), random.Random(0)
    flags = [
        "--algo", "grpo", "--iterations", str(args.iterations), "--output", str(output), "--set",
        "engine=torch", "num_env_runners=2", "num_learners=1", "rollout_nodes=head", "learner_nodes=worker",
        "engine_timeout_s=30", "eval_episodes=382", "eval_interval=0",
    ]  # fmt: skip
    with two_nodes(cpus=6) as cluster:
        job = cluster.run([sys.executable, "run.py", *flags])
        for number, victim in enumerate(kills):
            _await_iteration(job, output, 1 + number * (args.iterations - 2) // len(kills))
            time.sleep(rng.random() * 2)
            strike(cluster, victim, rng)
        code = job.wait(timeout=HUNG_S * 3)
    if code:
        raise SystemExit(f"the run ended with exit code {code}")
    return round(time.monotonic() - started, 1)


def strike(cluster: TwoNodes, victim: str, rng: random.Random) -> None:
    print(f"killing: {victim}", flush=True)
    if victim == NODE:
        cluster.crash(cluster.worker)
        time.sleep(REPAIR_S)
        cluster.start(cluster.worker)
        return
    while not (found := [pid for node in (cluster.head, cluster.worker) for pid in node.pids() if _is(pid, victim)]):
        time.sleep(1)
    os.kill(rng.choice(found), signal.SIGKILL)


def _is(pid: int, victim: str) -> bool:
    try:
        return " ".join(psutil.Process(pid).cmdline()).startswith(TITLES[victim])
    except psutil.Error:
        return False


def _await_iteration(job: Any, output: Path, iteration: int) -> None:
    deadline = time.monotonic() + HUNG_S
    while len(_records(output)) <= iteration:
        if job.poll() is not None:
            raise SystemExit(f"the run ended with exit code {job.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"no iteration within {HUNG_S:g} s")
        time.sleep(0.2)


def _records(output: Path) -> list[dict[str, Any]]:
    file = output / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def account(output: Path) -> dict[str, Any]:
    records = [record for record in _records(output) if record["iteration"]]
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    state = json.loads((output / summary["checkpoint"] / "state.json").read_text(encoding="utf-8"))
    return {
        "iterations": [record["iteration"] for record in records] == list(range(1, len(records) + 1)) and len(records),
        "episodes": summary["episodes"],
        "failed_episodes": summary["failed_episodes"],
        "resampled_episodes": round(sum(record["rollout/resampled_episodes"] for record in records)),
        "learner_restarts": summary["learner_restarts"],
        **state["counters"],
        "optimizer_steps": state["learner"]["optimizer|steps"],
        "gap_max": max(record["rollout_corr/logprob_diff_max"] for record in records),
        "success_start": summary["success_start"],
        "success_end": summary["success_end"],
        "success_end_interval": summary["success_end_interval"],
    }


if __name__ == "__main__":
    main()
