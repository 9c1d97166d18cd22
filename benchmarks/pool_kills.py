"""Cost of kill -9 for a training run: ``python -m benchmarks.pool_kills --kills 100``.

A run is killed at random times and resumed until it is done, and then compared with an undisturbed run. The pool must
have the same calls with the same tokens, each sampled once, and the batches must contain every session once.
Log-probabilities and weights differ by float noise, because recorded calls are not part of the engine's batches.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.grid import RESULTS
from rl_agents.store.reader import PoolReader

ROOT = Path(__file__).parents[1]
#: Time limit of one start of the run, in seconds.
HUNG_S = 600.0
RECORDED = re.compile(r"(\d+) recorded calls after the checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--algo", default="grpo")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--name", default="pool_kills", help="results/NAME.json")
    args = parser.parse_args()
    flags = ["--algo", args.algo, "--iterations", str(args.iterations), "--set", *args.set]
    with tempfile.TemporaryDirectory() as scratch:
        result = compare(Path(scratch), flags, args.kills, random.Random(0))
    print(json.dumps(result))
    (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def compare(scratch: Path, flags: list[str], kills: int, rng: random.Random) -> dict[str, Any]:
    """Run undisturbed and killed; return counts of both, and differences."""
    alone, killed = scratch / "alone", scratch / "killed"
    seconds, _ = start(alone, flags)
    served, done = 0, 0
    while not finished(killed):
        wait = rng.uniform(0, 2 * seconds / (kills + 1)) if done < kills else None
        served += start(killed, flags, kill_after=wait)[1]
        done += wait is not None
    before, after = account(alone), account(killed)
    both = [(call, after["calls"][seed]) for seed, call in before["calls"].items() if seed in after["calls"]]
    logprobs = (abs(a - b) for one, two in both for a, b in zip(one.logprobs, two.logprobs, strict=False))
    tokens = [
        {seed: (call.prompt_ids, call.response_ids) for seed, call in side["calls"].items()} for side in (before, after)
    ]
    return {
        "kills": done,
        "calls": [len(before["calls"]), len(after["calls"])],
        "batches": [len(before["batches"]), len(after["batches"])],
        "served_again": served,
        "same_tokens": tokens[0] == tokens[1],
        "same_batches": before["batches"] == after["batches"],
        "trained_twice": len(after["batches"]) - len(set(after["batches"])),
        "logprob_difference": max(logprobs, default=0.0),
        "weight_difference": weight_difference(alone, killed),
        "resumes": after["resumes"],
    }


def start(output: Path, flags: list[str], kill_after: float | None = None) -> tuple[float, int]:
    """Start or resume the run, and kill it ``kill_after`` seconds after its first line about an iteration.

    Returns:
        Seconds from that line to the end, and the number of recorded calls to repeat.
    """
    resumed = (output / "pool.sqlite").is_file()
    arguments = ["--resume", str(output), "--local"] if resumed else ["--output", str(output), "--local", *flags]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    begun, lines = 0.0, []
    for line in process.stdout:
        lines.append(line)
        if not begun and (line.startswith("iter ") or "resumed from" in line):
            begun = time.monotonic()
            if kill_after is not None:
                threading.Timer(kill_after, process.send_signal, [signal.SIGKILL]).start()
    if process.wait(HUNG_S) not in (0, -signal.SIGKILL):
        raise RuntimeError("".join(lines[-20:]))
    found = RECORDED.search("".join(lines))
    return time.monotonic() - begun, int(found.group(1)) if found else 0


def finished(output: Path) -> bool:
    summary = output / "summary.json"
    return summary.is_file() and json.loads(summary.read_text(encoding="utf-8"))["status"] == "done"


def account(output: Path) -> dict[str, Any]:
    """Return the contents of the pool, without the traces of kills in names."""
    with PoolReader(output / "pool.sqlite") as reader:
        return {
            "calls": {call.sampling_seed: call for call in reader.calls()},
            "batches": [
                (batch.iteration, batch.update, batch.position, re.sub(r"\.r\d+$", "", batch.session))
                for batch in reader.batches()
            ],
            "resumes": sum(event.kind == "resumed" for event in reader.events()),
        }


def weight_difference(*outputs: Path) -> float:
    """Return the largest difference between parameters of the last checkpoints."""
    folders = [max(path for path in (own / "checkpoints").iterdir() if path.name.isdigit()) for own in outputs]
    one, other = (load_file(folder / "hf" / "model.safetensors") for folder in folders)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


if __name__ == "__main__":
    main()
