"""What kill -9 costs a training run: ``python -m benchmarks.pool_kills --kills 100``.

A run is killed at random instants and resumed, again and again until it is done, and then compared with the same run
left alone. The pool must hold the same calls with the same tokens, none of them sampled twice, and the batches that
count must hold every session once. Log-probabilities and weights differ by float noise: what is served again does not
share a batch with what is sampled beside it.
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
from rl_agents.store.records import Call

ROOT = Path(__file__).parents[1]
#: Seconds that one start of the run may take.
HUNG_S = 600.0
RECORDED = re.compile(r"(\d+) recorded calls after the checkpoint")


def main() -> None:
    """Run both, print what differs, write results/NAME.json."""
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
    """Run undisturbed and killed; return counts of both, and what is the same."""
    alone, killed = scratch / "alone", scratch / "killed"
    seconds, _ = start(alone, flags)
    served, done = 0, 0
    while not finished(killed):
        wait = rng.uniform(0, 2 * seconds / (kills + 1)) if done < kills else None
        served += start(killed, flags, kill_after=wait)[1]
        done += wait is not None
    before, after = account(alone), account(killed)
    return {
        "kills": done,
        "calls": [len(before["calls"]), len(after["calls"])],
        "batches": [len(before["batches"]), len(after["batches"])],
        "served_again": served,
        "same_tokens": tokens(before["calls"]) == tokens(after["calls"]),
        "same_batches": before["batches"] == after["batches"],
        "trained_twice": len(after["batches"]) - len(set(after["batches"])),
        "logprob_difference": largest_difference(before["calls"], after["calls"]),
        "weight_difference": weight_difference(alone, killed),
        "resumes": after["resumes"],
    }


def start(output: Path, flags: list[str], kill_after: float | None = None) -> tuple[float, int]:
    """Begin the run or resume it, and kill it so many seconds after its first line about an iteration.

    Returns:
        Seconds from that line to the end, and how many recorded calls there were to serve again.
    """
    begun = (output / "pool.sqlite").is_file()
    arguments = ["--resume", str(output), "--local"] if begun else ["--output", str(output), "--local", *flags]
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
    """Whether the run has come to its end."""
    summary = output / "summary.json"
    return summary.is_file() and json.loads(summary.read_text(encoding="utf-8"))["status"] == "done"


def account(output: Path) -> dict[str, Any]:
    """What the pool holds, without the traces of kills in names."""
    with PoolReader(output / "pool.sqlite") as reader:
        return {
            "calls": {call.sampling_seed: call for call in reader.calls()},
            "batches": [
                (batch.iteration, batch.update, batch.position, re.sub(r"\.r\d+$", "", batch.session))
                for batch in reader.batches()
            ],
            "resumes": sum(event.kind == "resumed" for event in reader.events()),
        }


def tokens(calls: dict[int, Call]) -> dict[int, tuple[list[int], list[int]]]:
    """What was read and sampled, by seed."""
    return {name: (call.prompt_ids, call.response_ids) for name, call in calls.items()}


def largest_difference(before: dict[int, Call], after: dict[int, Call]) -> float:
    """Between two log-probabilities of one token in calls that both hold."""
    return max(
        (abs(a - b) for name in before.keys() & after.keys()
         for a, b in zip(before[name].logprobs, after[name].logprobs, strict=False)), default=0.0,
    )  # fmt: skip


def weight_difference(first: Path, second: Path) -> float:
    """Largest difference between two parameters of the last checkpoints."""
    one, other = (load_file(last_checkpoint(output) / "hf" / "model.safetensors") for output in (first, second))
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def last_checkpoint(output: Path) -> Path:
    """The newest one."""
    return max(path for path in (output / "checkpoints").iterdir() if path.name.isdigit())


if __name__ == "__main__":
    main()
