"""Real text: alfworld with 3SPO's own prompt, a byte-level BPE and 2 M parameters. The start, and what training does.

    python -m benchmarks.alfworld_text --local --seeds 1                             # the start, and every method
    python -m benchmarks.alfworld_text --local --seeds 1 --arms grpo --set iterations=40

The methods are the recipes tune_configs/recipes/alfworld_text_*.yaml. Writes benchmarks/results/alfworld_text.json and
alfworld_text_start.json: success of the start, by episodes of 25 and of 50 turns. The starter is built where it is not
cached (`run.py sft --env alfworld --set env.prompt=3spo`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, read_run, run_command, run_grid
from rl_agents.algorithms import Settings
from rl_agents.core.algorithm import AgentAlgorithm
from rl_agents.core.starter import ensure_model

RECIPES = {"grpo": "alfworld_text_grpo", "chain-gae": "alfworld_text_chain_gae", "3spo": "alfworld_text_3spo"}
#: Turns of the measured episodes, as in the recipes for two cores; the 3SPO paper has 50.
TURNS = (25, 50)


def main() -> None:
    """Measure the start, run the recipes, print the table and write the files."""
    parser = grid_parser(__doc__, "alfworld_text")
    parser.add_argument("--arms", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--episodes", type=int, default=140, help="test episodes of the start; 0 leaves it out")
    args = parser.parse_args()
    if args.episodes:
        start = {f"{turns} turns": measured_start(turns, args.episodes) for turns in TURNS}
        path = RESULTS / f"{args.name}_start.json"
        path.write_text(json.dumps(start, indent=1) + "\n", encoding="utf-8")
        print(path.read_text(encoding="utf-8"))
    if args.arms:
        arms = [Arm(name, ("--config", f"tune_configs/recipes/{RECIPES[name]}.yaml")) for name in args.arms]
        print(markdown(run_grid(arms, args, run_cell)))


def measured_start(turns: int, episodes: int) -> Run:
    """Success of the starter on the test tasks at temperature 1, with its Wilson interval, and turns of an episode."""
    keys = {"env": "alfworld", "env.prompt": "3spo", "model": "starter"}
    folder = ensure_model(Settings.from_dict(keys), AgentAlgorithm.from_settings)
    given = ["--env", "alfworld", "--set", "env.prompt=3spo", f"max_turns={turns}"]
    report = json.loads(
        run_command(
            ["eval", "--model", str(folder), "--local", "--json", "--seeds", "1", "--episodes", str(episodes), *given]
        )
    )
    return {"success": report["success_wilson"], "turns": report["turns"]["mean"]}


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
