"""What a run loses to somebody who follows it with `run.py view`, in CPU time of the run's own process.

    python -m benchmarks.explorer_slowdown [--iterations 240] [--block 4]

One local run (GRPO on guess_numbers with a learning rate of nearly 0, so that iterations stay alike) and one server.
In every second block of iterations a reader asks for all that the start page, the run's page and that of the newest
iteration show, twice a second (a page asks for as much once in ten seconds at most); in the others nobody does. So
both kinds of blocks have the same process, machine and neighbors. Printed: CPU seconds of a thousand tokens of rows of
each kind (long iterations cost more), and their ratio with its standard error by bootstrap over pairs of blocks.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

POLL_S, WARM_UP, DRAWS = 0.5, 8, 2000
KEYS = ("tasks_per_iteration=8", "group_size=8", "eval_episodes=0", "lr=1e-9", "checkpoint_interval=1000")


def train(folder: Path, iterations: int, model: str) -> subprocess.Popen[bytes]:
    """Start the run."""
    argv = ["run.py", "--algo", "grpo", "--env", "guess_numbers", "--local", "--iterations", str(iterations)]
    command = [sys.executable, *argv, "--model", model, "--output", str(folder), "--set", *KEYS]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def records(folder: Path) -> list[dict[str, Any]]:
    """The run's metrics so far."""
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []


def ask_all(http: httpx.Client, run: str) -> int:
    """Ask what the three pages ask; return the bytes of the answers."""
    size = len(http.get("state").content)
    found = http.get("runs").json()["runs"][0]
    questions = [("series", {}), ("iterations", {})]
    if found["last"] is not None:
        questions += [("groups", {"iteration": found["last"]}), ("steps", {"iteration": found["last"]})]
    return size + sum(len(http.get(view, params={"run": run, **values}).content) for view, values in questions)


def follow(folder: Path, process: subprocess.Popen[bytes], block: int) -> int:
    """Ask in every second block until the run ends; return how often."""
    while not (folder / "pool.sqlite").exists() or not records(folder):
        if process.poll() is not None:
            raise SystemExit("the run ended before it began")
        time.sleep(0.1)
    polls = 0
    command = [sys.executable, "run.py", "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        with httpx.Client(base_url=f"{found[0]}api/", timeout=60) as http:
            while process.poll() is None:
                now = len(records(folder))  # record 0 is before the first iteration: so many are begun
                if now // block % 2:
                    ask_all(http, folder.name)
                    polls += 1
                time.sleep(POLL_S)
        server.send_signal(signal.SIGINT)
    return polls


def blocks(lines: list[dict[str, Any]], block: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[pairs, (CPU seconds, thousand tokens)] of blocks of iterations without and with a reader, pair by pair."""
    spent = {b["iteration"]: (b["cpu_seconds"] - a["cpu_seconds"], b["rows/tokens"] / 1000) for a, b in pairwise(lines)}
    size = 2 * block
    last = max(spent)
    starts = [start for start in range(size, last - size + 2, size) if start >= WARM_UP]
    sums = [[np.sum([spent[i] for i in range(at, at + block)], axis=0) for at in (s, s + block)] for s in starts]
    quiet, followed = np.array(sums).transpose(1, 0, 2)
    return quiet, followed


def main() -> None:
    """Train, follow, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=240)
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--model", default="starter")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        with train(folder, args.iterations, args.model) as process:
            polls = follow(folder, process, args.block)
        quiet, followed = blocks(records(folder), args.block)
    draws = np.random.default_rng(0).integers(0, len(quiet), (DRAWS, len(quiet)))
    ratios = [cost(followed[draw]) / cost(quiet[draw]) for draw in draws]
    print(f"{len(quiet)} pairs of blocks of {args.block} iterations, {polls} times everything asked")
    print(f"CPU of a thousand tokens: {cost(quiet):.4f} s without a reader, {cost(followed):.4f} s with one")
    print(f"ratio {cost(followed) / cost(quiet):.4f} ± {np.std(ratios):.4f} (standard error)")


def cost(blocks: NDArray[np.float64]) -> float:
    """CPU seconds of a thousand tokens."""
    seconds, tokens = blocks.sum(axis=0)
    return float(seconds / tokens)


if __name__ == "__main__":
    main()
