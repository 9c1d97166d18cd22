"""How training on one environment affects four others: PivotRL and imitation, with one model for all five.

    python -m benchmarks.pivotrl_panel --local --jobs 2 --seeds 5

Arms, experts and pivots are those of `benchmarks.pivotrl`. The base imitates all five (`benchmarks.domains`). The
last checkpoint of every arm is evaluated on the test tasks of all: ``retained`` is the mean of the four others,
``panel`` has each. The base itself is an arm without training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.claims.registry import panel
from benchmarks.domains import PANELS
from benchmarks.grid import Arm, Run, grid_parser, read_run, run_grid, trained
from benchmarks.pivotrl import END_TO_END, EXPERTS, expert_arms, placed, play, prepare
from rl_agents.cache import cache_dir
from rl_agents.reporting.run_folder import RunFolder

PANEL = "five_domains"
SHOP, *OTHERS = PANELS[PANEL]
#: Arms of the claim, for each expert.
COMPARED = ("sft", "PivotRL")

#: Costs of an arm without training.
NOTHING = {"seconds": 0.0, "cpu_seconds": 0.0, "sampled_tokens": 0, "engine_logprob_gap_max": 0.0}


def main() -> None:
    args = grid_parser(__doc__, "pivotrl_panel").parse_args()
    folder = cache_dir() / "benchmarks" / "pivotrl_panel"
    for expert in EXPERTS:
        prepare(folder, expert, PANEL)
    compared = [arm for expert in EXPERTS for arm in expert_arms(expert) if arm.name.partition(",")[0] in COMPARED]
    run_grid([Arm("base", ()), *END_TO_END, *compared], args, partial(run_arm, folder))
    print(panel(args.name))


def run_arm(folder: Path, flags: Sequence[str], seed: int) -> Run:
    """Train one arm, then evaluate it in all environments; the base is only evaluated."""
    if "--algo" not in flags:
        return {**shown(folder / "base", seed), **NOTHING}
    with trained(placed(folder, flags), seed) as output:
        last = RunFolder(output).complete_checkpoints()[-1][1]
        return {**read_run(output), **shown(last / "hf", seed)}


def shown(model: Path, seed: int) -> Run:
    rates = {env: play(model, env, first=seed)[0] for env in (SHOP, *OTHERS)}
    outside = {env: rates[env] for env in OTHERS}
    return {"success": {"0": rates[SHOP]}, "retained": {"0": fmean(outside.values())}, "panel": outside}


if __name__ == "__main__":
    main()
