"""Real text: alfworld with 3SPO's own prompt, a byte-level BPE and 2 M parameters: what training makes of a beginner.

    python -m benchmarks.alfworld_text --local --seeds 1                             # every recipe as it is
    python -m benchmarks.alfworld_text --local --seeds 1 --arms grpo chain-gae --set iterations=10 eval_interval=0

The arms are the recipes tune_configs/recipes/alfworld_text_*.yaml. Writes benchmarks/results/alfworld_text.json, with
the share of invalid actions and the success of the training episodes by iteration, and the tokens of a step. The
starter is built where it is not cached (``run.py sft --env alfworld --set env.prompt=3spo``).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.grid import Arm, Run, grid_parser, markdown, read_run, run_command, run_grid

RECIPES = {"grpo": "alfworld_text_grpo", "chain-gae": "alfworld_text_chain_gae", "3spo": "alfworld_text_3spo"}


def main() -> None:
    """Run, print the table and write the file."""
    parser = grid_parser(__doc__, "alfworld_text")
    parser.add_argument("--arms", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    args = parser.parse_args()
    arms = [Arm(name, ("--config", f"tune_configs/recipes/{RECIPES[name]}.yaml")) for name in args.arms]
    runs = run_grid(arms, args, run_cell)
    print(markdown(runs, {"invalid actions, first and last iteration": invalid, "tokens of a step": step_tokens}))


def invalid(runs: Sequence[Run]) -> str:
    """Mean shares over the seeds."""
    first, last = (fmean(run["invalid_action_share"][place] for run in runs) for place in (0, -1))
    return f"{first:.2f}, {last:.2f}"


def step_tokens(runs: Sequence[Run]) -> str:
    """Prompt and response together, and the response alone."""
    return f"{fmean(run['row_tokens'] for run in runs):.0f}, {fmean(run['response_tokens'] for run in runs):.0f}"


def run_cell(flags: Sequence[str], seed: int, evaluations: Mapping[str, Sequence[str]] | None = None) -> Run:
    """One run: `benchmarks.grid.read_run`, the share of invalid actions by iteration, and the tokens of a step.

    The first iteration's share is that of the start: it was sampled before anything was learned.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        run_command(["--seed", str(seed), "--output", str(output), *flags])
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(json.loads, lines) if record["iteration"]]
        rows = [record for record in records if record.get("rows/count")]
        return {
            **read_run(output),
            "invalid_action_share": [round(record["rollout/invalid_action_share"], 4) for record in records],
            "row_tokens": fmean(record["rows/tokens"] / record["rows/count"] for record in rows),
            "response_tokens": fmean(record["rollout/response_length_mean"] for record in records),
        }


if __name__ == "__main__":
    main()
