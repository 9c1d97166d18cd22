"""What the run explorer costs with a large pool: time of each page, and memory.

    python -m benchmarks.run_explorer [--episodes 100000] [--folder DIR]

Episodes of two steps in groups of eight, 1,000 of them an iteration, with text, credit and metrics. What pages ask is
asked over HTTP, three times each, of a server that has just been started; the first and the median time are printed.
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
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import httpx
import psutil

from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.records import Batch, Credit, Event, Record, session_records
from rl_agents.store.trajectory_store import PoolWriter

GROUP, ITERATION, TURNS, TOKENS = 8, 1000, 2, 12
TEXT = "<think> the lamp is on the desk, so that it can be looked at from here </think> go to desk 1"


def episode(number: int) -> Trajectory:
    """An episode as numbers make it."""
    group, member = number // GROUP % (ITERATION // GROUP), number % GROUP
    steps = [
        Step(
            list(range(turn * 2 * TOKENS + TOKENS)), [number % 5000] * TOKENS, [-0.1] * TOKENS, number // ITERATION,
            "stop", f"you are in room {turn}; there is a desk 1 and a lamp {number % 7}", f"room {turn}", TEXT,
            float(turn + 1 == TURNS and number % 3 == 0), call=step_seed(number, turn),
        )
        for turn in range(TURNS)
    ]  # fmt: skip
    won = number % 3 == 0
    return Trajectory(f"task-{group % 50}", group, member, number, steps, True, False, "terminated", False, won)


def records(number: int) -> Iterator[Record]:
    """All that an episode leaves."""
    iteration = number // ITERATION
    name = f"i{iteration}.g{number // GROUP % (ITERATION // GROUP)}.m{number % GROUP}"
    yield from session_records(episode(number), name, iteration=iteration, env="made")
    yield Batch(iteration, 0, number % ITERATION, name)
    yield from (Credit(iteration, 0, name, turn, (number % 11 - 5) / 4, 0.5) for turn in range(TURNS))


def write_run(folder: Path, episodes: int) -> None:
    """Write the run."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("algo: grpo\nenv: made\nseed: 0\n")
    tags = {f"made/{number}": 0.5 for number in range(80)}
    with (folder / "metrics.jsonl").open("w") as file:
        for i in range(episodes // ITERATION + 1):
            file.write(json.dumps({"iteration": i, "rollout/success_rate": 0.3, "seconds": i * 9.0, **tags}) + "\n")
    with PoolWriter(folder / "pool.sqlite", commit_rows=4096) as pool:
        for number in range(episodes):
            pool.add(*records(number))
            if number % ITERATION == ITERATION - 1:
                pool.add(Event("checkpoint", number // ITERATION + 1)).result()


def measure(folder: Path, iteration: int) -> None:
    """Start a server and ask what the pages ask."""
    run = {"run": folder.name}
    here = {**run, "iteration": iteration}
    session = {**run, "session": f"i{iteration}.g3.m1"}
    questions: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "start page": [("runs", {}), ("series", run)],
        "run": [("iterations", run)],
        "iteration": [("groups", here), ("steps", here)],
        "iteration, filtered by words": [("groups", {**here, "text": "lamp 6"})],
        "group": [("group", {**here, "group": 3})],
        "episode": [("episode", session)],
        "tokens": [("tokens", {**session, "ordinal": 1})],
        "task": [("task", {"task": "task-3"})],
        "words, first hits": [("search", {**run, "text": "lamp 6"})],
        "words that are nowhere, one look": [("search", {**run, "text": "no such words"})],
        "searches (there are none)": [("searches", run)],
        "is there anything new?": [("state", {})],
    }
    command = [sys.executable, "run.py", "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        with httpx.Client(base_url=f"{found[0]}api/", timeout=60) as http:
            for page, asked in questions.items():
                times = [sum(_seconds(http, *question) for question in asked) for _ in range(3)]
                print(f"{page:34} {1000 * times[0]:7.0f} ms at first, {1000 * median(times):6.0f} ms median")
        memory = psutil.Process(server.pid).memory_info().rss
        print(f"{'resident memory of the server':34} {memory / 1e6:7.0f} MB")
        server.send_signal(signal.SIGINT)


def _seconds(http: httpx.Client, view: str, values: dict[str, Any]) -> float:
    started = time.perf_counter()
    http.get(f"{view}?{urlencode(values)}").raise_for_status()
    return time.perf_counter() - started


def main() -> None:
    """Write the run, unless it is there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the run is kept, and found the next time")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.folder or Path(temporary)) / f"run-{args.episodes}"
        if not folder.exists():
            started = time.perf_counter()
            write_run(folder, args.episodes)
            size = (folder / "pool.sqlite").stat().st_size / 1e6
            print(f"wrote {args.episodes} episodes, {size:.0f} MB, in {time.perf_counter() - started:.0f} s")
        measure(folder, args.episodes // ITERATION - 1)


if __name__ == "__main__":
    main()
