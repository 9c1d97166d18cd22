"""Tables beside a claim's comparisons: whether a testbed has what the claim is about, and the mechanism itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from benchmarks.credit_reach import table
from benchmarks.grid import RESULTS, Run, mean_text, summarise, text
from benchmarks.long_thoughts import ROOMS
from benchmarks.steppo_rooms import right
from benchmarks.t3 import truncated, turns


def silent_groups() -> str:
    """Groups whose episodes all have one reward: of the start's, and over the training."""
    return _arms(
        "vspo_mixed",
        {
            "silent groups at the start": lambda runs: f"{fmean(run['zero_advantage'][0] for run in runs):.2f}",
            "in training": lambda runs: f"{fmean(fmean(run['zero_advantage']) for run in runs):.2f}",
        },
    )


def doors() -> str:
    """How often each room's door was right in the last iterations."""
    return _arms("steppo_rooms", {f"right in the {room}": right(room) for room in ROOMS})


def lost_threads() -> str:
    """What is left of the traps, and what was cut, over the training."""
    return _arms(
        "t3_lost_threads",
        {
            "sampled tokens": lambda runs: f"{fmean(run['sampled_tokens'] for run in runs) / 1000:.0f} k",
            "turns": turns,
            "truncated": truncated,
        },
    )


def credit() -> str:
    """What reaches the first step; see benchmarks/credit_reach.py."""
    return table(json.loads((RESULTS / "credit_reach.json").read_text(encoding="utf-8")))


def panel(file: str = "pivotrl_panel") -> str:
    """What every arm keeps of what the base could do elsewhere; see benchmarks/pivotrl_panel.py."""
    arms = {name: list(arm["runs"].values()) for name, arm in _stored(file).items()}
    base, others = arms["base"], list(arms["base"][0]["panel"])
    heads = ["arm", "seeds", "in its domain", "mean of the others", "change of it", *others]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, runs in arms.items():
        kept = [run["retained"]["0"] for run in runs]
        lost = [after - before["retained"]["0"] for after, before in zip(kept, base, strict=False)]
        cells = [
            name, str(len(runs)), mean_text([run["success"]["0"] for run in runs]), mean_text(kept),
            "" if name == "base" else mean_text(lost),
            *(f"{fmean(run['panel'][env] for run in runs):.2f}" for env in others),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _stored(file: str) -> dict[str, Any]:
    arms: dict[str, Any] = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["arms"]
    return arms


def _arms(file: str, columns: Mapping[str, Callable[[list[Run]], str]]) -> str:
    lines = [f"| {' | '.join([f'arm of {file}', 'start', 'end', *columns])} |", f"|{'---|' * (3 + len(columns))}"]
    for name, arm in _stored(file).items():
        runs = list(arm["runs"].values())
        row = summarise(runs)
        cells = [name, text(row["start"]), text(row["end"]), *(column(runs) for column in columns.values())]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
