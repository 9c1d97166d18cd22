"""Tables beside a claim's comparisons: whether a testbed has what the claim is about, and the mechanism itself."""

from __future__ import annotations

import json
from statistics import fmean

from benchmarks.credit_reach import table
from benchmarks.doc_tables import Table, on_file
from benchmarks.grid import RESULTS, mean_text
from benchmarks.long_thoughts import ROOMS

#: Groups whose episodes all have one reward: of the start's, and over the training.
SILENT_GROUPS = Table(
    ("start", "end", "silent at the start", "silent in training"), {"vspo_mixed": ()}, head="arm of vspo_mixed"
)
#: How often each room's door was right in the last iterations.
DOORS = Table(
    ("start", "end", *(f"right in the {room}" for room in ROOMS)), {"steppo_rooms": ()}, head="arm of steppo_rooms"
)


def credit() -> str:
    """What reaches the first step; see benchmarks/credit_reach.py."""
    return table(json.loads((RESULTS / "credit_reach.json").read_text(encoding="utf-8")))


def panel(file: str = "pivotrl_panel") -> str:
    """What every arm keeps of what the base could do elsewhere; see benchmarks/pivotrl_panel.py."""
    arms = on_file(file)
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
