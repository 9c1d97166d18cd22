"""Single turns of real traces for PivotRL: the tool calls of tau-bench's airline agent, for a small pretrained model.

    python -m benchmarks.airline HISTORY.json DIR      # `historical_trajectories/gpt-4o-airline.json` of tau-bench

A CPU reads few tokens a second, so the agent's policy, two thirds of a prompt, is left out, and a trace ends after
`CHARACTERS`. Trials of one task have one id and are in one set, because they call with the same arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.grid import run_command
from benchmarks.report import command_line
from rl_agents.envs.pivot.tasks import split_by_trace
from rl_agents.traces.store import read_table, read_turns, write_table, write_turns

SYSTEM = "You are an airline agent. Call a tool, or answer the user."
#: Of all messages before a call.
CHARACTERS = 1500
#: Calls whose argument is a text, which the verifier compares loosely.
TEXTS = ("think", "transfer_to_human_agents")
TEST_SHARE = 0.25
TURNS, PIVOTS, RANDOM = "turns.parquet", "pivots.parquet", "random_pivots.parquet"


def traces(history: Path) -> Iterator[dict[str, Any]]:
    """Traces of successful trials, in OpenAI's form."""
    for trial in json.loads(history.read_text(encoding="utf-8")):
        messages, length = [{"role": "system", "content": SYSTEM}], 0
        for message in trial["traj"][1:]:
            if length > CHARACTERS:
                break
            messages.append(message)
            length += len(message.get("content") or "") + len(json.dumps(message.get("tool_calls") or ""))
        yield {"id": str(trial["task_id"]), "reward": trial["reward"], "messages": messages}


def write(history: Path, folder: Path) -> None:
    """Write the calls of the traces as turns, without those of `TEXTS`."""
    folder.mkdir(parents=True)
    file = folder / "traces.jsonl"
    file.write_text("".join(json.dumps(trace) + "\n" for trace in traces(history)), encoding="utf-8")
    flags = ["--traces", str(file), "--output", str(folder), "--infer-tools", "--only-calls"]
    print(run_command(["pivot", "extract", *flags]))
    turns = read_turns(folder / TURNS)
    write_turns(folder / TURNS, [turn for turn in turns if turn.calls[0].name not in TEXTS])


def train_turns(folder: Path) -> Path:
    """Write the turns of the traces that are no tests; only they are profiled."""
    turns, path = read_turns(folder / TURNS), folder / "train" / TURNS
    train = set(split_by_trace(turns, TEST_SHARE)[0])
    write_turns(path, [turn for turn in turns if turn.turn_id in train])
    return path


def choose(folder: Path) -> None:
    """Write the pivots, and as many random train turns; both files have all test turns, too."""
    turns, train = read_table(folder / TURNS), set(ids(read_table(folder / "train" / TURNS)))
    for name, flags in ((PIVOTS, ()), (RANDOM, ("--random",))):
        print(run_command(["pivot", "filter", "--traces", str(folder / "train"), *flags]))
        chosen = set(ids(read_table(folder / "train" / name)))
        write_table(folder / name, turns.filter([turn in chosen or turn not in train for turn in ids(turns)]))


def ids(table: Any) -> list[str]:
    found: list[str] = table.column("turn_id").to_pylist()
    return found


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("history", type=Path, metavar="HISTORY.json")
    parser.add_argument("folder", type=Path, metavar="DIR")
    args = parser.parse_args()
    write(args.history, args.folder)


if __name__ == "__main__":
    main()
