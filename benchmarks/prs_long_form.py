"""Progressive reward shaping, long form, against the 0-1 rewards on long_form_qa, under GRPO and VSPO.

    python -m benchmarks.prs_long_form --local --set eval_episodes=300
    python -m benchmarks.prs_long_form --weak --name prs_long_form_weak --local --set eval_episodes=300

Success is always the environment's own: every sentence grounded, every point stated. Only what training rewards
differs: that (``0-1``), whether the answer matches the reference (``match``, the paper's baseline), or the stages.
``--weak`` begins with a starter that was taught for a third of the steps, and hardly ever passes.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.grid import RESULTS, Arm, grid_parser, markdown, plot, run_grid
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import build_starter

#: VSPO has no small preset of its own here: the keys of GRPO's are general.
BASE = ("--config", "tune_configs/recipes/long_form_qa_grpo_small.yaml")
PRS = ("reward=prs", "prs_form=long", "prs_tags=[answer]")
REWARDS = {"0-1": (), "match": ("env.reward=match",), "prs": PRS}
WEAK_STARTER, WEAK_ITERATIONS = Path("runs/long_form_qa-weak"), 8


def arms(weak: bool) -> list[Arm]:
    """Return the arms of the benchmark, or those that begin with the weak starter."""
    chosen = {"grpo": ("0-1", "prs")} if weak else {"grpo": tuple(REWARDS), "vspo": ("0-1", "prs")}
    model = (f"model={WEAK_STARTER}",) if weak else ()
    found = []
    for algo, names in chosen.items():
        for name in names:
            keys = (*model, *REWARDS[name])
            found.append(Arm(f"{algo}, {name}", (*BASE, "--algo", algo, *(("--set", *keys) if keys else ()))))
    return found


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "prs_long_form")
    parser.add_argument("--weak", action="store_true")
    args = parser.parse_args()
    if args.weak and not WEAK_STARTER.is_dir():
        build_starter(AgentAlgorithm.from_settings, "long_form_qa", WEAK_STARTER, set={"iterations": WEAK_ITERATIONS})
    runs = run_grid(arms(args.weak), args)
    print(markdown(runs))
    plot(runs, RESULTS / f"{args.name}.png", f"long_form_qa, {args.seeds} seeds")


if __name__ == "__main__":
    main()
