"""Time and memory of a large table: ``python -m benchmarks.tables [--rows N]``; each case in a process of its own."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet

from rl_agents.data.tables import open_table
from rl_agents.envs.mcp import McpOptions
from rl_agents.envs.mcp.tasks import load_tasks

COLUMNS = {"id": "key", "question": "prompt", "answer": "extra.answer"}
CHUNK = 100_000


def write(path: Path, rows: int) -> None:
    """Write questions with nested answers."""
    writer = None
    for start in range(0, rows, CHUNK):
        numbers = range(start, min(start + CHUNK, rows))
        asked = "Which river flows through the town where person number {} was born, and who founded that town?"
        table = pyarrow.table(
            {
                "key": [f"q{number}" for number in numbers],
                "prompt": [asked.format(number) for number in numbers],
                "extra": pyarrow.array([{"answer": f"answer {number}", "source": "made"} for number in numbers]),
            }
        )
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def case(name: str, path: Path) -> None:
    """Run one case and print its figures."""
    began = time.process_time()
    if name == "dictionaries":
        count = len(parquet.read_table(path).to_pylist())
    elif name == "rows":
        count = sum(1 for _ in open_table(path, COLUMNS))
    else:
        tasks = load_tasks(McpOptions(tasks=str(path), columns=COLUMNS))
        count = sum(map(len, tasks.splits.values()))
        for task_id in tasks.splits["train"][:1000]:
            tasks.find(task_id)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:14} {count:,} rows  {time.process_time() - began:5.1f} CPU-s  peak {peak:,.0f} MiB", flush=True)


def main() -> None:
    """Write a table and run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--case", nargs=2, metavar=("NAME", "FILE"))
    args = parser.parse_args()
    if args.case:
        case(args.case[0], Path(args.case[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.parquet"
        write(path, args.rows)
        for name in ("rows", "first", "again", "dictionaries"):
            command = [sys.executable, "-m", "benchmarks.tables", "--case", name, str(path)]
            subprocess.run(command, check=True, env={**os.environ, "RL_AGENTS_CACHE": folder})


if __name__ == "__main__":
    main()
