"""Progressive reward shaping, long form, against the 0-1 rewards on long_form_qa, under GRPO and VSPO.

    python -m benchmarks.prs_long_form --local --set eval_episodes=300

Success is always the environment's own: every sentence grounded, every point stated. Only what training rewards
differs: that (``0-1``), whether the answer matches the reference (``match``, the paper's baseline), or the stages.
"""

from __future__ import annotations

from benchmarks.grid import RESULTS, Arm, grid_parser, markdown, plot, run_grid

#: VSPO has no small preset of its own here: the keys of GRPO's are general.
BASE = ("--config", "tune_configs/recipes/long_form_qa_grpo_small.yaml")
PRS = ("reward=prs", "prs_form=long", "prs_tags=[answer]")
REWARDS = {"0-1": (), "match": ("env.reward=match",), "prs": PRS}
ARMS = tuple(
    Arm(f"{algo}, {name}", (*BASE, "--algo", algo, *(("--set", *keys) if keys else ())))
    for algo, names in (("grpo", ("0-1", "match", "prs")), ("vspo", ("0-1", "prs")))
    for name, keys in REWARDS.items()
    if name in names
)


def main() -> None:
    """Run, print the table and write the files."""
    args = grid_parser(__doc__, "prs_long_form").parse_args()
    arms = run_grid(ARMS, args)
    print(markdown(arms))
    plot(arms, RESULTS / f"{args.name}.png", f"long_form_qa, {args.seeds} seeds")


if __name__ == "__main__":
    main()
